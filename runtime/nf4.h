// Weights in 4 bits: NF4, the 16 values that quantize a normal distribution best (QLoRA: Dettmers et al.,
// arXiv:2305.14314, appendix E), times the largest magnitude of each 64 weights. They are the same on every
// device.
//
//   kNf4        32 bytes of codes, two in a byte, the first in the upper half; the scale, fp32
//   kNf4Double  256 such blocks' codes; their scales as a share of the largest of them, in 8 bits; this, fp32
//
// Unpacking and packing again gives the same bytes, so checkpoints can hold the numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "plan/dtype.h"
#include "runtime/device_function.h"

namespace windtunnel::nf4 {

inline constexpr int kBlock = 64;              // weights with a scale
inline constexpr int kCodeBytes = kBlock / 2;  // of a block
inline constexpr int kBlocks = 256;            // with a common scale of their scales (kNf4Double)
inline constexpr int kZero = 7;                // the code of 0

// The number of a code, of a block whose scale is 1.
WT_FUNCTION float Value(int code) {
  constexpr float kValues[16] = {-1.0F,         -0.696192801F, -0.525073051F,  -0.394917488F,
                                 -0.284441382F, -0.184773430F, -0.0910500363F, 0.0F,
                                 0.0795802996F, 0.160930201F,  0.246112302F,   0.337915242F,
                                 0.440709829F,  0.562617004F,  0.722956836F,   1.0F};
  return kValues[code];
}

// The code of the nearest value to x, which is in [-1, 1]. A NaN has the code of -1.
WT_FUNCTION int Code(float x) {
  int code = 0;
  for (int i = 1; i < 16; ++i) code += x > (Value(i - 1) + Value(i)) * 0.5F ? 1 : 0;
  return code;
}

// Where the parts of an element are, which may lie at any byte.
struct Element {
  bool is_double = false;

  WT_FUNCTION int64_t bytes() const { return is_double ? kBlocks * (kCodeBytes + 1) + 4 : kCodeBytes + 4; }
  WT_FUNCTION int blocks() const { return is_double ? kBlocks : 1; }
  // The fp32 scale: of the block, or of the blocks' scales.
  WT_FUNCTION int64_t scale_at() const { return is_double ? kBlocks * (kCodeBytes + 1) : kCodeBytes; }

  WT_FUNCTION float ScaleOf(const uint8_t* element, int block) const {
    float scale;
    memcpy(&scale, element + scale_at(), sizeof scale);
    return is_double ? Share(element[kBlocks * kCodeBytes + block]) * scale : scale;
  }
  WT_FUNCTION void SetScale(uint8_t* element, float scale) const {
    memcpy(element + scale_at(), &scale, sizeof scale);
  }

  // A scale as a share of `most`, the largest of its group's, in 8 bits. It is rounded down, so that the
  // block's largest number is always 1 or -1 times its scale, and packed again has the same one. (The
  // hundredth is for what was rounded before.)
  static WT_FUNCTION uint8_t ShareBits(float scale, float most) {
    return most > 0 ? static_cast<uint8_t>(scale / most * 255.0F + 0.01F) : 0;
  }
  static WT_FUNCTION float Share(uint8_t bits) { return static_cast<float>(bits) * (1.0F / 255.0F); }
};

constexpr Element ElementOf(DType dtype) { return {dtype == DType::kNf4Double}; }
static_assert(SizeOf(DType::kNf4).count() == kCodeBytes + 4 && NumbersIn(DType::kNf4) == kBlock);
static_assert(SizeOf(DType::kNf4Double).count() == kBlocks * (kCodeBytes + 1) + 4 &&
              NumbersIn(DType::kNf4Double) == kBlocks * kBlock);

// Packs a block's numbers, of which there are `count`; behind them are zeros.
template <typename NumberAt>
WT_FUNCTION void PackCodes(int count, float scale, NumberAt at, uint8_t* codes) {
  const auto code = [&](int i) { return i < count && scale > 0 ? Code(at(i) / scale) : kZero; };
  for (int i = 0; i < kBlock; i += 2) codes[i / 2] = static_cast<uint8_t>(code(i) << 4 | code(i + 1));
}
WT_FUNCTION int CodeAt(const uint8_t* codes, int i) {
  return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
}

}  // namespace windtunnel::nf4
