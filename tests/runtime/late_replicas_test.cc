// DataParallel on devices with queues: each thread has one that is late on purpose (queued_device.h). The
// operators are the cpu device's and sums are in the order of ranks, so every number equals that of a run on
// the host. A missing wait for an event, on the same device or on another one, shows as a difference.
#include <gtest/gtest.h>

#include "cost_models/cost_model.h"
#include "cost_models/fit.h"
#include "plan/plan.h"
#include "runtime/calibration.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/late_devices.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

// The scenario as compiled for a device with its own queues, whose operators are launched one by one or as
// CUDA graphs.
Scenario OnQueues(Scenario s, bool cuda_graphs = false) {
  s.cluster.device = "cuda";
  s.run.cuda_graphs = cuda_graphs;
  return s;
}

Scenario In16Bits(Scenario s, Precision precision) {
  s.precision.param = s.precision.compute = precision;
  if (precision == Precision::kFp16) s.precision.loss_scale = LossScale::kDynamic;
  return s;
}

class LateReplicas : public testing::TestWithParam<ParityCase> {};

TEST_P(LateReplicas, LossesAndWeightsAreThoseOfTheCpuDevice) {
  constexpr int kSteps = 4;
  const Scenario& scenario = GetParam().scenario;
  const Trained cpu = Train(*CompilePlan(scenario), kSteps);
  EXPECT_NE(cpu.losses.front(), cpu.losses.back());
  for (const bool cuda_graphs : {false, true}) {
    SCOPED_TRACE(cuda_graphs ? "as graphs" : "one by one");
    const auto plan = CompilePlan(OnQueues(scenario, cuda_graphs));
    ASSERT_TRUE(plan) << plan.error().message;
    const Equipment equipment = LateDevices();
    const Trained late = Train(*plan, kSteps, &equipment);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(late.losses, cpu.losses);
    EXPECT_EQ(late.gradient_norms, cpu.gradient_norms);
    if (scenario.precision.param == Precision::kFp32) {
      EXPECT_EQ(late.weights, cpu.weights);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, LateReplicas,
    testing::Values(
        ParityCase{"Gpt", Dp(TinyGpt(2))}, ParityCase{"LlamaThreeDevices", Dp(TinyLlama(3))},
        ParityCase{"Mlp", Dp(TinyMlp(2))}, ParityCase{"MlpThreeDevices", Dp(TinyMlp(3))},
        ParityCase{"AccumulatesAndClips", With(Dp(TinyGpt(3)),
                                               [](Scenario& s) {
                                                 s.batch.accumulate = 2;
                                                 s.optimizer.clip_norm = 0.5;
                                               })},
        ParityCase{"Bf16", In16Bits(Dp(TinyGpt(3)), Precision::kBf16)},
        ParityCase{"Fp16", In16Bits(Dp(TinyGpt(2)), Precision::kFp16)},
        ParityCase{"RecomputesUnderPytorchsAllocator", With(Dp(TinyGpt(2)),
                                                            [](Scenario& s) {
                                                              s.recompute = Recompute::kFull;
                                                              s.allocator = AllocatorKind::kPytorch;
                                                            })},
        // The head alone has 12.6 MB: it is sent from where it is, and its gradient is summed in blocks.
        ParityCase{"LargeTensors", WithLargeHead(Dp(TinyGpt(2)))}),
    NameOf);

TEST(LateReplicas, PeaksAreThoseOfTheCpuDevice) {
  const auto peaks = [](const Scenario& scenario, const Equipment* equipment) {
    const Plan plan = *CompilePlan(scenario);
    std::vector<Bytes> allocated(plan.world_size);
    WithRanks(
        plan,
        [&](RankSession& session, Store&) -> Status {
          for (int step = 0; step < 3; ++step) WT_RETURN_IF_ERROR(session.Step());
          allocated[session.rank()] = session.steady_peak().allocated;
          return Ok();
        },
        equipment);
    return allocated;
  };
  const Equipment equipment = LateDevices();
  const std::vector<Bytes> late = peaks(OnQueues(Dp(TinyGpt(3))), &equipment);
  EXPECT_EQ(late, peaks(Dp(TinyGpt(3)), nullptr));
  EXPECT_GT(late[0], late[1]);
}

TEST(LateReplicas, HeldOutLossesAreThoseOfTheCpuDevice) {
  const auto evaluate = [](const Scenario& scenario, const Equipment* equipment) {
    const Plan plan = *CompilePlan(scenario, {.evaluates = true});
    double loss = 0;
    WithRanks(
        plan,
        [&](RankSession& session, Store&) -> Status {
          WT_RETURN_IF_ERROR(session.Step());
          WT_ASSIGN_OR_RETURN(const std::optional<double> own, session.Evaluate(0));
          if (own) loss = *own;
          return session.Step().map([](const Timeline&) {});
        },
        equipment);
    return loss;
  };
  const Equipment equipment = LateDevices();
  const double late = evaluate(OnQueues(Dp(TinyGpt(2))), &equipment);
  EXPECT_GT(late, 0);
  EXPECT_EQ(late, evaluate(Dp(TinyGpt(2)), nullptr));
}

TEST(LateReplicas, EveryOperatorHasASpanWithinTheStep) {
  const Plan plan = *CompilePlan(OnQueues(Dp(TinyGpt(3))));
  const Equipment equipment = LateDevices();
  WithRanks(
      plan,
      [&](RankSession& session, Store&) -> Status {
        WT_RETURN_IF_ERROR(session.Step());
        WT_ASSIGN_OR_RETURN(const Timeline timeline, session.Step());
        const Role& role = session.executor().role();
        std::vector<int> spans(role.steady.ops.size(), 0);
        for (const Span& span : timeline.spans) {
          ++spans[span.op];
          EXPECT_LE(span.start, span.end);
          EXPECT_LE(span.end, timeline.end);
        }
        for (size_t i = 0; i < spans.size(); ++i) {
          const Op& op = role.steady.ops[i];
          const bool has_none = std::holds_alternative<HostWait>(op.kind);
          EXPECT_EQ(spans[i], has_none ? 0 : 1) << op.name;
        }
        const StepBreakdown b = BreakDown(timeline, role, role.steady);
        EXPECT_EQ(b.compute + b.exposed_communication + b.bubble + b.host, b.step);
        return Ok();
      },
      &equipment);
}

// The measuring loops find all costs that a prediction of the scenario needs.
TEST(LateReplicas, AreCalibrated) {
  const Plan plan = *CompilePlan(OnQueues(Dp(TinyMlp(2))));
  const Equipment equipment = LateDevices(std::chrono::microseconds(20));
  std::vector<CalibrationSamples> samples(2);
  WithRanks(
      plan,
      [&](RankSession& session, Store& store) -> Status {
        for (int step = 0; step < 2; ++step) WT_RETURN_IF_ERROR(session.Step());
        WT_ASSIGN_OR_RETURN(samples[session.rank()],
                            MeasureCosts(session, store, {.rounds = 2, .seconds = 0.1}));
        return Ok();
      },
      &equipment);
  ASSERT_FALSE(HasFailure());
  Profile profile;
  profile.name = "late";
  profile.device = "cuda";
  FitSamples(samples, "threads", 2, profile);
  EXPECT_TRUE(FindMissingCosts(profile, plan).empty());
  EXPECT_FALSE(MakeProfileCostModel(profile, plan)->host_computes());
}

}  // namespace
}  // namespace windtunnel
