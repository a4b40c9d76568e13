// Many tensors in one launch: the kernel's operand contains their pointers, and blocks process chunks of the
// tensors in turn.
#pragma once

#include <cstdint>

#include "runtime/cuda/kernels/simt.h"

namespace windtunnel::WT_KERNELS {

inline constexpr int64_t kChunk = 8192;

// Assigns chunks to tensors: tensor i has the chunks from first[i] up to first[i + 1].
template <int kMax>
struct ChunkTable {
  int32_t tensors = 0;
  int32_t first[kMax + 1] = {};
  int64_t elements[kMax] = {};

  // For the host. Whether the table has no room for another tensor.
  bool Full() const { return tensors == kMax; }
  void Add(int64_t n) {
    elements[tensors] = n;
    first[tensors + 1] = first[tensors] + static_cast<int32_t>((n + kChunk - 1) / kChunk);
    ++tensors;
  }
  int64_t chunks() const { return first[tensors]; }

#if defined(WT_DEVICE)
  // Calls f(tensor, begin, end) for each chunk of this block.
  template <typename F>
  WT_DEVICE void ForEachOfBlock(F f) const {
    for (int chunk = BlockX(); chunk < first[tensors]; chunk += GridX()) {
      int low = 0, high = tensors;
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (first[middle] <= chunk ? low : high) = middle;
      }
      const int64_t begin = (chunk - first[low]) * kChunk, end = begin + kChunk;
      f(low, begin, end < elements[low] ? end : elements[low]);
    }
  }
#endif
};

}  // namespace windtunnel::WT_KERNELS
