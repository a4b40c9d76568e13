// Low-rank adapters (model.lora). Only they are trained, along their gradients; on several ranks they become
// what they become on one, whatever is parallel, and memory is predicted to the byte.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;
using enum LoraTarget;

Scenario Llama(int64_t ranks, std::vector<LoraTarget> targets = {}) {
  return Adapted(TinyLlama(ranks), std::move(targets));
}
// With layer norms, learned positions, biases and tied embeddings.
Scenario Gpt(int64_t ranks) { return Adapted(TinyGpt(ranks)); }
Scenario WithExperts(Scenario s, int64_t ranks) {
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 4, .shared_ffn = 32};
  s.parallel.expert.size = ranks;
  return s;
}
Scenario WithHeadNorms(Scenario s) {
  s.model.qk_norm = true;
  return s;
}
Scenario WithDropout(Scenario s) {
  s.model.lora->dropout = 0.2;
  return s;
}
Scenario InFramework(Scenario s, Framework framework) {
  s.framework = framework;
  return s;
}
Scenario Offloaded(Scenario s, Offload offload) {
  s.parallel.data.offload = offload;
  return s;
}

class LoraParity : public testing::TestWithParam<ParityCase> {};

TEST_P(LoraParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(LoraParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, LoraParity,
    testing::Values(
        ParityCase{"Ddp", Kind(Llama(2), kDdp)}, ParityCase{"GptDdp", Clipped(Kind(Gpt(2), kDdp))},
        ParityCase{"Zero1Clipped", Clipped(Kind(Llama(2), kZero1))},
        ParityCase{"Zero2", Kind(Gpt(2), kZero2)}, ParityCase{"Fsdp", Clipped(Kind(Llama(2), kFsdp))},
        ParityCase{"FsdpFull", Recomputed(Kind(Gpt(2), kFsdp), Recompute::kFull)},
        ParityCase{"FsdpOffload", Offloaded(Kind(Llama(2), kFsdp), Offload::kParam)},
        ParityCase{"FsdpOffloadOptimizer", Offloaded(Kind(Llama(2), kFsdp), Offload::kOptimizer)},
        ParityCase{"Tensor", Clipped(Tensor(Llama(1), false))},
        ParityCase{"TensorSequence", Clipped(Tensor(Gpt(1), true))},
        ParityCase{"TensorSequenceFsdp", Tensor(Kind(WithHeadNorms(Llama(2)), kFsdp), true)},
        ParityCase{"Ring", Context(Kind(Llama(1), kDdp), ContextKind::kRing)},
        ParityCase{"DropoutTensorSequence", WithDropout(Tensor(Kind(Llama(2), kFsdp), true))},
        ParityCase{"DropoutStaged", WithDropout(Staged(Llama(1), "zb_h1"))},
        ParityCase{"DropoutRing", WithDropout(Context(Kind(Llama(1), kDdp), ContextKind::kRing))},
        ParityCase{"DropoutFull", WithDropout(Recomputed(Llama(1), Recompute::kFull))},
        ParityCase{"Staged", Clipped(Staged(Gpt(1), "1f1b"))},
        ParityCase{"StagedHalves", Staged(Llama(1, {kQkv}), "zb_h1")},
        ParityCase{"StagedFsdp", Staged(Kind(Llama(2), kFsdp), "1f1b")},
        ParityCase{"Experts", Clipped(WithExperts(Kind(Llama(2), kDdp), 2))},
        ParityCase{"ExpertsFsdp", WithExperts(Kind(Llama(2), kFsdp), 2)},
        ParityCase{"Mlp", MadeAgain(Llama(1), {RecomputeModule::kMlp, RecomputeModule::kLayerNorm})}),
    NameOf);

// Frameworks scale an adapter's output in other places, and have other layers; that changes no result.
TEST(Lora, FrameworksComputeTheSame) {
  for (const Framework framework :
       {Framework::kMegatronCore, Framework::kPytorch, Framework::kPytorchCompile})
    ExpectLossParity(InFramework(Gpt(1), framework));
}

// Whichever layers have adapters: backward ends at the first of them.
TEST(Lora, BackwardEndsAtTheFirstAdapter) {
  for (const LoraTarget target : {kQkv, kProjection, kGateUp, kDown}) {
    const Scenario s = Llama(1, {target});
    ExpectLossParity(Recomputed(s, Recompute::kFull));
    const Plan plan = *CompilePlan(s);
    for (const Op& op : plan.roles[0].steady.ops) {
      if (op.phase != Phase::kBackward || op.layer != 0) continue;
      EXPECT_NE(op.name, "blocks.0.norm1");
      EXPECT_FALSE(target != kQkv && op.name.starts_with("blocks.0.attn.qkv")) << op.name;
    }
  }
}

// One step of SGD along the gradient makes the loss smaller by the learning rate times the gradient's square,
// to first order. (After a few steps, since B is zero at first, and then A has no gradient.)
TEST(Lora, GradientsAreThoseOfTheLoss) {
  for (Scenario s : {Llama(1), Gpt(1), WithHeadNorms(Llama(1)), WithExperts(Llama(1), 1), Llama(1, {kDown}),
                     WithDropout(Llama(1))}) {
    s.batch = {.micro = 4, .accumulate = 2};
    s.model.lora->alpha = 30;
    s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.005, .clip_norm = 1e9};
    const Plan plan = *CompilePlan(s);
    WithRanks(plan, [&](RankSession& session, Store&) -> Status {
      Executor& executor = session.executor();
      for (int i = 0; i < 20; ++i) WT_RETURN_IF_ERROR(session.Step());
      const auto step = [&]() -> Result<double> {
        WT_ASSIGN_OR_RETURN([[maybe_unused]] auto timeline, executor.Run(executor.role().steady, 3));
        WT_ASSIGN_OR_RETURN(const std::vector<double> losses, executor.Losses());
        return losses.front();
      };
      WT_ASSIGN_OR_RETURN(const double before, step());
      WT_ASSIGN_OR_RETURN(const double norm, executor.GradientNormValue());
      WT_ASSIGN_OR_RETURN(const double after, step());
      const double expected = s.optimizer.lr * norm * norm;
      EXPECT_NEAR(before - after, expected, 0.03 * expected) << s.name;
      return Ok();
    });
  }
}

