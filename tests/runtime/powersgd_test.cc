// Training with compressed gradients. Where gradients have no more than `rank` directions, nothing is lost
// and losses are DDP's; where they have more, what one step loses comes with later ones.
#include <gtest/gtest.h>

#include <vector>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

constexpr int kSteps = 10;

Scenario Compressed(Scenario s, PowerSgdSpec spec) {
  s.parallel.data.powersgd = spec;
  return s;
}
Scenario Plain(Scenario s) {
  s.parallel.data.powersgd = std::nullopt;
  return s;
}

// A step has eight tokens, so that gradients of weights have eight directions. All matrices are compressed,
// to twice as many columns: with eight, those of the last step's gradient might hardly see one of this
// step's.
Scenario OfFewTokens(Scenario s) {
  s.model.hidden = 64;
  s.model.seq_len = 8 / s.parallel.data.size;
  s.batch.micro = 1;
  return Compressed(std::move(s), {.rank = 16, .min_compression_rate = 1});
}

// As AdamW's first updates do not depend on a gradient's size, rounding errors of zeros would count.
OptimizerSpec Sgd() { return {.kind = OptimizerKind::kSgd, .lr = 0.02}; }

std::vector<ParityCase> LosslessCases() {
  std::vector<ParityCase> cases = {
      {"Gpt", OfFewTokens(TinyGpt(2))},
      {"LlamaOf4", OfFewTokens(TinyLlama(4))},
      {"InManyBuckets",
       With(OfFewTokens(TinyGpt(2)), [](Scenario& s) { s.parallel.data.bucket_cap_mb = 0.02; })},
      {"InAView",
       With(OfFewTokens(TinyGpt(2)), [](Scenario& s) { s.parallel.data.gradient_as_bucket_view = true; })},
      {"FindingUnused",
       With(OfFewTokens(TinyGpt(2)), [](Scenario& s) { s.parallel.data.find_unused_parameters = true; })},
      {"BehindBackward", With(OfFewTokens(TinyGpt(2)), [](Scenario& s) { s.parallel.data.overlap = false; })},
      {"WithoutFeedback",
       With(OfFewTokens(TinyGpt(2)), [](Scenario& s) { s.parallel.data.powersgd->error_feedback = false; })},
      {"Accumulating", With(OfFewTokens(TinyGpt(2)),
                            [](Scenario& s) {
                              s.model.seq_len = 2;
                              s.batch.accumulate = 2;
                            })},
      {"Clipped", With(OfFewTokens(TinyGpt(2)), [](Scenario& s) { s.optimizer.clip_norm = 0.5; })}};
  for (ParityCase& c : cases) {
    const double clip = c.scenario.optimizer.clip_norm;
    c.scenario.optimizer = Sgd();
    c.scenario.optimizer.clip_norm = clip;
  }
  return cases;
}

class LosslessPowerSgd : public testing::TestWithParam<ParityCase> {};
INSTANTIATE_TEST_SUITE_P(Of, LosslessPowerSgd, testing::ValuesIn(LosslessCases()), NameOf);

TEST_P(LosslessPowerSgd, LossesAndWeightsAreDdps) {
  const auto plan = CompilePlan(GetParam().scenario), plain = CompilePlan(Plain(GetParam().scenario));
  ASSERT_TRUE(plan) << plan.error().message;
  const Trained ours = Train(*plan, kSteps), expected = Train(*plain, kSteps);
  ASSERT_FALSE(HasFailure());
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(ours.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(ours.gradient_norms[step], expected.gradient_norms[step],
                1e-4 * expected.gradient_norms[step])
        << "step " << step;
  }
  for (size_t i = 0; i < ours.weights.size(); ++i)
    EXPECT_LT(NormWiseDifference(ours.weights[i], expected.weights[i]), 1e-5) << "parameter " << i;
}

