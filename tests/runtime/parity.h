// Expects that a parallel run computes what one device computes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "tests/runtime/in_process_ranks.h"

namespace windtunnel {

inline constexpr int kParitySteps = 20;
inline constexpr double kParityTolerance = 1e-5;
// Of AdamW, whose first updates are else nearly as large for gradients that are rounding errors as for any
// others: with torch's default, 1e-8, losses drift apart by 1.5e-5 in twenty steps on some CPUs, with this by
// 4e-7.
inline constexpr double kParityEps = 1e-5;

struct ParityCase {
  const char* name;
  Scenario scenario;
};
inline void PrintTo(const ParityCase& c, std::ostream* out) { *out << c.name; }
inline std::string NameOf(const testing::TestParamInfo<ParityCase>& info) { return info.param.name; }

inline Scenario With(Scenario s, const std::function<void(Scenario&)>& change) {
  change(s);
  return s;
}

// The scenario on one device without parallelism, recomputation, a loss in chunks and activations in the host's
// memory, with the batch of all its ranks.
inline Scenario OnOneDevice(Scenario s) {
  s.batch.micro *= s.parallel.data.size;
  s.parallel = {};
  s.cluster.devices_per_node = 1;
  s.recompute = Recompute::kNone;
  s.cross_entropy_chunks = 1;
  s.activation_offload = false;
  s.framework = Framework::kWindtunnel;
  return s;
}

// |a - b| / |b|, Euclidean.
inline double NormWiseDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

inline void ExpectLossParity(Scenario s) {
  s.optimizer = {.kind = OptimizerKind::kAdamW,
                 .lr = 1e-3,
                 .eps = kParityEps,
                 .weight_decay = 0.01,
                 .clip_norm = s.optimizer.clip_norm};
  const auto plan = CompilePlan(s), alone = CompilePlan(OnOneDevice(s));
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(alone) << alone.error().message;
  const Trained ranks = Train(*plan, kParitySteps), one = Train(*alone, kParitySteps);
  for (int step = 0; step < kParitySteps; ++step) {
    EXPECT_NEAR(ranks.losses[step], one.losses[step], kParityTolerance * one.losses[step]) << "step " << step;
    EXPECT_NEAR(ranks.gradient_norms[step], one.gradient_norms[step], 1e-3 * one.gradient_norms[step])
        << "step " << step;
  }
}

// In bf16, sums over ranks or blocks are rounded where one device's are not. So losses agree only to bf16's 8
// bits, and training still makes progress.
inline void ExpectTrainsAlongOneDevice(Scenario s, double tolerance) {
  s.precision = {.param = Precision::kBf16, .compute = Precision::kBf16, .reduce = Precision::kFp32};
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3, .weight_decay = 0.01, .clip_norm = 1.0};
  const auto plan = CompilePlan(s), alone = CompilePlan(OnOneDevice(s));
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(alone) << alone.error().message;
  const Trained ranks = Train(*plan, kParitySteps), one = Train(*alone, kParitySteps);
  for (int step = 0; step < kParitySteps; ++step)
    EXPECT_NEAR(ranks.losses[step], one.losses[step], tolerance * one.losses[step]) << "step " << step;
  EXPECT_LT(ranks.losses.back(), ranks.losses.front());
}

inline void ExpectWeightParity(Scenario s) {
  // At five times this learning rate, twenty steps would amplify rounding differences in the biases, which
  // start at zero, to 1e-4.
  s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.02, .clip_norm = s.optimizer.clip_norm};
  const auto plan = CompilePlan(s), alone = CompilePlan(OnOneDevice(s));
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(alone) << alone.error().message;
  const Trained ranks = Train(*plan, kParitySteps), one = Train(*alone, kParitySteps);
  ASSERT_EQ(ranks.weights.size(), one.weights.size());
  for (size_t i = 0; i < ranks.weights.size(); ++i) {
    EXPECT_LT(NormWiseDifference(ranks.weights[i], one.weights[i]), kParityTolerance)
        << "parameter " << i << ", as " << alone->roles[0].parameters[i].name;
  }
}

}  // namespace windtunnel