// A model begins with the same weights, and so with the same loss, as without adapters. Training changes
// nothing but these.
TEST(Lora, FrozenWeightsStayAsTheyWere) {
  for (const Scenario& s : {Kind(Llama(2), kDdp), Kind(Gpt(2), kZero1), Kind(Llama(2), kFsdp)}) {
    Scenario whole = s;
    whole.model.lora.reset();
    const Plan adapted = *CompilePlan(s), plain = *CompilePlan(whole);
    const Trained few = Train(adapted, 5), none = Train(plain, 0), one = Train(plain, 1);
    EXPECT_NEAR(few.losses[0], one.losses[0], 1e-6);
    size_t next = 0;
    for (size_t i = 0; i < adapted.roles[0].parameters.size(); ++i) {
      const Parameter& parameter = adapted.roles[0].parameters[i];
      EXPECT_EQ(parameter.is_frozen, parameter.name.find(".lora_") == std::string::npos) << parameter.name;
      if (!parameter.is_frozen) continue;
      EXPECT_EQ(few.weights[i], none.weights[next++]) << parameter.name;
    }
    EXPECT_EQ(next, none.weights.size());
  }
}

// In 16 bits, frozen weights have neither fp32 copies nor anything of the optimizer's.
TEST(Lora, FrozenWeightsTakeTwoBytes) {
  for (const DataParallelKind kind : {kNone, kDdp, kZero1, kFsdp}) {
    Scenario s = Kind(Llama(kind == kNone ? 1 : 2), kind);
    s.precision.param = s.precision.compute = Precision::kBf16;
    const Plan plan = *CompilePlan(s);
    for (const Parameter& parameter : plan.roles[0].parameters) {
      const Buffer& buffer = plan.roles[0].buffers[parameter.values.buffer];
      EXPECT_EQ(buffer.dtype, parameter.is_frozen ? DType::kBFloat16 : DType::kFloat32) << parameter.name;
    }
  }
}

