#include "runtime/cpu/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/dynamic8.h"
#include "runtime/nf4.h"
#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomValues;
using test::Tensor;

std::vector<float> RoundTrip(DType dtype, const std::vector<float>& numbers) {
  std::vector<uint8_t> packed(
      static_cast<size_t>(ElementsFor(static_cast<int64_t>(numbers.size()), dtype) * SizeOf(dtype).count()));
  cpu::PackNumbers(dtype, numbers, packed.data());
  std::vector<float> unpacked(numbers.size());
  cpu::UnpackNumbers(dtype, packed.data(), unpacked);
  return unpacked;
}

// The 16 values times a scale are kept as they are.
TEST(Nf4, KeepsItsOwnValues) {
  std::vector<float> numbers;
  for (int i = 0; i < 128; ++i) numbers.push_back(nf4::Value(i % 16) * (i < 64 ? 0.5F : 3.0F));
  EXPECT_EQ(RoundTrip(DType::kNf4, numbers), numbers);
}

TEST(Nf4, TakesTheNearestValue) {
  std::vector<float> numbers = {1.0F};
  for (int i = 0; i < 63; ++i) numbers.push_back(-1.0F + static_cast<float>(i) / 31.0F);
  const std::vector<float> packed = RoundTrip(DType::kNf4, numbers);
  for (size_t i = 0; i < numbers.size(); ++i) {
    float least = 2;
    for (int code = 0; code < 16; ++code) least = std::min(least, std::fabs(nf4::Value(code) - numbers[i]));
    EXPECT_NEAR(std::fabs(packed[i] - numbers[i]), least, 1e-6) << numbers[i];
  }
}

TEST(Nf4, KeepsZeros) {
  for (const DType dtype : {DType::kNf4, DType::kNf4Double})
    EXPECT_EQ(RoundTrip(dtype, std::vector<float>(100, 0.0F)), std::vector<float>(100, 0.0F));
}

// A byte has two codes, the first in its upper half; the scale is behind the block's 32 bytes.
TEST(Nf4, HasTheLayoutThatIsDocumented) {
  std::vector<float> numbers(64, 0.0F);
  numbers[0] = -2;
  numbers[3] = 2;
  std::vector<uint8_t> packed(36);
  cpu::PackNumbers(DType::kNf4, numbers, packed.data());
  EXPECT_EQ(packed[0], 0x07);
  EXPECT_EQ(packed[1], 0x7F);
  EXPECT_EQ(packed[2], 0x77);
  float scale;
  memcpy(&scale, &packed[32], sizeof scale);
  EXPECT_EQ(scale, 2.0F);
}

// Blocks whose scales differ by up to 100 times: each scale is less by at most 1/255 of the largest.
TEST(Nf4, RoundsScalesToEightBits) {
  std::vector<float> numbers;
  for (int i = 0; i < 40000; ++i)
    numbers.push_back((i % 64 == 0 ? 1.0F : 0.0F) * static_cast<float>(1 + i / 64 % 100));
  const std::vector<float> packed = RoundTrip(DType::kNf4Double, numbers);
  for (size_t i = 0; i < numbers.size(); i += 64) {
    EXPECT_LE(packed[i], numbers[i] + 0.005);
    EXPECT_GE(packed[i], numbers[i] - 100.0 / 255);
  }
}

// Whatever the scales are: a block whose largest number is a few 255ths of the group's, too.
TEST(Nf4, IsTheSamePackedAgainWithLittleScales) {
  for (int i = 1; i < 2000; ++i) {
    std::vector<float> numbers(128, 0.0F);
    numbers[0] = 1.0F;
    numbers[64] = static_cast<float>(i) / 2000 * 0.02F;
    numbers[65] = -numbers[64] / 3;
    const std::vector<float> once = RoundTrip(DType::kNf4Double, numbers);
    ASSERT_EQ(RoundTrip(DType::kNf4Double, once), once) << numbers[64];
  }
}

TEST(Nf4, IsTheSamePackedAgain) {
  for (const DType dtype : {DType::kNf4, DType::kNf4Double}) {
    for (const int64_t n : {int64_t{1}, int64_t{63}, int64_t{200}, int64_t{16384}, int64_t{16500}}) {
      const Tensor numbers = RandomValues(static_cast<uint64_t>(n), n);
      const std::vector<float> once = RoundTrip(dtype, numbers);
      EXPECT_EQ(RoundTrip(dtype, once), once) << n;
    }
  }
}

// Runs begin with an element of their own each.
TEST(DequantizeKernel, UnpacksRunsOfAnyLength) {
  for (const DType dtype : {DType::kNf4, DType::kNf4Double}) {
    const int64_t run = 100, numbers = 250, elements = ElementsFor(run, dtype);
    const Tensor values = RandomValues(3, numbers);
    std::vector<uint8_t> packed(static_cast<size_t>(3 * elements * SizeOf(dtype).count()));
    Tensor expected(numbers);
    for (int64_t i = 0; i < 3; ++i) {
      const auto of_run = std::span(values).subspan(static_cast<size_t>(i * run),
                                                    static_cast<size_t>(std::min(run, numbers - i * run)));
      uint8_t* at = packed.data() + i * elements * SizeOf(dtype).count();
      cpu::PackNumbers(dtype, of_run, at);
      cpu::UnpackNumbers(dtype, at, std::span(expected).subspan(static_cast<size_t>(i * run), of_run.size()));
    }
    Tensor got(numbers);
    const TensorRef from{packed.data(), 3 * elements};
    ASSERT_EQ(Launch(Dequantize{numbers, run, dtype}, {from}, {got.ref()}), "");
    EXPECT_EQ(got, expected);
  }
}

