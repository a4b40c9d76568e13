// Conversions of the 16-bit types, against their definitions in double precision.
#include "runtime/cpu/element.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace windtunnel::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Format {
  int mantissa_bits;      // without the leading one
  int smallest_exponent;  // of a normal number
  double largest;
};
constexpr Format kBFloat16{7, -126, 0x1.FEp127}, kFloat16{10, -14, 65'504.0};

// The number of the format that is nearest to x, ties to even.
double Nearest(const Format& format, double x) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), format.smallest_exponent);
  const double unit = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::fabs(rounded) > format.largest ? std::copysign(HUGE_VAL, x) : rounded;
}

// The number that the 16 bits stand for.
double Meaning(const Format& format, uint16_t bits) {
  const int exponent_field = (bits & 0x7fff) >> format.mantissa_bits;
  const double fraction = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = std::max(exponent_field, 1) - 1 + format.smallest_exponent;
  const double leading = exponent_field == 0 ? 0.0 : std::ldexp(1.0, format.mantissa_bits);
  const double magnitude = std::ldexp(leading + fraction, exponent - format.mantissa_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <typename T>
void ExpectEveryFiniteNumberToSurvive(const Format& format) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T x = static_cast<T>(bits);
    const double meaning = Meaning(format, static_cast<uint16_t>(bits));
    if (std::fabs(meaning) > format.largest) continue;
    ASSERT_EQ(ToFloat(x), meaning) << bits;
    ASSERT_EQ(FromFloat<T>(ToFloat(x)), x) << bits;
  }
}

TEST(Element, EveryNumberOfSixteenBitsSurvivesTheWayThroughFp32) {
  ExpectEveryFiniteNumberToSurvive<BFloat16>(kBFloat16);
  ExpectEveryFiniteNumberToSurvive<Float16>(kFloat16);
}

template <typename T>
void ExpectNearest(const Format& format) {
  const RandomStream random(/*seed=*/1, /*stream=*/0);
  for (uint64_t i = 0; i < 1'000'000; ++i) {
    const float any = std::bit_cast<float>(static_cast<uint32_t>(random.At(i)));
    if (any == 0.0f || !std::isfinite(any)) continue;
    // The number as drawn, and scaled to where fp16 has its numbers.
    const float scaled = std::ldexp(any, -std::ilogb(any) + static_cast<int>(i % 44) - 26);
    for (float x : {any, scaled}) ASSERT_EQ(ToFloat(FromFloat<T>(x)), Nearest(format, x)) << x;
  }
}

TEST(Element, RoundsToNearest) {
  ExpectNearest<BFloat16>(kBFloat16);
  ExpectNearest<Float16>(kFloat16);
}

TEST(Element, RoundsTiesToEven) {
  EXPECT_EQ(ToFloat(FromFloat<BFloat16>(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(ToFloat(FromFloat<BFloat16>(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_EQ(ToFloat(FromFloat<Float16>(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(ToFloat(FromFloat<Float16>(3 * 0x1p-25f)), 0x1p-23f);  // between two subnormals
}

TEST(Element, OverflowsToInfinityAndKeepsNan) {
  EXPECT_EQ(ToFloat(FromFloat<BFloat16>(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_EQ(ToFloat(FromFloat<Float16>(-65'520.0f)), -kInfinity);
  EXPECT_EQ(ToFloat(FromFloat<Float16>(65'519.0f)), 65'504.0f);
  for (float nan : {std::nanf(""), -std::nanf("1"), std::bit_cast<float>(0x7f800001u)}) {
    EXPECT_TRUE(std::isnan(ToFloat(FromFloat<BFloat16>(nan))));
    EXPECT_TRUE(std::isnan(ToFloat(FromFloat<Float16>(nan))));
  }
}

}  // namespace
}  // namespace windtunnel::cpu
