// Moments in 8 bits: 256 of them share a scale, their largest magnitude, and each has one of 256 values between
// -1 and 1, or 0 and 1, which are denser near 0 (Dettmers et al., arXiv:2110.02861, sections 2.1 and 2.2; the
// dynamic map of bitsandbytes). They are the same on every device.
//
//   kDynamic8          256 codes; the scale, fp32. A code is signed: -127 to 127
//   kDynamic8Unsigned  the same with codes of 0 to 255
//
// The magnitudes of a decade are the middles of equal parts of it: 2^i parts of the decade from 10^(i-7) to
// 10^(i-6), i from 0 to 6, or 2^(i+1) of them without sign. There is a 1 besides; with sign instead of the last
// middle. (bitsandbytes has that middle, its negative and 1, but not -1.) So a block's largest number keeps its
// magnitude, and unpacking and packing again gives the same bytes: checkpoints can hold the numbers. Bytes that
// are all zero are zeros.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "plan/dtype.h"
#include "runtime/device_function.h"

namespace windtunnel::dynamic8 {

inline constexpr int kBlock = 256;  // numbers with a scale
inline constexpr int kBytes = kBlock + 4;
static_assert(SizeOf(DType::kDynamic8).count() == kBytes && NumbersIn(DType::kDynamic8) == kBlock);
static_assert(SizeOf(DType::kDynamic8Unsigned).count() == kBytes &&
              NumbersIn(DType::kDynamic8Unsigned) == kBlock);

// The magnitude of code `code`, from 0 to 127, or to 255 without sign. Here and below, what compilers may
// contract is contracted, so that all of them round alike.
template <bool kSigned>
WT_FUNCTION float Magnitude(int code) {
  constexpr float kEnds[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  if (code == 0) return 0.0f;
  if (code == (kSigned ? 127 : 255)) return 1.0f;
  const int place = kSigned ? code : code + 1;
  int log2 = 0;
  for (int i = 1; i < 8; ++i) log2 += place >> i != 0 ? 1 : 0;
  const int parts = 1 << log2;
  const float middle = (static_cast<float>(place - parts) + 0.5f) / static_cast<float>(parts);
  return fmaf(0.9f, middle, 0.1f) * kEnds[kSigned ? log2 : log2 - 1];
}

// The code of magnitude x, from 0 to 1: that of the part which it is in. Without branches, for vector units.
template <bool kSigned>
WT_FUNCTION int CodeOf(float x) {
  float unit = 1e6f;
  int parts = kSigned ? 1 : 2;
  const auto pass = [&](float end, float next_unit) {
    unit = x > end ? next_unit : unit;
    parts = x > end ? 2 * parts : parts;
  };
  pass(1e-6f, 1e5f);
  pass(1e-5f, 1e4f);
  pass(1e-4f, 1e3f);
  pass(1e-3f, 1e2f);
  pass(1e-2f, 1e1f);
  pass(1e-1f, 1.0f);
  const float at = fmaf(x, unit, -0.1f) * (1.0f / 0.9f) * static_cast<float>(parts);
  int part = static_cast<int>(at);
  part = part < parts ? part : parts - 1;
  part = part > 0 ? part : 0;
  constexpr float kLeast = kSigned ? 0.55e-6f : 0.325e-6f;
  if (kSigned) return x < kLeast / 2 ? 0 : parts + part;
  const int code = parts + part - (x > 0.998f ? 0 : 1);  // 254 is 0.9965, and 255 is 1
  return x < kLeast / 2 ? 0 : code;
}

// The byte of number x in a block of scale `scale`: of 0 where that is 0 or not finite.
template <bool kSigned>
WT_FUNCTION uint8_t ByteOf(float x, float scale) {
  const bool has_scale = scale > 0.0f && scale <= 3.4028234664e38f;
  const float share = has_scale ? x / scale : 0.0f;
  const int code = CodeOf<kSigned>(fabsf(share));
  return static_cast<uint8_t>(kSigned && share < 0.0f ? -code : code);
}

// The number of a byte in a block of scale 1.
template <bool kSigned>
WT_FUNCTION float ValueOf(uint8_t byte) {
  const int code = kSigned ? static_cast<int>(static_cast<int8_t>(byte)) : static_cast<int>(byte);
  const float magnitude = Magnitude<kSigned>(code < 0 ? -code : code);
  return code < 0 ? -magnitude : magnitude;
}

WT_FUNCTION float ScaleOf(const uint8_t* element) {
  float scale;
  memcpy(&scale, element + kBlock, sizeof scale);
  return scale;
}
WT_FUNCTION void SetScale(uint8_t* element, float scale) { memcpy(element + kBlock, &scale, sizeof scale); }

// The bits of |x|. Those of NaNs exceed all others, so that the scale of a block with one is one.
WT_FUNCTION uint32_t MagnitudeBits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffffu;
}
WT_FUNCTION float FromBits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace windtunnel::dynamic8
