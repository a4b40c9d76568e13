// What PyTorch's modules make of a block: a GEMM for each output, an input that is gathered once, gradients
// that are summed; and what is kept and what is recomputed. Losses in fp32.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

using Names = std::vector<std::string>;

Scenario Of(Framework framework, Scenario s = TinyLlama()) {
  s.framework = framework;
  return s;
}
Scenario Split(Scenario s) {
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}
Scenario Recomputed(Scenario s) {
  s.recompute = Recompute::kSelectiveOp;
  return s;
}

// The operators of kind T of the first block in a phase of the steady step, in order, by name.
template <typename T, typename Take>
Names OfBlock(const Scenario& scenario, Phase phase, Take take) {
  const Plan plan = *CompilePlan(scenario);
  Names names;
  for (const Op& op : plan.roles[0].steady.ops) {
    const T* kind = std::get_if<T>(&op.kind);
    if (kind != nullptr && op.layer == 0 && op.phase == phase && take(*kind))
      names.push_back(op.name.substr(std::string("blocks.0.").size()));
  }
  return names;
}
template <typename T>
Names OfBlock(const Scenario& scenario, Phase phase) {
  return OfBlock<T>(scenario, phase, [](const T&) { return true; });
}

TEST(Projections, PyTorchsLlamasHaveAProductForEachOutput) {
  EXPECT_EQ(OfBlock<Gemm>(Of(Framework::kWindtunnel), Phase::kForward),
            (Names{"attn.qkv", "attn.proj", "mlp.gate_up", "mlp.down"}));
  EXPECT_EQ(OfBlock<Gemm>(Of(Framework::kMegatron), Phase::kForward),
            (Names{"attn.qkv", "attn.proj", "mlp.gate_up", "mlp.down"}));
  for (Framework framework : {Framework::kPytorch, Framework::kPytorchCompile}) {
    EXPECT_EQ(OfBlock<Gemm>(Of(framework), Phase::kForward),
              (Names{"attn.q", "attn.k", "attn.v", "attn.proj", "mlp.gate", "mlp.up", "mlp.down"}));
  }
  EXPECT_EQ(OfBlock<Gemm>(Of(Framework::kPytorch, TinyGpt()), Phase::kForward),
            (Names{"attn.qkv", "attn.proj", "mlp.up", "mlp.down"}));
}

TEST(Projections, TheyHoldAsManyParameters) {
  const Plan stacked = *CompilePlan(Of(Framework::kWindtunnel)),
             apart = *CompilePlan(Of(Framework::kPytorch));
  EXPECT_EQ(stacked.model.parameters, apart.model.parameters);
}

// torchtitan's policy keeps the outputs of a block's odd GEMMs, the seventh's too, which nothing needs.
// Inductor does not keep that.
TEST(Projections, EagerPyTorchKeepsWhatTheLastProductMakes) {
  const auto freed_in = [](Framework framework, Scenario s) {
    const Plan plan = *CompilePlan(Recomputed(Of(framework, std::move(s))));
    const Role& role = plan.roles[0];
    for (const MemoryOp& op : role.steady.memory)
      if (!op.allocates() && role.buffers[op.buffer].name == "blocks.0.mlp.down") return op.phase;
    return Phase::kOptimizer;
  };
  EXPECT_EQ(freed_in(Framework::kPytorch, TinyLlama()), Phase::kBackward);
  EXPECT_EQ(freed_in(Framework::kPytorch, Split(TinyLlama())), Phase::kBackward);
  EXPECT_EQ(freed_in(Framework::kPytorchCompile, TinyLlama()), Phase::kForward);
  EXPECT_EQ(freed_in(Framework::kPytorch, TinyGpt()), Phase::kForward);
}