// Of a frozen layer in fp8 two GEMMs are left, and nothing is converted for the third. Adapters' GEMMs are in
// 16 bits.
TEST(Lora, FrozenLayersInFp8HaveTwoProducts) {
  Scenario s = InFramework(Llama(1), Framework::kMegatronCore);
  s.cluster.device = "h100-sxm-80g";
  s.precision = {.param = Precision::kBf16, .compute = Precision::kFp8, .fp8_recipe = Fp8Recipe::kTensorwise};
  Scenario trained = s;
  trained.model.lora.reset();
  const auto count = [](const Scenario& scenario, auto is_one) {
    const Plan plan = *CompilePlan(scenario);
    const std::vector<Op>& ops = plan.roles[0].steady.ops;
    return std::count_if(ops.begin(), ops.end(), [&](const Op& op) { return is_one(op.kind); });
  };
  const auto in_fp8 = [](const OpKind& kind) {
    const auto* gemm = std::get_if<Gemm>(&kind);
    return gemm != nullptr && gemm->dtype == DType::kFloat8;
  };
  const auto of_tokens_by_rows = [](const OpKind& kind) {
    const auto* cast = std::get_if<Fp8Cast>(&kind);
    return cast != nullptr && cast->transposed && cast->shared_by == 1 && cast->dtype == DType::kBFloat16;
  };
  const int64_t layers = 4 * s.model.layers;
  EXPECT_EQ(count(trained, in_fp8), 3 * layers * s.batch.accumulate);
  EXPECT_EQ(count(s, in_fp8), (2 * layers - 1) * s.batch.accumulate);  // -1: backward ends at the first layer
  EXPECT_GT(count(trained, of_tokens_by_rows), count(s, of_tokens_by_rows));
}

TEST(Lora, PeaksAreExact) {
  const auto in_16_bits = [](Scenario s) {
    s.precision.param = s.precision.compute = Precision::kBf16;
    return s;
  };
  const auto changed = [](Scenario s, void (*change)(DataParallelSpec&)) {
    change(s.parallel.data);
    return s;
  };
  ExpectExactPeaks(*CompilePlan(in_16_bits(Offloaded(Kind(Llama(2), kFsdp), Offload::kParam))));
  ExpectExactPeaks(*CompilePlan(Offloaded(Kind(Llama(2), kFsdp), Offload::kOptimizer)));
  ExpectExactPeaks(
      *CompilePlan(changed(Kind(Llama(4), kFsdp), [](DataParallelSpec& data) { data.reshard_ranks = 2; })));
  ExpectExactPeaks(*CompilePlan(changed(Kind(Llama(2), kDdp), [](DataParallelSpec& data) {
    data.find_unused_parameters = true;
    data.sync = GradientSync::kEveryMicroBatch;
  })));
  ExpectExactPeaks(*CompilePlan(Kind(Llama(2), kDdp)));
  ExpectExactPeaks(*CompilePlan(Recomputed(Kind(Gpt(2), kFsdp), Recompute::kFull)));
  ExpectExactPeaks(*CompilePlan(WithDropout(Kind(Llama(2), kDdp))));
  ExpectExactPeaks(*CompilePlan(in_16_bits(Kind(Llama(2), kFsdp))));
  ExpectExactPeaks(*CompilePlan(in_16_bits(Kind(Llama(2), kZero1))));
  ExpectExactPeaks(*CompilePlan(Staged(Tensor(WithExperts(Llama(2), 2), true), "1f1b")));
}

}  // namespace
}  // namespace windtunnel
