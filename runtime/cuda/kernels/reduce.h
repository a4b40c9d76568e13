// Sums and maxima over the threads of a warp and of a block, in one order whatever happens: the same run gives the same bits.
#pragma once

#include "runtime/cuda/kernels/simt.h"

namespace windtunnel::WT_KERNELS {

struct Sum {
  template <typename T>
  WT_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {
  WT_DEVICE float operator()(float a, float b) const {
    return fmaxf(a, b);
  }  // of a NaN and a number, the number
};

// Over lanes that differ in the lowest bits of their index, kLanes a power of two; all of them get the result.
template <int kLanes = kWarp, typename T, typename Combine>
WT_DEVICE T ReduceLanes(T value, Combine combine) {
  WT_UNROLL
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = combine(value, ShuffleXor(value, mask));
  return value;
}

// Over the block; all threads get the result. `place` has an element of shared memory for each warp, and may be used again at once.
template <int kThreads, typename T, typename Combine>
WT_DEVICE T ReduceBlock(T value, T identity, T* place, Combine combine) {
  constexpr int kWarps = kThreads / kWarp;
  static_assert(kWarps <= kWarp);
  value = ReduceLanes(value, combine);
  if (Lane() == 0) place[Thread() / kWarp] = value;
  SyncThreads();
  value = ReduceLanes(Lane() < kWarps ? place[Lane()] : identity, combine);
  SyncThreads();
  return value;
}

}  // namespace windtunnel::WT_KERNELS
