// DataParallel, live: it gives the losses and weights of one device, and takes the memory that the simulator
// predicts.
#include <gtest/gtest.h>

#include <mutex>

#include "plan/plan.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

class DpParity : public testing::TestWithParam<ParityCase> {};
TEST_P(DpParity, LossesAreThoseOfOneDeviceUnderAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(DpParity, WeightsAreThoseOfOneDeviceUnderSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Scenarios, DpParity,
    testing::Values(
        ParityCase{"Gpt", Dp(TinyGpt(2))}, ParityCase{"GptThreeDevices", Dp(TinyGpt(3))},
        ParityCase{"Llama", Dp(TinyLlama(2))}, ParityCase{"Mlp", Dp(TinyMlp(2))},
        ParityCase{"MlpThreeDevices", Dp(TinyMlp(3))},
        ParityCase{"Accumulate", With(Dp(TinyGpt(2)), [](Scenario& s) { s.batch.accumulate = 2; })},
        ParityCase{"MlpAccumulate", With(Dp(TinyMlp(3)), [](Scenario& s) { s.batch.accumulate = 2; })},
        ParityCase{"TiedEmbeddings",
                   With(Dp(TinyGpt(2)), [](Scenario& s) { s.model.tie_embeddings = true; })},
        ParityCase{"Recompute", With(Dp(TinyGpt(2)), [](Scenario& s) { s.recompute = Recompute::kFull; })},
        ParityCase{"Clipped", With(Dp(TinyGpt(2)), [](Scenario& s) { s.optimizer.clip_norm = 0.5; })},
        ParityCase{"ClippedAccumulate", With(Dp(TinyGpt(2)),
                                             [](Scenario& s) {
                                               s.optimizer.clip_norm = 0.5;
                                               s.batch.accumulate = 2;
                                             })},
        // The head alone has 12.6 MB, so there are chunks of a single tensor, which are sent from where they
        // are.
        ParityCase{"LargeTensors",
                   With(WithLargeHead(Dp(TinyGpt(2))), [](Scenario& s) { s.batch.accumulate = 2; })}),
    NameOf);

struct MemoryCase {
  const char* name;
  Scenario scenario;
};
void PrintTo(const MemoryCase& c, std::ostream* out) { *out << c.name; }

class DpMemory : public testing::TestWithParam<MemoryCase> {};

TEST_P(DpMemory, PeaksArePredictedToTheByteInBothRoles) {
  for (AllocatorKind allocator : {AllocatorKind::kWindtunnel, AllocatorKind::kPytorch}) {
    Scenario s = GetParam().scenario;
    s.allocator = allocator;
    const auto plan = CompilePlan(s);
    ASSERT_TRUE(plan) << plan.error().message;
    ExpectExactPeaks(*plan);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, DpMemory,
    testing::Values(
        MemoryCase{"Gpt", Dp(TinyGpt(2))}, MemoryCase{"ThreeDevices", Dp(TinyLlama(3))},
        MemoryCase{"Mlp", Dp(TinyMlp(2))},
        MemoryCase{"Accumulate", With(Dp(TinyGpt(2)), [](Scenario& s) { s.batch.accumulate = 2; })},
        MemoryCase{"Recompute", With(Dp(TinyGpt(2)), [](Scenario& s) { s.recompute = Recompute::kFull; })},
        MemoryCase{"Bf16",
                   With(Dp(TinyGpt(2)),
                        [](Scenario& s) { s.precision.param = s.precision.compute = Precision::kBf16; })}),
    [](const auto& info) { return info.param.name; });

// After a step, main holds parameters, .grad, Adam's two moments and the losses; the others hold nothing: the
// barrier has no buffer.
TEST(DpMemory, OnlyMainHoldsAnythingBetweenSteps) {
  Scenario s = Dp(TinyGpt(3));
  s.optimizer.kind = OptimizerKind::kAdam;
  const Plan plan = *CompilePlan(s);
  std::mutex mutex;
  WithRanks(plan, [&](RankSession& session, Store&) -> Status {
    for (int step = 0; step < 3; ++step) WT_RETURN_IF_ERROR(session.Step());
    int64_t state = 0;
    const std::vector<Buffer>& buffers = session.executor().role().buffers;
    for (size_t id = 0; id < buffers.size(); ++id) {
      if (session.executor().pool().alive(static_cast<BufferId>(id))) state += buffers[id].bytes.count();
    }
    std::lock_guard lock(mutex);
    const int64_t losses = 4 * s.batch.accumulate;
    EXPECT_EQ(state, session.rank() == 0 ? 16 * plan.model.parameters + losses : 0);
    return Ok();
  });
}

TEST(Dp, TrainsInBf16) {
  Scenario s = Dp(TinyGpt(2));
  s.precision.param = s.precision.compute = Precision::kBf16;
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3};
  const Trained ranks = Train(*CompilePlan(s), kParitySteps),
                one = Train(*CompilePlan(OnOneDevice(s)), kParitySteps);
  for (int step = 0; step < kParitySteps; ++step)
    EXPECT_NEAR(ranks.losses[step], one.losses[step], 0.02 * one.losses[step]) << "step " << step;
}

}  // namespace
}  // namespace windtunnel
