#include "runtime/cpu/shards.h"

#include <string.h>

#include <algorithm>

#include "base/check.h"
#include "runtime/cpu/convert.h"
#include "runtime/cpu/element.h"
#include "runtime/shard_parts.h"

namespace windtunnel::cpu {
namespace {

// As many whole tensors as there are shards of each, none larger than they are together.
void CheckSizes(int ranks, const std::vector<int64_t>& shard_elements, std::span<const TensorRef> tensors) {
  WT_CHECK_EQ(tensors.size(), shard_elements.size());
  for (size_t i = 0; i < tensors.size(); ++i) WT_CHECK_LE(tensors[i].elements, ranks * shard_elements[i]);
}

template <typename From, typename To>
void Pack(const PackShards& op, const Operands& operands, To* flat) {
  CheckSizes(op.ranks, op.shard_elements, operands.reads);
  const float scale = static_cast<float>(op.scale);
  ForEachPart(op.ranks, op.shard_elements, operands.reads, [&](const ShardPart& part) {
    const From* tensor = operands.In<From>(part.tensor, part.begin + part.elements);
    Convert(part.elements, scale, tensor + part.begin, flat + part.flat);
    std::fill_n(flat + part.flat + part.elements, part.padding, To());
  });
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

}  // namespace

Status Run(const PackShards& op, const Operands& operands) {
  const int64_t elements = FlatElements(op.ranks, op.shard_elements);
  WithElement(op.from, [&](auto from) {
    WithElement(
        op.to, [&](auto to) { Pack<decltype(from)>(op, operands, operands.Out<decltype(to)>(0, elements)); });
  });
  return Ok();
}

Status Run(const UnpackShards& op, const Operands& operands) {
  if (op.dtype == DType::kUInt8) {
    UnpackBytes(op, operands);
    return Ok();
  }
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    CheckSizes(op.ranks, op.shard_elements, operands.writes);
    const T* flat = operands.In<T>(0, FlatElements(op.ranks, op.shard_elements));
    ForEachPart(op.ranks, op.shard_elements, operands.writes, [&](const ShardPart& part) {
      T* tensor = operands.Out<T>(part.tensor, part.begin + part.elements);
      Convert(part.elements, 1.0f, flat + part.flat, tensor + part.begin);
    });
  });
  return Ok();
}

}  // namespace windtunnel::cpu
