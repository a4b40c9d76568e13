// exp and the normal distribution for loops that the compiler vectorises: no branches, no calls, no tables.
// Error bounds are relative, measured over all inputs of the given ranges;
// tests/runtime/cpu/vector_math_test.cc checks them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {

// e^x within 1.5e-7 (1.3 ulp) for x in [-87.3, 88.3]. Below -87.3 (results under 2^-126) it is 0, above 88.3
// it stays at e^88.3; NaN stays NaN.
//
// x = n ln2 + r with |r| <= ln2 / 2; e^r = 1 + r + r^2 P(r), P of degree 4 fitted to minimise the largest
// relative error over that interval (3.1e-9, from 400 Chebyshev nodes by Lawson's reweighting); 2^n goes into
// the exponent bits.
WT_INLINE float Exp(float x) {
  constexpr float kLowest = -87.3f, kHighest = 88.3f;
  constexpr float kLog2e = 1.44269504f;
  // ln2 in two parts; the first has 9 bits, so its product with n is exact.
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low bits

  const float clamped = x > kHighest ? kHighest : (x < kLowest ? kLowest : x);
  const float shifted = clamped * kLog2e + kRoundToInteger;
  const float n = shifted - kRoundToInteger;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.38145986e-3f;
  p = p * r + 8.36871688e-3f;
  p = p * r + 4.16683880e-2f;
  p = p * r + 1.66665206e-1f;
  p = p * r + 4.99999934e-1f;
  const float power = (p * r) * r + r + 1.0f;
  // 2^n: n + 127 lies in [1, 254], the exponent's eight bits. A product, so that a NaN in `power` stays one.
  const float two_to_n = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
  return x < kLowest ? 0.0f : power * two_to_n;
}

// 1 / (1 + e^-x), within 3e-7 for x >= -87; positive and below 1.2e-38 for less.
WT_INLINE float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// The standard normal distribution: `cdf` is Phi(x) = (1 + erf(x / sqrt 2)) / 2, `density` is phi(x) =
// e^(-x^2/2) / sqrt(2 pi).
struct NormalDistribution {
  float cdf, density;
};

// Phi within 5e-7 + 6e-8 x^2/2 relative for x in [-13, infinity), also in the lower tail where 1 + erf would
// cancel; the density within 2e-7 + 6e-8 x^2/2.
//
// The upper tail is Phi(-|x|) = e^(-x^2/2) t Q(t), t = 1 / (1 + 0.35 |x|): the form of Abramowitz and
// Stegun 7.1.26 with a Q of degree 9 fitted for |x| <= 14 to minimise the largest relative error (2.0e-8,
// Lawson's reweighting).
WT_INLINE NormalDistribution Normal(float x) {
  constexpr float kInverseSqrt2Pi = 0.398942280f;
  const float magnitude = std::fabs(x);
  const float gauss = Exp(-0.5f * x * x);
  const float t = 1.0f / (1.0f + 0.35f * magnitude);
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

// The largest of x[0, n), n positive. It may drop a NaN; the exponentials that follow keep it.
WT_INLINE float Maximum(int64_t n, const float* x) {
  float maximum = x[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  return maximum;
}

WT_INLINE float DotProduct(int64_t n, const float* a, const float* b) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace windtunnel::cpu
