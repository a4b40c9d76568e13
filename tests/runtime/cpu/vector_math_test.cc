// The error bounds that runtime/cpu/vector_math.h states, on this machine's version of the code.
#include "runtime/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace windtunnel::cpu {
namespace {

WT_CPU_KERNEL void ExpAll(int64_t n, const float* in, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = Exp(in[i]);
}
WT_CPU_KERNEL void SigmoidAll(int64_t n, const float* in, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = Sigmoid(in[i]);
}
WT_CPU_KERNEL void NormalAll(int64_t n, const float* in, float* cdf, float* density) {
  for (int64_t i = 0; i < n; ++i) {
    const NormalDistribution normal = Normal(in[i]);
    cdf[i] = normal.cdf;
    density[i] = normal.density;
  }
}

constexpr int64_t kPoints = 1'000'003;

std::vector<float> Grid(double first, double last) {
  std::vector<float> points(kPoints);
  for (int64_t i = 0; i < kPoints; ++i) {
    points[i] = static_cast<float>(first + (last - first) * static_cast<double>(i) / (kPoints - 1));
  }
  return points;
}

double RelativeError(double got, double exact) { return std::fabs(got / exact - 1.0); }

TEST(VectorMath, ExpIsWithinItsBound) {
  const std::vector<float> x = Grid(-87.29, 88.29);
  std::vector<float> y(x.size());
  ExpAll(kPoints, x.data(), y.data());
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, RelativeError(y[i], std::exp(double{x[i]})));
  EXPECT_LT(worst, 1.5e-7);
}

TEST(VectorMath, ExpSaturatesAndPassesNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-kInfinity, -1e30f,    -88.0f,         0.0f,
                                1e30f,      kInfinity, std::nanf("1"), -std::nanf("")};
  std::vector<float> y(x.size());
  ExpAll(static_cast<int64_t>(x.size()), x.data(), y.data());
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_NEAR(std::log(y[4]), 88.3, 1e-3);
  EXPECT_EQ(y[5], y[4]);
  EXPECT_TRUE(std::isnan(y[6]));
  EXPECT_TRUE(std::isnan(y[7]));
}

TEST(VectorMath, SigmoidIsWithinItsBound) {
  const std::vector<float> x = Grid(-87.0, 87.0);
  std::vector<float> y(x.size());
  SigmoidAll(kPoints, x.data(), y.data());
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, RelativeError(y[i], 1.0 / (1.0 + std::exp(-double{x[i]}))));
  EXPECT_LT(worst, 3e-7);
}

TEST(VectorMath, NormalIsWithinItsBoundAlsoInTheTail) {
  const std::vector<float> x = Grid(-13.0, 13.0);
  std::vector<float> cdf(x.size()), density(x.size());
  NormalAll(kPoints, x.data(), cdf.data(), density.data());
  double worst_cdf = 0.0, worst_density = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i], argument_error = 6e-8 * at * at / 2;
    const double exact_cdf = std::erfc(-at / std::numbers::sqrt2) / 2;
    const double exact_density = std::exp(-at * at / 2) / std::sqrt(2 * std::numbers::pi);
    worst_cdf = std::max(worst_cdf, RelativeError(cdf[i], exact_cdf) - argument_error);
    worst_density = std::max(worst_density, RelativeError(density[i], exact_density) - argument_error);
  }
  EXPECT_LT(worst_cdf, 5e-7);
  EXPECT_LT(worst_density, 2e-7);
}

TEST(VectorMath, MaximumFindsTheLargestWhereverItIs) {
  for (int64_t n : {1, 5, 16, 33}) {
    for (int64_t at = 0; at < n; ++at) {
      std::vector<float> x(static_cast<size_t>(n), -3.0f);
      x[at] = -1.0f;
      EXPECT_EQ(Maximum(n, x.data()), -1.0f);
    }
  }
}

}  // namespace
}  // namespace windtunnel::cpu
