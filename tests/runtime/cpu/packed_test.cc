#include "runtime/cpu/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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

}  // namespace
}  // namespace windtunnel
