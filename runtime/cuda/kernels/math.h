// The activations' functions as in runtime/cpu/vector_math.h, with the device's fast exponential and
// division.
#pragma once

#include "runtime/cuda/kernels/simt.h"

namespace windtunnel::WT_KERNELS {

WT_DEVICE float Sigmoid(float x) { return DivideFast(1.0f, 1.0f + ExpFast(-x)); }

struct NormalDistribution {
  float cdf, density;
};

// Phi(x) and phi(x). The tail is e^(-x^2/2) t Q(t) with t = 1 / (1 + 0.35 |x|); vector_math.h has the source
// of the coefficients.
WT_DEVICE NormalDistribution Normal(float x) {
  constexpr float kInverseSqrt2Pi = 0.398942280f;
  const float gauss = ExpFast(-0.5f * x * x);
  const float t = DivideFast(1.0f, 1.0f + 0.35f * fabsf(x));
  float q = 3.62850726e-3f;
  q = q * t - 4.82607678e-2f;
  q = q * t + 1.87358156e-1f;
  q = q * t - 3.11237845e-1f;
  q = q * t + 2.03182429e-1f;
  q = q * t - 4.54373211e-2f;
  q = q * t + 1.12733960e-1f;
  q = q * t + 1.18399106e-1f;
  q = q * t + 1.40019685e-1f;
  q = q * t + 1.39614075e-1f;
  const float tail = gauss * (q * t);
  return {x < 0.0f ? tail : 1.0f - tail, gauss * kInverseSqrt2Pi};
}

}  // namespace windtunnel::WT_KERNELS
