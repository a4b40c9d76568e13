// Whole training steps on the cuda device's kernels, run on blocks of fibers. Given operators in the plan's
// order and operands in its layouts, they compute the losses and weights of the cpu device.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "runtime/cuda/emulator/device.h"
#include "runtime/rank_session.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

constexpr int kSteps = 3;

Equipment Emulated() {
  Equipment equipment;
  equipment.make_device = []() -> Result<std::unique_ptr<Device>> { return MakeEmulatedDevice(); };
  return equipment;
}

struct Both {
  Trained emulated, cpu;
};

// With compressed gradients until what one compressed step has lost and found is in a loss.
int StepsOf(const Scenario& scenario) { return scenario.parallel.data.powersgd ? 5 : kSteps; }

Both TrainBoth(const Scenario& scenario) {
  const auto plan = CompilePlan(scenario);
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan) return {};
  const Equipment equipment = Emulated();
  const int steps = StepsOf(scenario);
  return {Train(*plan, steps, &equipment), Train(*plan, steps)};
}

class EmulatedTraining : public testing::TestWithParam<ParityCase> {};

TEST_P(EmulatedTraining, LossesAndWeightsAreTheCpuDevices) {
  Scenario s = GetParam().scenario;
  s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.02, .momentum = 0.9, .clip_norm = 0.5};
  s.lr_scheduler = {.warmup_steps = 2, .decay = LearningRateDecay::kCosine, .total_steps = StepsOf(s)};
  const auto [emulated, cpu] = TrainBoth(s);
  ASSERT_FALSE(HasFailure());
  for (int step = 0; step < StepsOf(s); ++step)
    EXPECT_NEAR(emulated.losses[step], cpu.losses[step], kParityTolerance * cpu.losses[step])
        << "step " << step;
  ASSERT_EQ(emulated.weights.size(), cpu.weights.size());
  for (size_t i = 0; i < cpu.weights.size(); ++i)
    EXPECT_LT(NormWiseDifference(emulated.weights[i], cpu.weights[i]), kParityTolerance) << "parameter " << i;
}

// The same roundings in nearly the same places.
TEST_P(EmulatedTraining, LossesAreTheCpuDevicesInBf16) {
  Scenario s = GetParam().scenario;
  s.precision.param = s.precision.compute = Precision::kBf16;
  const auto [emulated, cpu] = TrainBoth(s);
  ASSERT_FALSE(HasFailure());
  for (int step = 0; step < StepsOf(s); ++step)
    EXPECT_NEAR(emulated.losses[step], cpu.losses[step], 1e-2 * cpu.losses[step]) << "step " << step;
}

// torch.autocast to bf16, and to fp16 with scaled losses. The first scale overflows, so both devices have to
// lower it alike.
TEST_P(EmulatedTraining, LossesAreTheCpuDevicesUnderAutocast) {
  for (Precision compute : {Precision::kBf16, Precision::kFp16}) {
    Scenario s = GetParam().scenario;
    if (compute == Precision::kFp16 && s.parallel.data.powersgd) continue;  // refused
    s.precision.compute = compute;
    if (compute == Precision::kFp16) {
      s.precision.loss_scale = LossScale::kDynamic;
      s.precision.init_scale = 1e8;
    }
    const auto [emulated, cpu] = TrainBoth(s);
    ASSERT_FALSE(HasFailure());
    for (int step = 0; step < StepsOf(s); ++step)
      EXPECT_NEAR(emulated.losses[step], cpu.losses[step], 1e-2 * cpu.losses[step]) << "step " << step;
  }
}

Scenario Flash(Scenario s) {
  s.model.attention = AttentionKind::kFlash;
  return s;
}

Scenario Dropping(Scenario s) {
  s.model.dropout = 0.2;
  return s;
}

INSTANTIATE_TEST_SUITE_P(
    Steps, EmulatedTraining,
    testing::Values(
        ParityCase{"Gpt", TinyGpt()}, ParityCase{"GptFlash", Flash(TinyGpt())},
        ParityCase{"LlamaFlash", Flash(TinyLlama())}, ParityCase{"Mlp", TinyMlp()},
        ParityCase{"Hybrid", With(TinyLlama(2),
                                  [](Scenario& s) {
                                    s.model.mamba = MambaSpec{.pattern = "M-M*-",
                                                              .state = 5,
                                                              .head_dim = 8,
                                                              .heads = 4,
                                                              .groups = 2,
                                                              .conv = 3};
                                    s.model.layers = 3;
                                    s.model.position = PositionKind::kNone;
                                  })},
        ParityCase{"DeltaNets", With(TinyLlama(2),
                                     [](Scenario& s) {
                                       s.model.delta_net = DeltaNetSpec{.pattern = "GE*E",
                                                                        .key_heads = 2,
                                                                        .value_heads = 4,
                                                                        .key_dim = 6,
                                                                        .value_dim = 8,
                                                                        .conv = 3};
                                       s.model.layers = 2;
                                       s.model.attention_gate = true;
                                       s.model.experts = ExpertsSpec{.count = 4,
                                                                     .top_k = 2,
                                                                     .capacity_factor = 4.0,
                                                                     .shared_ffn = 48,
                                                                     .shared_gate = true};
                                     })},
        ParityCase{"GptDropout", Dropping(TinyGpt(2))}, ParityCase{"MlpDropout", Dropping(TinyMlp())},
        ParityCase{"PowerSgd",
                   With(TinyGpt(2), [](Scenario& s) { s.parallel.data.powersgd = PowerSgdSpec{.rank = 4}; })},
        ParityCase{"Fsdp",
                   With(TinyGpt(2), [](Scenario& s) { s.parallel.data.kind = DataParallelKind::kFsdp; })},
        ParityCase{"ActivationsOnHost", With(Dropping(TinyGpt(2)),
                                             [](Scenario& s) {
                                               s.model.layers = 4;
                                               s.activation_offload = true;
                                             })},
        ParityCase{"Tensor", With(TinyGpt(),
                                  [](Scenario& s) {
                                    s.parallel.tensor.size = 2;
                                    s.parallel.tensor.sequence = true;
                                    s.cluster.devices_per_node = 2;
                                  })},
        ParityCase{"Bert", With(Flash(TinyGpt()),
                                [](Scenario& s) {
                                  s.model.causal = false;
                                  s.model.residual_from_norm = true;
                                })},
        ParityCase{"Context", With(Dropping(Flash(TinyLlama())),
                                   [](Scenario& s) {
                                     s.model.layers = 1;
                                     s.batch = {.micro = 1, .accumulate = 1};
                                     s.parallel.context.size = 2;
                                     s.cluster.devices_per_node = 2;
                                   })}),
    NameOf);

}  // namespace
}  // namespace windtunnel
