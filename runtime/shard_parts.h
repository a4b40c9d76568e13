// Where PackShards and UnpackShards (plan/ops.h) find what in their tensors and in the flat layout of shards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernel_context.h"

namespace windtunnel {

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
  int64_t flat = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t shard = shard_elements[i], whole = tensors[i].elements;
      const int64_t begin = std::min(rank * shard, whole), elements = std::min(shard, whole - begin);
      visit(ShardPart{i, begin, elements, flat, shard - elements});
      flat += shard;
    }
  }
}

inline int64_t FlatElements(int ranks, const std::vector<int64_t>& shard_elements) {
  int64_t sum = 0;
  for (const int64_t elements : shard_elements) sum += elements;
  return ranks * sum;
}

}  // namespace windtunnel
