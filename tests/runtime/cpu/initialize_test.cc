#include "runtime/cpu/initialize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::Tensor;
using Distribution = InitializeParameter::Distribution;

constexpr int64_t kElements = 100'003;

Tensor Initialize(Distribution distribution, double scale, uint64_t stream, uint64_t seed) {
  Tensor x(kElements);
  const InitializeParameter op{distribution, kElements, scale, stream};
  EXPECT_EQ(Launch(op, {}, {x.ref()}, KernelContext{.seed = seed}), "");
  return x;
}

struct Moments {
  double mean = 0, variance = 0, smallest = 0, largest = 0;
};
Moments MomentsOf(const std::vector<float>& x) {
  Moments m;
  const double n = static_cast<double>(x.size());
  for (float value : x) m.mean += value / n;
  for (float value : x) m.variance += (value - m.mean) * (value - m.mean) / n;
  m.smallest = *std::min_element(x.begin(), x.end());
  m.largest = *std::max_element(x.begin(), x.end());
  return m;
}

// Bounds of five standard deviations of the estimate: 5 sigma / sqrt(n) = 0.016 sigma, 5 sqrt(2 / n) = 2.2 %.
TEST(InitializeKernel, NormalHasItsMomentsAndItsTailsEndAtSix) {
  const Moments m = MomentsOf(Initialize(Distribution::kNormal, 0.02, 1, 0));
  EXPECT_NEAR(m.mean, 0.0, 0.016 * 0.02);
  EXPECT_NEAR(m.variance, 0.02 * 0.02, 0.022 * 0.02 * 0.02);
  EXPECT_LT(m.largest, 6 * 0.02);
  EXPECT_GT(m.largest, 3.5 * 0.02);
  EXPECT_GT(m.smallest, -6 * 0.02);
}

TEST(InitializeKernel, UniformFillsItsInterval) {
  const Moments m = MomentsOf(Initialize(Distribution::kUniform, 0.5, 1, 0));
  EXPECT_NEAR(m.mean, 0.0, 0.016 * 0.29);
  EXPECT_NEAR(m.variance, 0.25 / 3, 0.015 * 0.25 / 3);
  EXPECT_LE(m.largest, 0.5);
  EXPECT_GT(m.largest, 0.4999);
  EXPECT_LT(m.smallest, -0.4999);
}

TEST(InitializeKernel, AnyElementCanBeComputedOnItsOwn) {
  for (Distribution distribution :
       {Distribution::kNormal, Distribution::kUniform, Distribution::kOnes, Distribution::kZeros}) {
    const Tensor x = Initialize(distribution, 0.1, 7, 42);
    for (int64_t i : {int64_t{0}, int64_t{1}, int64_t{31}, kElements / 2, kElements - 1}) {
      Tensor one(1);
      const InitializeParameter op{distribution, 1, 0.1, 7, {{.first = i, .length = 1}}};
      EXPECT_EQ(Launch(op, {}, {one.ref()}, KernelContext{.seed = 42}), "");
      EXPECT_EQ(one[0], x[i]);
    }
  }
}

TEST(InitializeKernel, SeedsAndStreamsDiffer) {
  const Tensor x = Initialize(Distribution::kNormal, 1.0, 1, 0);
  EXPECT_EQ(x, Initialize(Distribution::kNormal, 1.0, 1, 0));
  EXPECT_NE(x, Initialize(Distribution::kNormal, 1.0, 2, 0));
  EXPECT_NE(x, Initialize(Distribution::kNormal, 1.0, 1, 1));
}

// The bits themselves: a change of the mapping changes every trained model.
TEST(InitializeKernel, GivesTheSameBitsOnEveryMachine) {
  const Tensor normal = Initialize(Distribution::kNormal, 0.02, 3, 5),
               uniform = Initialize(Distribution::kUniform, 1.0, 3, 5);
  EXPECT_EQ(normal[0], -0.0131118773f);
  EXPECT_EQ(normal[12'345], -0.0109634399f);
  EXPECT_EQ(uniform[0], -0.2264947f);
  EXPECT_EQ(uniform[12'345], -0.587301552f);
}

}  // namespace
}  // namespace windtunnel