// With a query rank, two GEMMs make queries and two make keys and values, so the projection is the fifth, and
// kept. Without one it is the fourth.
TEST(Projections, EverySecondOneOfLatentAttentionIsMadeAgain) {
  const auto again = [](Framework framework, int64_t q_rank) {
    Scenario s = TinyLlama();
    s.model.kv_heads = s.model.heads;
    s.model.head_dim = 12;
    s.model.latent_attention = {.q_rank = q_rank, .kv_rank = 14, .rope_dim = 4, .value_dim = 6};
    return OfBlock<Gemm>(Recomputed(Of(framework, std::move(s))), Phase::kRecompute);
  };
  EXPECT_EQ(again(Framework::kPytorch, 10), (Names{"attn.q_up", "attn.kv_up", "mlp.up"}));
  EXPECT_EQ(again(Framework::kPytorch, 0), (Names{"attn.kv_down", "attn.proj", "mlp.up"}));
  EXPECT_EQ(again(Framework::kWindtunnel, 10), (Names{"attn.q_up", "attn.kv_up"}));
  EXPECT_EQ(again(Framework::kWindtunnel, 0), (Names{"attn.kv_down", "attn.proj"}));
}

// torchtitan's policy knows no grouped GEMMs. What comes before the shared expert is run again to the end.
TEST(Projections, PyTorchKeepsNoProductsOfExperts) {
  const auto again = [](Framework framework, int64_t shared_ffn) {
    Scenario s = Recomputed(Of(framework));
    s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .shared_ffn = shared_ffn};
    return OfBlock<GroupedGemm>(s, Phase::kRecompute);
  };
  for (Framework framework : {Framework::kPytorch, Framework::kPytorchCompile}) {
    EXPECT_EQ(again(framework, 0), Names{"mlp.experts.up"});
    EXPECT_EQ(again(framework, 32), (Names{"mlp.experts.up", "mlp.experts.down"}));
  }
  EXPECT_EQ(again(Framework::kWindtunnel, 32), Names{});
}

// F.silu(gate) * up are two operators: the second keeps the output of the first. Compilers and other
// frameworks fuse them.
TEST(Projections, EagerPyTorchKeepsTheGatesActivation) {
  const auto kept = [](Framework framework, const Scenario& s) {
    const Plan plan = *CompilePlan(Of(framework, s));
    const Role& role = plan.roles[0];
    return std::count_if(role.steady.ops.begin(), role.steady.ops.end(), [&](const Op& op) {
      return std::holds_alternative<ActivationBackward>(op.kind) && op.layer == 0 &&
             role.buffers[op.reads.back().buffer].name.ends_with(".between");
    });
  };
  EXPECT_EQ(kept(Framework::kPytorch, TinyLlama()), 1);
  EXPECT_EQ(kept(Framework::kPytorch, TinyGpt()), 0);
  for (Framework framework : {Framework::kPytorchCompile, Framework::kMegatronCore, Framework::kWindtunnel})
    EXPECT_EQ(kept(framework, TinyLlama()), 0);
}

// gpt-oss's activation has seven operators. It keeps the clamped gate, its sigmoid, their product, and the
// value with one added.
TEST(Projections, EagerPyTorchKeepsWhatIsBetweenTheOperatorsOfAnActivation) {
  const auto elements = [](ActivationKind kind) -> int64_t {
    Scenario s = TinyLlama();
    s.model.activation = kind;
    const Plan plan = *CompilePlan(Of(Framework::kPytorch, s));
    const Role& role = plan.roles[0];
    for (const Op& op : role.steady.ops) {
      const auto* activation = std::get_if<ActivationForward>(&op.kind);
      if (activation == nullptr || op.layer != 0) continue;
      return op.writes.size() < 2 ? 0 : op.writes[1].elements / (activation->rows * activation->columns);
    }
    return -1;
  };
  EXPECT_EQ(elements(ActivationKind::kGelu), 0);
  EXPECT_EQ(elements(ActivationKind::kSquaredRelu), 1);
  EXPECT_EQ(elements(ActivationKind::kGeglu), 1);
  EXPECT_EQ(elements(ActivationKind::kClampedSwiglu), 4);
}

// The output of each half is normalised before it is added to the residual stream; backward goes in the
// opposite order.
TEST(Projections, PostNormsAreBehindBothHalves) {
  const auto norms = [](Phase phase) {
    return phase == Phase::kForward ? OfBlock<NormForward>(TinyGemma3(), phase)
                                    : OfBlock<NormBackward>(TinyGemma3(), phase);
  };
  EXPECT_EQ(norms(Phase::kForward), (Names{"norm1", "attn_post_norm", "norm2", "mlp_post_norm"}));
  EXPECT_EQ(norms(Phase::kBackward), (Names{"mlp_post_norm", "norm2", "attn_post_norm", "norm1"}));
}