TEST_P(LosslessPowerSgd, PeaksAreExact) { ExpectExactPeaks(*CompilePlan(GetParam().scenario)); }

// The distance of the weights after `steps` small steps from those of whole gradients, relative to how far
// these came.
double Behind(const PowerSgdSpec& spec, int steps) {
  Scenario s = TinyGpt(2);
  s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 1e-4};
  const Trained whole = Train(*CompilePlan(s), steps), start = Train(*CompilePlan(s), 0);
  const Trained ours = Train(*CompilePlan(Compressed(s, spec)), steps);
  double distance = 0, way = 0;
  for (size_t i = 0; i < whole.weights.size(); ++i) {
    for (size_t j = 0; j < whole.weights[i].size(); ++j) {
      const double here = whole.weights[i][j];
      distance += (here - ours.weights[i][j]) * (here - ours.weights[i][j]);
      way += (here - start.weights[i][j]) * (here - start.weights[i][j]);
    }
  }
  return std::sqrt(distance / way);
}

// Of gradients with some 32 directions a step has one. With feedback, only what has not come yet is missing,
// which does not grow with the steps.
TEST(PowerSgd, WhatAStepLosesComesLater) {
  const double after_100 = Behind({.rank = 1}, 100), after_200 = Behind({.rank = 1}, 200);
  EXPECT_LT(after_200, 0.12);
  EXPECT_NEAR(after_200 / after_100, 0.5, 0.05);
  EXPECT_GT(Behind({.rank = 1, .error_feedback = false}, 200), 0.8);
}

TEST(PowerSgd, MoreColumnsLoseLess) {
  const double of_one = Behind({.rank = 1, .error_feedback = false}, 10);
  const double of_four = Behind({.rank = 4, .error_feedback = false}, 10);
  EXPECT_LT(of_four, 0.8 * of_one);
}

TEST(PowerSgd, BeginsWithItsStep) {
  Scenario s = TinyGpt(2);
  const Trained whole = Train(*CompilePlan(s), 8);
  const Trained ours = Train(*CompilePlan(Compressed(s, {.rank = 1, .start_step = 5})), 8);
  for (int step = 0; step < 6; ++step) EXPECT_EQ(ours.losses[step], whole.losses[step]) << "step " << step;
  EXPECT_NE(ours.losses[6], whole.losses[6]) << "behind the first compressed update";
}

// Each rank decompresses for itself.
TEST(PowerSgd, KeepsReplicasEqual) {
  const Plan plan = *CompilePlan(Compressed(TinyGpt(3), {.rank = 2}));
  const int64_t elements = plan.model.parameters;
  const Shared<float> weights(static_cast<size_t>(3 * elements));
  WithRanks(plan, [&](RankSession& session, Store&) -> Status {
    for (int step = 0; step < 6; ++step) WT_RETURN_IF_ERROR(session.Step());
    float* next = weights.data() + session.rank() * elements;
    for (const Parameter& parameter : session.executor().role().parameters) {
      WT_ASSIGN_OR_RETURN(const auto values,
                          session.executor().Values(Slice{parameter.values.buffer, 0, parameter.elements}));
      next = std::copy(values.begin(), values.end(), next);
    }
    return Ok();
  });
  for (int rank : {1, 2})
    EXPECT_TRUE(std::equal(weights.data(), weights.data() + elements, weights.data() + rank * elements))
        << rank;
}

TEST(PowerSgd, TrainsInBf16) {
  Scenario s = Compressed(TinyGpt(2), {.rank = 4});
  s.precision = {.param = Precision::kBf16, .compute = Precision::kBf16, .reduce = Precision::kBf16};
  s.optimizer.lr = 1e-3;
  const Plan plan = *CompilePlan(s);
  const Trained ours = Train(plan, 20);
  EXPECT_LT(ours.losses.back(), ours.losses.front());
  ExpectExactPeaks(plan);
}

}  // namespace
}  // namespace windtunnel
