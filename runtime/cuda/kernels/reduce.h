// Sums and maxima over the threads of a warp and of a block, always in the same order: the same run gives the
// same bits.
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
  // The number, if one of the two is a NaN.
  WT_DEVICE float operator()(float a, float b) const { return fmaxf(a, b); }
  WT_DEVICE uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

// Reduces over kLanes lanes (a power of two) whose indices differ in the lowest bits only; all of them get
// the result.
template <int kLanes = kWarp, typename T, typename Combine>
WT_DEVICE T ReduceLanes(T value, Combine combine) {
  WT_UNROLL
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = combine(value, ShuffleXor(value, mask));
  return value;
}

// Reduces over the block; all threads get the result. `place` has one element of shared memory per warp and
// may be reused at once.
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