TEST(Projections, ReorderedNormsAreOnlyBehindBothHalves) {
  EXPECT_EQ(OfBlock<NormForward>(TinyOlmo(), Phase::kForward), (Names{"attn_post_norm", "mlp_post_norm"}));
  EXPECT_EQ(OfBlock<NormBackward>(TinyOlmo(), Phase::kBackward), (Names{"mlp_post_norm", "attn_post_norm"}));
}

TEST(Projections, GradientsOfOneInputAreAddedUp) {
  const auto adds = [](const Copy& copy) { return copy.accumulate; };
  EXPECT_EQ(OfBlock<Copy>(Of(Framework::kWindtunnel), Phase::kBackward, adds), Names{});
  EXPECT_EQ(OfBlock<Copy>(Of(Framework::kPytorch), Phase::kBackward, adds),
            (Names{"mlp.up.dx", "attn.k.dx", "attn.v.dx"}));
  // Compiled, the GEMMs themselves add up.
  EXPECT_EQ(OfBlock<Copy>(Of(Framework::kPytorchCompile), Phase::kBackward, adds), Names{});
  EXPECT_EQ(OfBlock<Gemm>(Of(Framework::kPytorchCompile), Phase::kBackward,
                          [](const Gemm& g) { return g.accumulate && !g.transpose_a; }),
            (Names{"mlp.up.input", "attn.k.input", "attn.v.input"}));
}

Names Collectives(const Scenario& scenario, Phase phase, CollectiveKind kind) {
  return OfBlock<Collective>(scenario, phase, [kind](const Collective& c) { return c.kind == kind; });
}

TEST(Projections, AModulesInputIsGatheredOnceAndKept) {
  const auto gathers = [](Framework framework, Phase phase) {
    return Collectives(Split(Of(framework)), phase, CollectiveKind::kAllGather).size();
  };
  EXPECT_EQ(gathers(Framework::kMegatron, Phase::kForward), 2u);
  EXPECT_EQ(gathers(Framework::kPytorch, Phase::kForward), 2u);
  EXPECT_EQ(gathers(Framework::kMegatron, Phase::kBackward), 4u);  // the gradients, and both inputs again
  EXPECT_EQ(gathers(Framework::kPytorch, Phase::kBackward), 2u);   // the gradients
  for (Phase phase : {Phase::kForward, Phase::kBackward})
    EXPECT_EQ(Collectives(Split(Of(Framework::kPytorch)), phase, CollectiveKind::kReduceScatter).size(), 2u);
}

Scenario InFp8(Scenario scenario, Fp8Recipe recipe) {
  scenario.precision = {.param = Precision::kBf16,
                        .compute = Precision::kFp8,
                        .reduce = Precision::kFp32,
                        .fp8_recipe = recipe};
  return scenario;
}

// PyTorch splits each sequence of a batch. Tokens are copied into order after they are gathered, and out of
// order before they are scattered.
TEST(Projections, TokensAreReorderedAroundCollectivesOfPyTorch) {
  const auto moves = [](const Copy& copy) { return !copy.accumulate; };
  const auto reordered = [&](const Scenario& scenario, Phase phase) {
    return OfBlock<Copy>(scenario, phase, moves);
  };
  const Names forward = {"attn.q.reorder", "attn.proj.reorder", "mlp.gate.reorder", "mlp.down.reorder"};
  const Names backward = {"mlp.down.dy.reorder", "mlp.gate.dx.reorder", "attn.proj.dy.reorder",
                          "attn.q.dx.reorder"};
  for (Framework framework : {Framework::kPytorch, Framework::kPytorchCompile}) {
    EXPECT_EQ(reordered(Split(Of(framework)), Phase::kForward), forward);
    EXPECT_EQ(reordered(Split(Of(framework)), Phase::kBackward), backward);
    Scenario whole = Split(Of(framework));
    whole.parallel.tensor.sequence = false;  // every rank has all tokens: nothing to put in order
    EXPECT_EQ(reordered(whole, Phase::kForward), Names{});
  }
  for (Framework framework : {Framework::kWindtunnel, Framework::kMegatron, Framework::kDeepspeed})
    EXPECT_EQ(reordered(Split(Of(framework)), Phase::kForward), Names{});
}

