// The element types of the cpu device's kernels, as they lie in memory. Arithmetic is always fp32. A kernel
// is a template over these types that loads with ToFloat and stores with FromFloat, which do nothing for
// fp32.
//
//   template <typename T>
//   WT_CPU_KERNEL void Squares(int64_t n, const T* in, T* out) {
//   #pragma omp simd
//     for (int64_t i = 0; i < n; ++i) out[i] = FromFloat<T>(ToFloat(in[i]) * ToFloat(in[i]));
//   }
//   WithElement(op.dtype, [&](auto element) { Squares(n, operands.In<decltype(element)>(0, n), …); });
//
// Conversions round to nearest, ties to even, and have no branches, so that loops vectorise even without
// instructions for these types (AVX-512 BF16, F16C).
#pragma once

#include <bit>
#include <cstdint>

#include "base/check.h"
#include "plan/dtype.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {

// The upper half of an fp32, and IEEE 754's binary16. They are enumerations because the compiler then treats
// them as scalars; it does not vectorise every loop over structs.
enum class BFloat16 : uint16_t {};
enum class Float16 : uint16_t {};

// `chosen` or `other`, by masks: GCC 12 turns nested conditional expressions into branches, which keep loops
// scalar.
WT_INLINE uint32_t Select(bool condition, uint32_t chosen, uint32_t other) {
  const uint32_t mask = -static_cast<uint32_t>(condition);
  return (chosen & mask) | (other & ~mask);
}

WT_INLINE float ToFloat(float x) { return x; }

WT_INLINE float ToFloat(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

WT_INLINE float ToFloat(Float16 x) {
  constexpr uint32_t kInfinityMoved = 0x7c00u << 13, kInfinity = 0x7f800000u;
  const uint32_t bits = static_cast<uint32_t>(x);
  const uint32_t magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
  // Shifted into place, the exponent is biased by 15 instead of 127; the product corrects that, for
  // subnormals as well.
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  return std::bit_cast<float>((magnitude >= kInfinityMoved ? magnitude | kInfinity : finite) | sign);
}

template <typename T>
T FromFloat(float x);

template <>
WT_INLINE float FromFloat<float>(float x) {
  return x;
}

// To round to nearest even, adds just under half of the last place kept, and that place's own bit. A carry
// out of the mantissa goes into the exponent, and past the largest number to infinity.
template <>
WT_INLINE BFloat16 FromFloat<BFloat16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<BFloat16>(x != x ? quiet_nan : rounded);
}

template <>
WT_INLINE Float16 FromFloat<Float16>(float x) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  // 65,520: halfway between the largest number and the next power of two
  constexpr uint32_t kOverflows = 0x477ff000u;
  constexpr uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  constexpr uint32_t kRebias = (15u - 127u) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = (bits >> 16) & 0x8000u,
                 magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + kRebias + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // The last place of 0.5 is 2^-24, the unit of subnormals, so the sum's low bits are the rounded subnormal.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t special = magnitude > kInfinity ? 0x7e00u : 0x7c00u;
  const uint32_t finite = Select(magnitude < kSmallestNormal, subnormal, normal);
  const uint32_t rounded = Select(magnitude >= kOverflows, special, finite);
  return static_cast<Float16>(rounded | sign);
}

// Whether kernels support the type as an element.
constexpr bool IsElement(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

// Calls f(T()) with the element type T of `dtype`. REQUIRES: IsElement(dtype).
template <typename F>
auto WithElement(DType dtype, F&& f) {
  if (dtype == DType::kBFloat16) return f(BFloat16());
  if (dtype == DType::kFloat16) return f(Float16());
  WT_CHECK(dtype == DType::kFloat32);
  return f(float());
}

}  // namespace windtunnel::cpu
