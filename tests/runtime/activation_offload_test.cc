// Activations that are in the host's memory from forward to backward: the same losses and weights as without,
// less of the device's memory, and peaks of both memories that are predicted to the byte.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;

// With so many layers that some of them leave the device.
Scenario OnHost(Scenario s, int64_t layers = 6) {
  s.name += "-activations-on-host";
  s.model.layers = layers;
  s.activation_offload = true;
  return s;
}
Scenario OnDevice(Scenario s) {
  s.activation_offload = false;
  return s;
}
Scenario Accumulating(Scenario s) {
  s.batch.accumulate = 2;
  return s;
}
// No token is dropped.
Scenario WithExperts(Scenario s) {
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
  s.parallel.expert.size = 2;
  return s;
}

RoleMemory MemoryOf(const Plan& plan) {
  return SimulateMemory(plan.roles[0], {.allocator = plan.scenario.allocator}).value();
}

int64_t CopiesToHost(const Plan& plan) {
  int64_t copies = 0;
  for (const Role& role : plan.roles) {
    for (const Op& op : role.steady.ops) {
      const auto* copy = std::get_if<Copy>(&op.kind);
      copies += copy != nullptr && copy->crosses == Copy::Crosses::kToHost;
    }
  }
  return copies;
}

class ActivationOffloadParity : public testing::TestWithParam<ParityCase> {};

// On one device, without (OnOneDevice).
TEST_P(ActivationOffloadParity, LossesWithAdamW) {
  ASSERT_GT(CopiesToHost(CompilePlan(GetParam().scenario).value()), 0);
  ExpectLossParity(GetParam().scenario);
}
TEST_P(ActivationOffloadParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, ActivationOffloadParity,
    testing::Values(ParityCase{"Alone", OnHost(TinyGpt())},
                    ParityCase{"Recomputed", OnHost(Recomputed(TinyLlama(), Recompute::kFull))},
                    ParityCase{"Selective", OnHost(MadeAgain(TinyGpt(), {RecomputeModule::kMlp}))},
                    ParityCase{"EverySecondMatmul", OnHost(Recomputed(TinyLlama(), Recompute::kSelectiveOp))},
                    ParityCase{"Gemma3", OnHost(TinyGemma3())}, ParityCase{"Olmo", OnHost(TinyOlmo())},
                    ParityCase{"Ddp", OnHost(Clipped(Accumulating(Kind(TinyLlama(2), kDdp))))},
                    ParityCase{"Zero1", OnHost(Kind(TinyGpt(2), kZero1))},
                    ParityCase{"Zero3", OnHost(Kind(TinyLlama(2), kZero3))},
                    ParityCase{"Fsdp", OnHost(Recomputed(Kind(TinyLlama(2), kFsdp), Recompute::kFull))},
                    ParityCase{"FsdpOffloads",
                               With(OnHost(Kind(TinyGpt(2), kFsdp)),
                                    [](Scenario& s) { s.parallel.data.offload = Offload::kParam; })},
                    ParityCase{"TensorSequence", OnHost(Tensor(TinyGpt(), true))},
                    ParityCase{"Ring", OnHost(Context(Kind(TinyLlama(1), kDdp), ContextKind::kRing))},
                    ParityCase{"Staged", OnHost(Clipped(Staged(TinyGpt(), "gpipe")), 8)},
                    ParityCase{"StagedHalves", OnHost(Staged(TinyLlama(), "zb_h1"), 8)},
                    ParityCase{"Experts", OnHost(WithExperts(TinyLlama(2)))},
                    ParityCase{"Adapted", OnHost(Adapted(Kind(TinyLlama(2), kFsdp)))}),
    NameOf);

// Dropout masks are integers, which are copied like anything else.
TEST(ActivationOffload, IsTheSameToTheBit) {
  for (const Scenario& s : {OnHost(Dropping(TinyGpt(2))), OnHost(Autocast(TinyLlama(1)))}) {
    const Trained host = Train(*CompilePlan(s), 5), device = Train(*CompilePlan(OnDevice(s)), 5);
    EXPECT_EQ(host.losses, device.losses) << s.name;
    EXPECT_EQ(host.weights, device.weights) << s.name;
  }
}

TEST(ActivationOffload, PeaksAreExactAndSmaller) {
  for (const Scenario& s : {TinyGpt(1), Autocast(TinyLlama(1)), Kind(TinyLlama(2), kFsdp),
                            Tensor(TinyGpt(), true), Staged(TinyGpt(), "gpipe")}) {
    Scenario wide = OnHost(s, 10);
    wide.model.seq_len = 128;
    const Plan host = *CompilePlan(wide), device = *CompilePlan(OnDevice(wide));
    ExpectExactPeaks(host);
    EXPECT_LT(MemoryOf(host).steady.allocated, MemoryOf(device).steady.allocated) << s.name;
    EXPECT_GT(MemoryOf(host).steady.host_allocated, Bytes()) << s.name;
    EXPECT_EQ(MemoryOf(device).steady.host_allocated, Bytes()) << s.name;
  }
}

}  // namespace
}  // namespace windtunnel