// With torch.compile, conversions to fp8 read out of order, and operators that scale or sum gradients write
// out of order.
TEST(Projections, CompiledKernelsBesideCollectivesReorderThemselves) {
  const auto reordered = [](Fp8Recipe recipe, Phase phase) {
    return OfBlock<Copy>(InFp8(Split(Of(Framework::kPytorchCompile)), recipe), phase,
                         [](const Copy& copy) { return !copy.accumulate; });
  };
  EXPECT_EQ(reordered(Fp8Recipe::kRowwise, Phase::kForward),
            (Names{"attn.proj.reorder", "mlp.down.reorder"}));
  EXPECT_EQ(reordered(Fp8Recipe::kRowwise, Phase::kBackward), Names{});
  EXPECT_EQ(reordered(Fp8Recipe::kTensorwise, Phase::kForward),
            (Names{"attn.q.reorder", "attn.proj.reorder", "mlp.gate.reorder", "mlp.down.reorder"}));
  EXPECT_EQ(reordered(Fp8Recipe::kTensorwise, Phase::kBackward),
            (Names{"mlp.down.dy.reorder", "attn.proj.dy.reorder"}));
}

TEST(Projections, TensorwiseFactorsAreGatheredInFp8) {
  const Scenario scenario = InFp8(Split(Of(Framework::kPytorchCompile)), Fp8Recipe::kTensorwise);
  EXPECT_EQ(OfBlock<Collective>(scenario, Phase::kForward,
                                [](const Collective& c) {
                                  return c.kind == CollectiveKind::kAllGather && c.dtype == DType::kFloat8;
                                })
                .size(),
            2u);
  // One conversion of the input of queries, keys and values, one of that of gate and up, one for each
  // projection back; and one for each weight.
  EXPECT_EQ(OfBlock<Fp8Cast>(scenario, Phase::kForward).size(), 4u + 7u);
}

TEST(Projections, RowwiseProductsOfBackwardAreScaledAfterwards) {
  Scenario scenario = Of(Framework::kPytorchCompile);
  scenario.precision = {.param = Precision::kBf16,
                        .compute = Precision::kFp8,
                        .reduce = Precision::kFp32,
                        .fp8_recipe = Fp8Recipe::kRowwise};
  EXPECT_EQ(OfBlock<Scale>(scenario, Phase::kBackward).size(), 2 * 7u);  // gradients of inputs and of weights
  scenario.precision.fp8_recipe = Fp8Recipe::kTensorwise;
  EXPECT_EQ(OfBlock<Scale>(scenario, Phase::kBackward).size(), 0u);
}

// torchtitan's selective activation checkpointing by operator counts the GEMMs of a block and recomputes 2, 4
// and 6.
TEST(Projections, EverySecondProductIsRunAgain) {
  EXPECT_EQ(OfBlock<Gemm>(Recomputed(Of(Framework::kWindtunnel)), Phase::kRecompute), (Names{"attn.proj"}));
  EXPECT_EQ(OfBlock<Gemm>(Recomputed(Of(Framework::kPytorch)), Phase::kRecompute),
            (Names{"attn.k", "attn.proj", "mlp.up"}));
}

TEST(Projections, WhatWasScatteredIsKeptAndWhatWasGatheredIsGatheredAgain) {
  const Scenario eager = Recomputed(Split(Of(Framework::kPytorch)));
  EXPECT_EQ(Collectives(eager, Phase::kRecompute, CollectiveKind::kReduceScatter), Names{});
  EXPECT_EQ(Collectives(eager, Phase::kRecompute, CollectiveKind::kAllGather).size(), 2u);
  EXPECT_EQ(OfBlock<Gemm>(eager, Phase::kRecompute), (Names{"attn.k", "attn.proj", "mlp.up"}));
  // Compiled, what nothing needs is not computed.
  EXPECT_EQ(OfBlock<Gemm>(Recomputed(Split(Of(Framework::kPytorchCompile))), Phase::kRecompute),
            (Names{"attn.k", "mlp.up"}));
}

