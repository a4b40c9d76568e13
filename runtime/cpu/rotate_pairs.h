// The rotation of rotary positions (rope.h), for kernels that rotate heads.
#pragma once

#include <cstdint>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {

// Rotates x, of 2 * half columns, into out, by the angles whose cosines, then sines, are at `turns`
// (RopeTables). `sign` is 1 forward and -1 backward. out may be x.
template <typename In, typename Out>
WT_INLINE void RotatePairs(int64_t half, const float* turns, float sign, const In* x, Out* out) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = ToFloat(x[i]), b = ToFloat(x[i + half]), s = sign * turns[i + half];
    out[i] = FromFloat<Out>(a * turns[i] - b * s);
    out[i + half] = FromFloat<Out>(b * turns[i] + a * s);
  }
}

}  // namespace windtunnel::cpu
