// Experts that take and return latents (model.experts.latent): gradients are those of the loss, every kind of
// parallelism trains to one device's losses and weights, and peaks are exact to the byte.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/loss_gradients.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;

// Four experts of width 12, two per token, each with room for all tokens, between layers of width 32.
Scenario Latent(Scenario s, int64_t expert_ranks) {
  s.name += "-latent";
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 4, .latent = 12};
  s.parallel.expert.size = expert_ranks;
  s.parallel.data.bucket_cap_mb = 0.02;  // several buckets
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}
Scenario BesideOne(Scenario s) {
  s.model.experts->shared_ffn = 48;
  return s;
}
Scenario WithWholeExperts(Scenario s) {
  s.parallel.expert.tensor = 1;
  return s;
}

Scenario OnTheHost(Scenario s) {
  s.activation_offload = true;
  return s;
}

class LatentExpertParity : public testing::TestWithParam<ParityCase> {};

TEST_P(LatentExpertParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(LatentExpertParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, LatentExpertParity,
    testing::Values(
        ParityCase{"Ddp", Clipped(Kind(Latent(TinyLlama(2), 1), kDdp))},
        ParityCase{"Shared", Clipped(Latent(TinyGpt(2), 2))},
        ParityCase{"TwoByTwo", BesideOne(Latent(TinyLlama(4), 2))},
        ParityCase{"Zero1", Clipped(Kind(Latent(TinyLlama(2), 1), kZero1))},
        ParityCase{"Zero3", Kind(Latent(TinyLlama(2), 1), kZero3)},
        ParityCase{"Fsdp", Clipped(Kind(BesideOne(Latent(TinyLlama(2), 1)), kFsdp))},
        ParityCase{"Tensor", Clipped(Tensor(BesideOne(Latent(TinyLlama(), 1)), false))},
        ParityCase{"TensorSequence", Clipped(Tensor(BesideOne(Latent(TinyLlama(), 1)), true))},
        ParityCase{"TensorSharing", Tensor(Latent(TinyLlama(2), 2), false)},
        ParityCase{"TensorSequenceSharing", Clipped(Tensor(BesideOne(Latent(TinyLlama(2), 2)), true))},
        ParityCase{"TensorRanksHaveExperts", WithWholeExperts(Tensor(Latent(TinyLlama(2), 4), true))},
        ParityCase{"Overlapped", Overlapped(Tensor(BesideOne(Latent(TinyLlama(2), 2)), true))},
        ParityCase{"Recomputed", Recomputed(BesideOne(Latent(TinyLlama(2), 2)), Recompute::kFull)},
        ParityCase{"ExpertsAgain", MadeAgain(Latent(TinyLlama(2), 2), {RecomputeModule::kMoe})},
        ParityCase{"NormsAgainTensor",
                   MadeAgain(Tensor(BesideOne(Latent(TinyLlama(2), 2)), true),
                             {RecomputeModule::kLayerNorm, RecomputeModule::kMoeActivation})},
        ParityCase{"ActivationsOnTheHost", OnTheHost(BesideOne(Latent(TinyLlama(2), 2)))},
        ParityCase{"ZeroBubble", Staged(BesideOne(Latent(TinyLlama(2), 2)), "zb_h1")},
        ParityCase{"Adapted", Adapted(Latent(TinyLlama(2), 1))}),
    NameOf);

TEST(LatentExperts, GradientsAreThoseOfTheLoss) {
  for (const Scenario& s : {Latent(TinyLlama(), 1), BesideOne(Latent(TinyGpt(), 1))})
    ExpectGradientsOfTheLoss(s);
}

TEST(LatentExperts, TrainInSixteenBits) {
  for (const Scenario& s : {Kind(Latent(TinyLlama(2), 1), kFsdp), Tensor(Latent(TinyLlama(2), 2), true)})
    ExpectTrainsAlongOneDevice(s, 0.02);
}

TEST(LatentExperts, PeaksAreExact) {
  for (const Scenario& s :
       {Latent(TinyLlama(2), 2), Kind(BesideOne(Latent(TinyLlama(2), 1)), kFsdp),
        Tensor(BesideOne(Latent(TinyLlama(2), 2)), true), Tensor(Latent(TinyLlama(), 1), true),
        Recomputed(Latent(TinyLlama(2), 2), Recompute::kFull)}) {
    SCOPED_TRACE(s.name);
    ExpectExactPeaks(*CompilePlan(s));
  }
}

// By hand: of each layer's experts two matrices of 12 x 128 (Gpt), and the projections to latents and from
// them; a token sees two of four experts.
TEST(LatentExperts, CountTheirParametersAndFlops) {
  const ModelStatistics with = CompilePlan(Latent(TinyGpt(), 1))->model;
  Scenario wide = Latent(TinyGpt(), 1);
  wide.model.experts->latent = 0;
  const ModelStatistics without = CompilePlan(wide)->model;
  const int64_t layers = wide.model.layers, h = wide.model.hidden, ffn = wide.model.ffn;
  EXPECT_EQ(without.parameters - with.parameters, layers * (4 * 2 * (h - 12) * ffn - 2 * h * 12));
  const auto flops = [&](int64_t width) { return 6.0 * static_cast<double>(layers * 2 * 2 * width * ffn); };
  EXPECT_DOUBLE_EQ(without.flops_per_token.count() - with.flops_per_token.count(),
                   flops(h) - flops(12) - 6.0 * static_cast<double>(layers * 2 * h * 12));
}

}  // namespace
}  // namespace windtunnel