// In torchtune 3B without recomputation, this is 5.5 GiB of the 9 that compiling saves (docs/memory.md).
// nn.LayerNorm is one operator, and Inductor makes RMS norm one.
TEST(Projections, EagerRmsNormsKeepTheirInputInFp32) {
  const auto kept = [](Scenario s) {
    s.precision.param = s.precision.compute = Precision::kBf16;
    const Plan plan = *CompilePlan(s);
    int64_t bytes = 0;
    for (const Op& op : plan.roles[0].steady.ops) {
      const bool is_norm =
          std::holds_alternative<NormForward>(op.kind) || std::holds_alternative<HeadNormForward>(op.kind);
      if (op.layer != 0 || op.phase != Phase::kForward || !is_norm) continue;
      for (const Slice& slice : op.writes) {
        const Buffer& buffer = plan.roles[0].buffers[slice.buffer];
        if (buffer.name.ends_with(".fp32")) bytes += buffer.bytes.count();
      }
    }
    return bytes;
  };
  const Scenario s = TinyLlama();
  EXPECT_EQ(kept(Of(Framework::kPytorch)), 2 * 4 * s.batch.micro * s.model.seq_len * s.model.hidden);
  EXPECT_EQ(kept(Of(Framework::kPytorchCompile)), 0);
  EXPECT_EQ(kept(Of(Framework::kMegatronCore)), 0);
  EXPECT_EQ(kept(Of(Framework::kPytorch, TinyGpt())), 0);
  Scenario of_heads = Of(Framework::kPytorch);
  of_heads.model.qk_norm = true;
  const int64_t columns = (s.model.heads + s.model.kv_heads) * s.model.head_dim;
  EXPECT_EQ(kept(of_heads) - kept(Of(Framework::kPytorch)), 4 * s.batch.micro * s.model.seq_len * columns);
}

// Bytes on rank 0 that a loss holds in addition to the logits, in buffers named "cross_entropy." and `name`.
int64_t LossWorkspace(const Scenario& scenario, const std::string& name) {
  const Plan plan = *CompilePlan(scenario);
  std::map<std::string, int64_t> by_name;  // every program has its own
  for (const Buffer& buffer : plan.roles[0].buffers)
    if (buffer.name.starts_with("cross_entropy." + name)) by_name[buffer.name] = buffer.bytes.count();
  int64_t bytes = 0;
  for (const auto& [buffer, of_one] : by_name) bytes += of_one;
  return bytes;
}

int64_t LogitsOf(const Scenario& s) { return s.batch.micro * s.model.seq_len * s.model.vocab; }

TEST(Losses, FrameworksComputeThemInFp32BesideTheLogits) {
  const auto workspace = [](const Scenario& s) { return LossWorkspace(s, "fp32"); };
  const int64_t logits = LogitsOf(TinyLlama());
  EXPECT_EQ(workspace(Of(Framework::kWindtunnel)), 0);
  EXPECT_EQ(workspace(Of(Framework::kMegatron)), 4 * logits);
  EXPECT_EQ(workspace(Of(Framework::kPytorch)), 12 * logits);
  EXPECT_EQ(workspace(Split(Of(Framework::kPytorch))), 12 * logits / 2);  // a rank's columns
}

// PyTorch's gradient has the logits' type and a tensor of its own; Megatron's and Windtunnel's take the
// logits' place.
TEST(Losses, FusedOnesHoldTheGradientAtMost) {
  const auto fused = [](Framework framework) {
    Scenario s = Of(framework);
    s.precision.param = s.precision.compute = Precision::kBf16;
    s.cross_entropy = CrossEntropyKind::kFused;
    EXPECT_EQ(LossWorkspace(s, "fp32"), 0);
    return LossWorkspace(s, "gradient");
  };
  EXPECT_EQ(fused(Framework::kPytorch), 2 * LogitsOf(TinyLlama()));
  EXPECT_EQ(fused(Framework::kPytorchCompile), 2 * LogitsOf(TinyLlama()));
  EXPECT_EQ(fused(Framework::kMegatronCore), 0);
  EXPECT_EQ(fused(Framework::kWindtunnel), 0);
}

}  // namespace
}  // namespace windtunnel
