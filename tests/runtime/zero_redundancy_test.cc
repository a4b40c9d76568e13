// Training with PyTorch's ZeroRedundancyOptimizer is DDP's to the bit; and peaks are predicted to the byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

constexpr int kSteps = 8;

Scenario Shared(Scenario s, bool in_buckets = false) {
  s.optimizer.zero_redundancy = true;
  s.optimizer.parameters_as_bucket_view = in_buckets;
  return s;
}

Scenario OfType(Scenario s, Precision type) {
  s.precision.param = s.precision.compute = type;
  if (type != Precision::kFp16) return s;
  // Some steps overflow and are skipped.
  s.precision.loss_scale = LossScale::kDynamic;
  s.precision.init_scale = 4194304;
  s.precision.growth_interval = 2;
  return s;
}

Scenario WithOptimizer(Scenario s, OptimizerSpec spec) {
  spec.zero_redundancy = s.optimizer.zero_redundancy;
  spec.parameters_as_bucket_view = s.optimizer.parameters_as_bucket_view;
  s.optimizer = spec;
  return s;
}

Scenario Accumulating(Scenario s) {
  s.batch.accumulate = 3;
  return s;
}
Scenario FindingUnused(Scenario s) {
  s.parallel.data.find_unused_parameters = true;
  return s;
}

std::vector<ParityCase> Cases() {
  const OptimizerSpec sgd{.kind = OptimizerKind::kSgd, .lr = 0.02, .momentum = 0.9};
  const OptimizerSpec muon{.kind = OptimizerKind::kMuon, .lr = 1e-3, .weight_decay = 0.1, .momentum = 0.95};
  const OptimizerSpec clipped{.lr = 1e-3, .weight_decay = 0.01, .clip_norm = 0.5};
  return {{"Gpt", Shared(TinyGpt(2))},
          {"GptInBuckets", Shared(TinyGpt(2), true)},
          {"LlamaOf3", Shared(TinyLlama(3))},
          {"MlpWithIdleRanks", Shared(TinyMlp(4))},
          {"MlpWithIdleRanksInBuckets", Shared(TinyMlp(4), true)},
          {"Clipped", WithOptimizer(Shared(TinyGpt(2)), clipped)},
          {"Sgd", WithOptimizer(Shared(TinyGpt(2), true), sgd)},
          {"Muon", WithOptimizer(Shared(TinyGpt(2)), muon)},
          {"MuonInBuckets", WithOptimizer(Shared(TinyLlama(2), true), muon)},
          {"Accumulating", Accumulating(Shared(TinyGpt(2)))},
          {"FindingUnused", FindingUnused(Shared(TinyGpt(2), true))},
          {"Adapted", Shared(Adapted(TinyLlama(2)))},
          {"AdaptedInBuckets", Shared(Adapted(TinyLlama(2)), true)},
          {"Bf16", OfType(Shared(TinyGpt(2)), Precision::kBf16)},
          {"Bf16InBuckets", OfType(Shared(TinyLlama(3), true), Precision::kBf16)},
          {"Fp16", OfType(WithOptimizer(Shared(TinyGpt(2)), clipped), Precision::kFp16)}};
}

class ZeroRedundancyParity : public testing::TestWithParam<ParityCase> {};
INSTANTIATE_TEST_SUITE_P(Of, ZeroRedundancyParity, testing::ValuesIn(Cases()), NameOf);

// Norms of steps that overflow are not numbers.
bool AreSame(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The same gradients, and the same updates, by other ranks.
TEST_P(ZeroRedundancyParity, LossesAndWeightsAreDdps) {
  Scenario ddp = GetParam().scenario;
  ddp.optimizer.zero_redundancy = false;
  const auto shared = CompilePlan(GetParam().scenario), plain = CompilePlan(ddp);
  ASSERT_TRUE(shared) << shared.error().message;
  const Trained ours = Train(*shared, kSteps), expected = Train(*plain, kSteps);
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(ours.losses, expected.losses);
  EXPECT_TRUE(std::ranges::equal(ours.gradient_norms, expected.gradient_norms, AreSame));
  EXPECT_EQ(ours.weights, expected.weights);
}

TEST_P(ZeroRedundancyParity, PeaksAreExact) { ExpectExactPeaks(*CompilePlan(GetParam().scenario)); }

}  // namespace
}  // namespace windtunnel