// The magnitudes of bitsandbytes' create_dynamic_map: the middles of equal parts of seven decades, but for the
// last one.
std::vector<double> DynamicMap(bool is_signed) {
  std::vector<double> magnitudes = {0};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (is_signed ? 1 : 2) << decade;
    for (int part = 0; part < parts; ++part)
      magnitudes.push_back((0.1 + 0.9 * (part + 0.5) / parts) * std::pow(10.0, decade - 6));
  }
  if (is_signed) magnitudes.back() = 1;
  else magnitudes.push_back(1);
  return magnitudes;
}

constexpr DType kDynamic[] = {DType::kDynamic8, DType::kDynamic8Unsigned};

TEST(Dynamic8, HasThePublishedValues) {
  const std::vector<double> with_sign = DynamicMap(true), without = DynamicMap(false);
  ASSERT_EQ(with_sign.size(), 128u);
  ASSERT_EQ(without.size(), 256u);
  EXPECT_EQ(dynamic8::ValueOf<true>(0), 0.0F);
  EXPECT_EQ(dynamic8::ValueOf<false>(0), 0.0F);
  for (int code = 1; code < 128; ++code) {
    EXPECT_NEAR(dynamic8::ValueOf<true>(static_cast<uint8_t>(code)) / with_sign[code], 1, 1e-6) << code;
    EXPECT_EQ(dynamic8::ValueOf<true>(static_cast<uint8_t>(-code)),
              -dynamic8::ValueOf<true>(static_cast<uint8_t>(code)));
  }
  for (int code = 1; code < 256; ++code)
    EXPECT_NEAR(dynamic8::ValueOf<false>(static_cast<uint8_t>(code)) / without[code], 1, 1e-6) << code;
}

TEST(Dynamic8, KeepsItsOwnValues) {
  std::vector<float> with_sign, without;
  for (int code = -127; code < 128; ++code)
    with_sign.push_back(3.7F * dynamic8::ValueOf<true>(static_cast<uint8_t>(code)));
  for (int code = 0; code < 256; ++code)
    without.push_back(3.7F * dynamic8::ValueOf<false>(static_cast<uint8_t>(code)));
  EXPECT_EQ(RoundTrip(DType::kDynamic8, with_sign), with_sign);
  EXPECT_EQ(RoundTrip(DType::kDynamic8Unsigned, without), without);
}

// So checkpoints can hold the numbers. The largest magnitude is kept, and others are off by half a part of
// their decade at the most, the largest numbers' by half a part of 128 or 64, the last part's by a whole one.
TEST(Dynamic8, GivesTheSameBytesAgain) {
  for (const DType dtype : kDynamic) {
    const bool is_signed = dtype == DType::kDynamic8;
    std::vector<float> numbers;
    for (const double x : RandomValues(5, 1000))
      numbers.push_back(static_cast<float>(is_signed ? x * std::fabs(x) : x * x) * 1e-3F);
    const std::vector<float> once = RoundTrip(dtype, numbers);
    EXPECT_EQ(RoundTrip(dtype, once), once);
    for (size_t first = 0; first < numbers.size(); first += 256) {
      const size_t end = std::min<size_t>(first + 256, numbers.size());
      float most = 0;
      for (size_t i = first; i < end; ++i) most = std::max(most, std::fabs(numbers[i]));
      const float half_part = 0.45F / (is_signed ? 64 : 128) * most;
      for (size_t i = first; i < end; ++i) {
        const float allowed = std::fabs(numbers[i]) > 0.98F * most ? 2 * half_part : half_part;
        EXPECT_NEAR(once[i], numbers[i], 1.001F * allowed);
        if (std::fabs(numbers[i]) == most) {
          EXPECT_EQ(once[i], numbers[i]);
        }
      }
    }
  }
}

TEST(Dynamic8, ZeroBytesAreZerosAndZerosAreZeroBytes) {
  for (const DType dtype : kDynamic) {
    std::vector<uint8_t> packed(2 * 260, 0xff);
    const std::vector<float> zeros(300, 0.0F);
    cpu::PackNumbers(dtype, zeros, packed.data());
    EXPECT_EQ(packed, std::vector<uint8_t>(2 * 260, 0));
    EXPECT_EQ(RoundTrip(dtype, zeros), zeros);
  }
}

// As in fp32, where a NaN stays one, nothing hides that a step went wrong: the whole block becomes NaN.
TEST(Dynamic8, ANumberThatIsNotFiniteSpoilsItsBlock) {
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> numbers(300, 1.0F);
    numbers[3] = bad;
    const std::vector<float> again = RoundTrip(DType::kDynamic8, numbers);
    for (int i = 0; i < 256; ++i) EXPECT_TRUE(std::isnan(again[i])) << i;
    EXPECT_EQ(again[256], 1.0F);
  }
}

}  // namespace
}  // namespace windtunnel
