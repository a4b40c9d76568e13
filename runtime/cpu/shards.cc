#include "runtime/cpu/shards.h"

#include <string.h>

#include <algorithm>
#include <numeric>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/element.h"

namespace windtunnel::cpu {
namespace {

// One rank's part of one tensor: its `elements` elements from `begin` on. They lie at `flat` among the shards
// and are followed there by `padding` elements.
struct ShardPart {
  size_t tensor = 0;
  int64_t begin = 0, elements = 0;
  int64_t flat = 0, padding = 0;
};

// Calls visit(part) for every part, in the order of the flat layout. The tensors have their whole sizes.
template <typename Visit>
void ForEachPart(int ranks, const std::vector<int64_t>& shard_elements, std::span<const TensorRef> tensors,
                 Visit visit) {
  WT_CHECK_EQ(tensors.size(), shard_elements.size());
  int64_t flat = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t shard = shard_elements[i], whole = tensors[i].elements;
      WT_CHECK_LE(whole, ranks * shard);
      const int64_t begin = std::min(rank * shard, whole), elements = std::min(shard, whole - begin);
      visit(ShardPart{i, begin, elements, flat, shard - elements});
      flat += shard;
    }
  }
}

int64_t FlatElements(int ranks, const std::vector<int64_t>& shard_elements) {
  return ranks * std::accumulate(shard_elements.begin(), shard_elements.end(), int64_t{0});
}

template <typename From, typename To>
void Pack(const PackShards& op, const Operands& operands, To* flat) {
  const float scale = static_cast<float>(op.scale);
  ForEachPart(op.ranks, op.shard_elements, operands.reads, [&](const ShardPart& part) {
    const From* tensor = operands.In<From>(part.tensor, part.begin + part.elements);
    Convert(part.elements, scale, tensor + part.begin, flat + part.flat);
    std::fill_n(flat + part.flat + part.elements, part.padding, To());
  });
}

}  // namespace

Status Run(const PackShards& op, const Operands& operands) {
  const int64_t elements = FlatElements(op.ranks, op.shard_elements);
  WithElement(op.from, [&](auto from) {
    WithElement(
        op.to, [&](auto to) { Pack<decltype(from)>(op, operands, operands.Out<decltype(to)>(0, elements)); });
  });
  return Ok();
}

// Tensors of any types, which have room for the padding.
void UnpackBytes(const UnpackShards& op, const Operands& operands) {
  const auto* flat = operands.In<char>(0, FlatElements(op.ranks, op.shard_elements));
  for (int rank = 0; rank < op.ranks; ++rank) {
    for (size_t i = 0; i < op.shard_elements.size(); ++i) {
      const auto bytes = static_cast<size_t>(op.shard_elements[i]);
      memcpy(operands.Out<char>(i, 0) + static_cast<size_t>(rank) * bytes, flat, bytes);
      flat += bytes;
    }
  }
}

Status Run(const UnpackShards& op, const Operands& operands) {
  if (op.dtype == DType::kUInt8) {
    UnpackBytes(op, operands);
    return Ok();
  }
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* flat = operands.In<T>(0, FlatElements(op.ranks, op.shard_elements));
    ForEachPart(op.ranks, op.shard_elements, operands.writes, [&](const ShardPart& part) {
      T* tensor = operands.Out<T>(part.tensor, part.begin + part.elements);
      Convert(part.elements, 1.0f, flat + part.flat, tensor + part.begin);
    });
  });
  return Ok();
}

}  // namespace windtunnel::cpu
