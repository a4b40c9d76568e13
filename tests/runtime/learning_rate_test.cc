#include "runtime/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace windtunnel {
namespace {

std::vector<double> Factors(const LearningRateScheduler& scheduler, int64_t steps) {
  std::vector<double> factors;
  for (int64_t step = 0; step < steps; ++step)
    factors.push_back(LearningRateFactor(scheduler, /*run_steps=*/10, step));
  return factors;
}

void ExpectNear(const std::vector<double>& factors, const std::vector<double>& expected) {
  ASSERT_EQ(factors.size(), expected.size());
  for (size_t i = 0; i < factors.size(); ++i) EXPECT_NEAR(factors[i], expected[i], 1e-12) << "step " << i;
}

TEST(LearningRate, IsConstantUnlessScheduled) { ExpectNear(Factors({}, 4), {1, 1, 1, 1}); }

TEST(LearningRate, RisesLinearlyInTheWarmUp) {
  ExpectNear(Factors({.warmup_steps = 4}, 6), {0.25, 0.5, 0.75, 1, 1, 1});
}

// To the end of the run, which has ten steps. The last one still has a rate.
TEST(LearningRate, FallsOverTheStepsAfterTheWarmUp) {
  ExpectNear(Factors({.warmup_steps = 2, .decay = LearningRateDecay::kLinear}, 12),
             {0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0, 0});
}

TEST(LearningRate, StaysUntilTheLastStepsAndEndsAtItsLeast) {
  ExpectNear(
      Factors({.decay = LearningRateDecay::kLinear, .total_steps = 6, .decay_steps = 4, .min_lr_factor = 0.2},
              8),
      {1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
}

TEST(LearningRate, FallsAsACosineOrASquareRoot) {
  const LearningRateScheduler cosine{.decay = LearningRateDecay::kCosine, .total_steps = 4};
  ExpectNear(Factors(cosine, 5), {1, (1 + std::sqrt(0.5)) / 2, 0.5, (1 - std::sqrt(0.5)) / 2, 0});
  const LearningRateScheduler root{.decay = LearningRateDecay::kSqrt, .total_steps = 4};
  ExpectNear(Factors(root, 5), {1, 0.5, 1 - std::sqrt(0.5), 1 - std::sqrt(0.75), 0});
}

TEST(LearningRate, FallsInStepsAsTorchsStepLr) {
  ExpectNear(Factors({.warmup_steps = 1, .decay = LearningRateDecay::kStep, .step_size = 2, .gamma = 0.5}, 6),
             {1, 1, 1, 0.5, 0.5, 0.25});
  ExpectNear(Factors({.decay = LearningRateDecay::kStep, .min_lr_factor = 0.05}, 3), {1, 0.1, 0.05});
}

}  // namespace
}  // namespace windtunnel
