// Computation in another type than that of the stored parameters: which GEMMs take fp8 and which operators
// make their operands, and what autocast converts.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "plan/plan.h"
#include "sim/role_memory.h"
#include "tests/plan/plan_checks.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario InFp8(Scenario s, Fp8Recipe recipe) {
  s.precision = {.param = Precision::kBf16,
                 .compute = Precision::kFp8,
                 .reduce = Precision::kFp32,
                 .fp8_recipe = recipe};
  return s;
}

bool InLayer0(const Op& op, Phase phase) { return op.layer == 0 && op.phase == phase; }

TEST(Fp8, TakesTheProductsOfBlocksNotTheHeads) {
  const Plan plan = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kTensorwise));
  // Two layers of four matrices, of three products each.
  EXPECT_EQ(Count<Gemm>(plan, [](const Op&, const Gemm& g) { return g.dtype == DType::kFloat8; }), 2 * 4 * 3);
  EXPECT_EQ(Count<Gemm>(plan, [](const Op& op,
                                 const Gemm& g) { return op.layer < 0 && g.dtype == DType::kBFloat16; }),
            3);
}

TEST(Fp8, TensorwiseFindsAScaleForEachTensorOnce) {
  const Plan plan = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kTensorwise));
  const auto amaxes = [&](Phase phase) {
    return Count<Fp8Amax>(plan, [&](const Op& op, const Fp8Amax&) { return InLayer0(op, phase); });
  };
  const auto casts = [&](Phase phase) {
    return Count<Fp8Cast>(plan, [&](const Op& op, const Fp8Cast&) { return InLayer0(op, phase); });
  };
  EXPECT_EQ(amaxes(Phase::kForward), 4 * 2);  // x and W
  EXPECT_EQ(casts(Phase::kForward), 4 * 2);
  EXPECT_EQ(amaxes(Phase::kBackward), 4);     // dy
  EXPECT_EQ(casts(Phase::kBackward), 4 * 4);  // dy both ways, W, x
}

// Transformer Engine converts weights with the first micro-batch and keeps them, each tensor rank at a scale
// of its own. Where FSDP gathers them again, they are converted again.
TEST(Fp8, MegatronCoreConvertsWeightsOnceAStep) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kTensorwise);
  s.batch.accumulate = 4;
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.cluster.devices_per_node = s.WorldSize();
  const auto shared = [](const Scenario& scenario, bool of_weights) {
    std::set<int64_t> by;
    const Plan plan = *CompilePlan(scenario);
    for (const Op& op : plan.roles[0].steady.ops) {
      if (op.name.find(".weight") == std::string::npos ? of_weights : !of_weights) continue;
      if (const auto* cast = std::get_if<Fp8Cast>(&op.kind)) by.insert(cast->shared_by);
      if (const auto* amax = std::get_if<Fp8Amax>(&op.kind)) by.insert(amax->shared_by);
    }
    return by;
  };
  const auto agreed_on = [](const Scenario& scenario) {
    const Plan plan = *CompilePlan(scenario);
    return Count<Collective>(plan, [](const Op& op, const Collective&) {
      return op.name.find(".weight.amax") != std::string::npos;
    });
  };
  EXPECT_EQ(shared(s, true), std::set<int64_t>{1});
  EXPECT_GT(agreed_on(s), 0);
  s.framework = Framework::kMegatronCore;
  EXPECT_EQ(shared(s, true), std::set<int64_t>{4});
  EXPECT_EQ(shared(s, false), std::set<int64_t>{1});
  EXPECT_EQ(agreed_on(s), 0);
  s.recompute = Recompute::kFull;
  const Plan again = *CompilePlan(s);
  EXPECT_EQ(Count<Fp8Cast>(again,
                           [](const Op& op, const Fp8Cast&) {
                             return op.phase == Phase::kRecompute &&
                                    op.name.find(".weight") != std::string::npos;
                           }),
            0);
  s.recompute = Recompute::kNone;
  s.parallel.data = {.kind = DataParallelKind::kFsdp, .size = 2, .wrap = {}};
  s.cluster.devices_per_node = s.WorldSize();
  EXPECT_EQ(shared(s, true), std::set<int64_t>{1});
}

// Transformer Engine keeps the inputs that GEMMs of backward need in fp8, gathers them in fp8, and keeps
// weights in both orientations.
TEST(Fp8, MegatronCoreKeepsFactorsInFp8) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kTensorwise);
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.cluster.devices_per_node = 2;
  s.batch.micro = 256;  // activations are most of the memory
  const auto casts_from = [](const Plan& plan, DType type) {
    return Count<Fp8Cast>(plan, [&](const Op& op, const Fp8Cast& c) {
      return InLayer0(op, Phase::kBackward) && op.name.ends_with(".x") && c.dtype == type;
    });
  };
  const auto kept = [](const Plan& plan) {
    Bytes bytes;
    for (const Buffer& buffer : plan.roles[0].buffers)
      if (buffer.name.ends_with("weights.fp8")) bytes += buffer.bytes;
    return bytes;
  };
  const auto gathers = [](const Plan& plan, DType type) {
    return Count<Collective>(plan, [&](const Op& op, const Collective& c) {
      return op.layer == 0 && c.kind == CollectiveKind::kAllGather && c.dtype == type;
    });
  };
  const auto activations = [](const Scenario& scenario) {
    const RoleMemory memory = SimulateMemory(CompilePlan(scenario)->roles[0]).value();
    return memory.steady.by_category[static_cast<int>(Category::kActivations)];
  };
  s.framework = Framework::kMegatron;
  const Plan in_16_bits = *CompilePlan(s);
  EXPECT_GT(casts_from(in_16_bits, DType::kBFloat16), 0);
  EXPECT_EQ(kept(in_16_bits), Bytes(0));
  const Bytes before = activations(s);
  s.framework = Framework::kMegatronCore;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(casts_from(plan, DType::kBFloat16), 0);
  EXPECT_EQ(casts_from(plan, DType::kFloat8), 4);
  EXPECT_EQ(gathers(plan, DType::kFloat8), gathers(in_16_bits, DType::kFloat8));
  EXPECT_EQ(gathers(plan, DType::kBFloat16), 0);
  EXPECT_LT(activations(s), before);
  Bytes weights;
  for (const Parameter& parameter : plan.roles[0].parameters)
    if (parameter.name.starts_with("blocks.") && parameter.shape.size() == 2)
      weights += Bytes(2 * parameter.elements);
  EXPECT_EQ(kept(plan), weights);
  s.parallel.data = {.kind = DataParallelKind::kFsdp, .size = 2, .wrap = {}};
  s.cluster.devices_per_node = 4;
  EXPECT_EQ(kept(*CompilePlan(s)), Bytes(0));
}

// Blocks of scales lie along the dimension over which a GEMM sums. torchao converts each operand of a GEMM
// from 16 bits every time, and sends 16 bits.
TEST(Fp8, TorchaosMxfp8ConvertsEachFactorFromSixteenBits) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kMxfp8);
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.cluster.devices_per_node = 2;
  const Plan plan = *CompilePlan(s);
  const auto casts = [&](Phase phase) {
    return Count<Fp8Cast>(plan, [&](const Op& op, const Fp8Cast& c) {
      return InLayer0(op, phase) && c.dtype == DType::kBFloat16 && !c.with_other;
    });
  };
  const auto any = [](const Op&, const auto&) { return true; };
  EXPECT_EQ(casts(Phase::kForward), 4 * 2);   // x and W
  EXPECT_EQ(casts(Phase::kBackward), 4 * 4);  // dy both ways, W, x
  EXPECT_EQ(Count<Fp8Cast>(plan, any), 2 * 4 * 6);
  EXPECT_EQ(Count<Fp8Amax>(plan, any), 0);
  EXPECT_EQ(Count<Gemm>(plan, [](const Op&, const Gemm& g) { return g.dtype == DType::kMxFloat8; }),
            2 * 4 * 3);
  EXPECT_EQ(
      Count<Collective>(plan, [](const Op&, const Collective& c) { return c.dtype == DType::kMxFloat8; }), 0);
}

// Transformer Engine makes both forms at once, gathers tokens in each, and keeps inputs and both forms of
// weights with their scales.
TEST(Fp8, MegatronCoreMakesBothFormsOfScaledBlocks) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kBlock, Fp8Recipe::kMxfp8, Fp8Recipe::kNvfp4}) {
    Scenario s = InFp8(TinyLlama(), recipe);
    if (recipe == Fp8Recipe::kNvfp4) s.precision.compute = Precision::kFp4;
    s.framework = Framework::kMegatronCore;
    s.parallel.tensor = {.size = 2, .sequence = true};
    s.cluster.devices_per_node = 2;
    const DType factor = FactorType(recipe);
    const Plan plan = *CompilePlan(s);
    EXPECT_EQ(Count<Gemm>(plan, [&](const Op&, const Gemm& g) { return g.dtype == factor; }), 2 * 4 * 3);
    const auto gathers = [&](Phase phase, DType type) {
      return Count<Collective>(plan, [&](const Op& op, const Collective& c) {
        return InLayer0(op, phase) && c.kind == CollectiveKind::kAllGather && c.dtype == type;
      });
    };
    EXPECT_EQ(gathers(Phase::kForward, factor), 2);  // of the column-parallel layers' inputs
    EXPECT_EQ(gathers(Phase::kBackward, factor),
              2 + 4);  // of these again, and of the others' dy in both forms
    EXPECT_EQ(gathers(Phase::kForward, DType::kBFloat16) + gathers(Phase::kBackward, DType::kBFloat16), 0);
    // The second form comes with the first, except in nvfp4, where it has a kernel of its own.
    const int along = Count<Fp8Cast>(
        plan, [](const Op& op, const Fp8Cast& c) { return InLayer0(op, Phase::kBackward) && c.with_other; });
    EXPECT_EQ(along, recipe == Fp8Recipe::kNvfp4 ? 4 : 4 * 3);  // W alone; x, dy and W
    // A scale of the whole tensor is found once for each of x, W and dy.
    EXPECT_EQ(Count<Fp8Amax>(plan, [](const Op& op, const Fp8Amax&) { return op.layer == 0; }),
              recipe == Fp8Recipe::kNvfp4 ? 4 * 3 : 0);
    int64_t weights = 0;
    Bytes kept;
    for (const Parameter& parameter : plan.roles[0].parameters)
      if (parameter.name.starts_with("blocks.") && parameter.shape.size() == 2) weights += parameter.elements;
    for (const Buffer& buffer : plan.roles[0].buffers)
      if (buffer.name.ends_with("weights.fp8")) kept += buffer.bytes;
    EXPECT_EQ(kept, Bytes(2 * FactorBytes(recipe, weights)));
  }
}

// Inputs that are there in 16 bits, as when recomputed, are converted once for sums over tokens. FSDP gathers
// weights again and keeps no forms of them.
TEST(Fp8, WhatIsKeptInSixteenBitsIsConvertedOnce) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kMxfp8);
  s.framework = Framework::kMegatronCore;
  s.recompute = Recompute::kSelectiveOp;
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.cluster.devices_per_node = 2;
  const Plan plan = *CompilePlan(s);
  const auto of_inputs = [&](bool along) {
    return Count<Fp8Cast>(plan, [&](const Op& op, const Fp8Cast& c) {
      return InLayer0(op, Phase::kBackward) && op.name.ends_with(".x") && c.with_other == along;
    });
  };
  EXPECT_EQ(of_inputs(false), 4);
  EXPECT_EQ(of_inputs(true), 0);
  s.recompute = Recompute::kNone;
  s.parallel.data = {.kind = DataParallelKind::kFsdp, .size = 2, .wrap = {}};
  s.cluster.devices_per_node = 4;
  const Plan sharded = *CompilePlan(s);
  for (const Buffer& buffer : sharded.roles[0].buffers) EXPECT_FALSE(buffer.name.ends_with("weights.fp8"));
  EXPECT_EQ(Count<Fp8Cast>(sharded,
                           [](const Op& op, const Fp8Cast& c) {
                             return op.name.find(".weight") != std::string::npos && c.with_other;
                           }),
            0);
}

// The tokens of dy go around the ring for dx. Those of its other form are gathered after that GEMM, for dW.
TEST(Fp8, TheRingOfGradientsComesBeforeTheirOtherForm) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kMxfp8);
  s.framework = Framework::kMegatronCore;
  s.parallel.tensor = {.size = 2, .sequence = true, .overlap = true};
  s.cluster.devices_per_node = 2;
  const Plan plan = *CompilePlan(s);
  int product = -1, gather = -1;
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    if (!InLayer0(ops[i], Phase::kBackward)) continue;
    if (std::holds_alternative<Gemm>(ops[i].kind) && ops[i].name.ends_with("down.input")) product = i;
    const auto* collective = std::get_if<Collective>(&ops[i].kind);
    if (collective != nullptr && ops[i].name.ends_with("down.dy")) gather = i;
  }
  ASSERT_GE(product, 0);
  EXPECT_GT(gather, product);
}

// What is kept for GEMMs, per token and layer: 33 bytes instead of 32 in mxfp8, 9 instead of 16 in nvfp4.
TEST(Fp8, KeptInputsHaveTheirScalesWithThem) {
  const auto kept = [](Fp8Recipe recipe) {
    Scenario s = InFp8(TinyLlama(), recipe);
    if (recipe == Fp8Recipe::kNvfp4) s.precision.compute = Precision::kFp4;
    s.framework = Framework::kMegatronCore;
    const Plan plan = *CompilePlan(s);
    std::set<BufferId> of_inputs;  // that backward also reads
    std::set<BufferId> made;
    for (const Op& op : plan.roles[0].steady.ops) {
      if (!std::holds_alternative<Fp8Cast>(op.kind)) continue;
      if (op.phase == Phase::kForward) made.insert(op.writes[0].buffer);
      if (op.phase == Phase::kBackward && made.contains(op.reads[0].buffer))
        of_inputs.insert(op.reads[0].buffer);
    }
    Bytes bytes;
    for (const BufferId buffer : of_inputs) bytes += plan.roles[0].buffers[buffer].bytes;
    return bytes;
  };
  const Bytes tensorwise = kept(Fp8Recipe::kTensorwise);
  ASSERT_GT(tensorwise, Bytes(0));
  EXPECT_EQ(kept(Fp8Recipe::kMxfp8) * 32, tensorwise * 33);
  EXPECT_EQ(kept(Fp8Recipe::kNvfp4) * 16, tensorwise * 9);
}

TEST(Fp8, RowwiseScalesColumnsWhereProductsSumOverRows) {
  const Plan plan = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kRowwise));
  EXPECT_EQ(Count<Fp8Amax>(plan, [](const Op& op, const Fp8Amax&) { return InLayer0(op, Phase::kForward); }),
            0);
  // dy, W and x.
  EXPECT_EQ(Count<Fp8Amax>(plan,
                           [](const Op& op, const Fp8Amax& a) {
                             return InLayer0(op, Phase::kBackward) && a.of == Fp8Amax::Of::kEachColumn;
                           }),
            4 * 3);
  EXPECT_EQ(Count<Fp8Cast>(plan, [](const Op& op, const Fp8Cast&) { return InLayer0(op, Phase::kBackward); }),
            4 * 4);
}

// Both gradients of every GEMM are scaled in each micro-batch, a weight's before it is added to those of
// earlier ones.
TEST(Fp8, RowwiseScalesGradientsAfterTheirProducts) {
  for (const int micro_batches : {1, 2}) {
    Scenario s = InFp8(TinyLlama(), Fp8Recipe::kRowwise);
    s.batch.accumulate = micro_batches;
    const Plan plan = *CompilePlan(s);
    const auto rescaled = [&](std::string_view ending) {
      return Count<Scale>(plan, [&](const Op& op, const Scale&) {
        return InLayer0(op, Phase::kBackward) && op.name.ends_with(ending);
      });
    };
    EXPECT_EQ(rescaled(".input.rescale"), 4 * micro_batches);
    EXPECT_EQ(rescaled(".weight.rescale"), 4 * micro_batches);
    EXPECT_EQ(Count<Copy>(plan,
                          [&](const Op& op, const Copy& c) {
                            return InLayer0(op, Phase::kBackward) && c.accumulate &&
                                   op.name.ends_with(".weight");
                          }),
              4 * (micro_batches - 1));
  }
}

// Transformer Engine's DelayedScaling: scales come from earlier steps.
TEST(Fp8, DelayedScalesNeedNoPassAndNoAgreement) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kDelayed);
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.cluster.devices_per_node = 2;
  const auto any = [](const Op&, const auto&) { return true; };
  const auto maxima = [](const Op& op, const Collective& c) {
    return op.layer == 0 && c.reduction == Reduction::kMax;
  };
  const Plan delayed = *CompilePlan(s);
  EXPECT_EQ(Count<Fp8Amax>(delayed, any), 0);
  EXPECT_EQ(Count<Collective>(delayed, maxima), 0);
  s.precision.fp8_recipe = Fp8Recipe::kTensorwise;
  const Plan tensorwise = *CompilePlan(s);
  EXPECT_EQ(Count<Fp8Cast>(delayed, any), Count<Fp8Cast>(tensorwise, any));
  const auto in_fp8 = [](const Op& op, const Collective& c) {
    return op.layer == 0 && c.kind == CollectiveKind::kAllGather && c.dtype == DType::kFloat8;
  };
  EXPECT_EQ(Count<Collective>(delayed, in_fp8), 6);
  EXPECT_EQ(Count<Collective>(tensorwise, in_fp8), 6);
}

// use_fast_accum of torchao's float8 linear layers, split accumulators of Transformer Engine.
TEST(Fp8, ForwardsProductsAccumulateFastAndBackwardsDoNot) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kTensorwise, Fp8Recipe::kDelayed, Fp8Recipe::kRowwise}) {
    const Plan plan = *CompilePlan(InFp8(TinyLlama(), recipe));
    const auto products = [&](Phase phase, bool fast) {
      return Count<Gemm>(plan, [&](const Op& op, const Gemm& g) {
        return InLayer0(op, phase) && g.dtype == DType::kFloat8 && g.fast_accumulation == fast;
      });
    };
    EXPECT_EQ(products(Phase::kForward, true), 4);
    EXPECT_EQ(products(Phase::kForward, false), 0);
    EXPECT_EQ(products(Phase::kBackward, true), 0);
    EXPECT_EQ(products(Phase::kBackward, false), 8);
  }
  const Plan blocks = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kBlock));
  EXPECT_EQ(Count<Gemm>(blocks, [](const Op&, const Gemm& g) { return g.fast_accumulation; }), 0);
  EXPECT_EQ(Count<Gemm>(blocks, [](const Op&, const Gemm& g) { return g.is_forward; }), 2 * 4);
}

TEST(Fp8, BlocksAreFoundOnTheWay) {
  const Plan plan = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kBlock));
  EXPECT_EQ(Count<Fp8Amax>(plan, [](const Op&, const Fp8Amax&) { return true; }), 0);
  EXPECT_EQ(Count<Fp8Cast>(plan, [](const Op& op, const Fp8Cast&) { return InLayer0(op, Phase::kForward); }),
            4 * 2);
}

// In Transformer Engine, the forward inputs that backward's GEMMs need take a byte per element, with block
// scales as well.
TEST(Fp8, MegatronCoreKeepsBlocksInFp8) {
  const auto activations = [](Framework framework, Fp8Recipe recipe) {
    Scenario s = InFp8(TinyLlama(), recipe);
    s.batch.micro = 256;
    s.framework = framework;
    const RoleMemory memory = SimulateMemory(CompilePlan(s)->roles[0]).value();
    return memory.steady.by_category[static_cast<int>(Category::kActivations)];
  };
  EXPECT_LT(activations(Framework::kMegatronCore, Fp8Recipe::kBlock),
            activations(Framework::kMegatron, Fp8Recipe::kBlock));
  EXPECT_EQ(activations(Framework::kMegatronCore, Fp8Recipe::kBlock),
            activations(Framework::kMegatronCore, Fp8Recipe::kDelayed));
}

// Where tensor ranks agree on a scale, tokens travel in one byte.
TEST(Fp8, TensorwiseGathersTokensInFp8) {
  for (Fp8Recipe recipe : {Fp8Recipe::kTensorwise, Fp8Recipe::kRowwise}) {
    Scenario s = InFp8(TinyLlama(), recipe);
    s.parallel.tensor = {.size = 2, .sequence = true};
    s.cluster.devices_per_node = 2;
    const bool tensorwise = recipe == Fp8Recipe::kTensorwise;
    const Plan plan = *CompilePlan(s);
    const auto gathers = [&](DType type) {
      return Count<Collective>(plan, [&](const Op& op, const Collective& c) {
        return op.layer == 0 && c.kind == CollectiveKind::kAllGather && c.dtype == type;
      });
    };
    EXPECT_EQ(gathers(DType::kFloat8), tensorwise ? 6 : 0);
    EXPECT_EQ(gathers(DType::kBFloat16), tensorwise ? 0 : 6);
    EXPECT_EQ(Count<Collective>(plan,
                                [](const Op& op, const Collective& c) {
                                  return op.layer == 0 && c.reduction == Reduction::kMax && c.elements == 1;
                                }),
              tensorwise ? 12 : 0);
  }
}

// Where a GEMM sums over tensor ranks, each row (of x) or column (of W, transposed) of an operand is scaled
// by the largest magnitude on any of them. The rows are then read once before that.
TEST(Fp8, RowwiseScalesAreAgreedOnWhereProductsSumOverTensorRanks) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kRowwise);
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.cluster.devices_per_node = 2;
  for (const bool modules : {false, true}) {
    s.framework = modules ? Framework::kPytorchCompile : Framework::kWindtunnel;
    const Plan plan = *CompilePlan(s);
    const auto agreed = [&](Phase phase) {
      return Count<Collective>(plan, [&](const Op& op, const Collective& c) {
        return InLayer0(op, phase) && c.kind == CollectiveKind::kAllReduce && c.reduction == Reduction::kMax;
      });
    };
    const auto by_row = [&](Phase phase) {
      return Count<Fp8Amax>(plan, [&](const Op& op, const Fp8Amax& a) {
        return InLayer0(op, phase) && a.of == Fp8Amax::Of::kEachRow;
      });
    };
    // x and W of the two projections back.
    EXPECT_EQ(agreed(Phase::kForward), 2 * 2);
    EXPECT_EQ(by_row(Phase::kForward), 2 * 2);
    // dy and W of those that a part begins with: two stacked, five apart. Columns of W take a pass in any case.
    const int layers = modules ? 5 : 2;
    EXPECT_EQ(agreed(Phase::kBackward), layers * 2);
    EXPECT_EQ(by_row(Phase::kBackward), layers);
  }
}

TEST(Fp8, ActivationsStayInSixteenBits) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kTensorwise);
  s.precision.param = Precision::kFp32;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(Count<AttentionForward>(
                plan, [](const Op&, const AttentionForward& a) { return a.dtype == DType::kBFloat16; }),
            2);
}

int CopiesInLayer0(const Plan& plan, Phase phase, DType from, DType to) {
  return Count<Copy>(
      plan, [&](const Op& op, const Copy& c) { return InLayer0(op, phase) && c.from == from && c.to == to; });
}

// As in torch.autocast's cache, weights are converted once in a micro-batch's forward (four matrices), and
// backward uses the same copies. Forward also converts the outputs of the two norms, and backward the
// gradient of the residual stream into both branches.
TEST(Autocast, ConvertsWeightsOnceInForward) {
  const Plan plan = *CompilePlan(Autocast(TinyLlama()));
  EXPECT_EQ(CopiesInLayer0(plan, Phase::kForward, DType::kFloat32, DType::kBFloat16), 4 + 2);
  EXPECT_EQ(CopiesInLayer0(plan, Phase::kBackward, DType::kFloat32, DType::kBFloat16), 2);
}

// Gradients of weights arrive in fp32, and so do those of the two norms' outputs.
TEST(Autocast, GradientsOfWeightsAreInFp32) {
  const Plan plan = *CompilePlan(Autocast(TinyLlama()));
  EXPECT_EQ(CopiesInLayer0(plan, Phase::kBackward, DType::kBFloat16, DType::kFloat32), 4 + 2);
  for (const Parameter& parameter : plan.roles[0].parameters) {
    const auto& buffers = plan.roles[0].buffers;
    const auto gradient = std::find_if(buffers.begin(), buffers.end(), [&](const Buffer& buffer) {
      return buffer.name == parameter.name + ".grad" && buffer.category == Category::kGradients;
    });
    ASSERT_NE(gradient, buffers.end()) << parameter.name;
    EXPECT_EQ(gradient->dtype, DType::kFloat32) << parameter.name;
  }
}

// All operands of an operator have one type, on which the kernels rely.
TEST(Autocast, NormsAndEmbeddingsStayInFp32AndProductsDoNot) {
  for (const Scenario& scenario : {TinyGpt(), TinyLlama()}) {
    const Plan plan = *CompilePlan(Autocast(scenario));
    const auto is_fp32 = [](const Op&, const auto& op) { return op.dtype == DType::kFloat32; };
    const auto is_bf16 = [](const Op&, const auto& op) { return op.dtype == DType::kBFloat16; };
    EXPECT_EQ(Count<NormForward>(plan, is_fp32), 5);
    EXPECT_EQ(Count<NormBackward>(plan, is_fp32), 5);
    EXPECT_EQ(Count<EmbeddingForward>(plan, is_fp32), 1);
    EXPECT_EQ(Count<EmbeddingBackward>(plan, is_fp32), 1);
    EXPECT_EQ(Count<AttentionForward>(plan, is_bf16), 2);
    EXPECT_EQ(Count<CrossEntropy>(plan, is_bf16), 1);
    EXPECT_EQ(Count<Gemm>(plan, is_fp32), 0);
    for (const Op& op : plan.roles[0].steady.ops) {
      const auto* gemm = std::get_if<Gemm>(&op.kind);
      if (gemm == nullptr) continue;
      for (const Slice& slice : op.reads)
        EXPECT_EQ(plan.roles[0].buffers[slice.buffer].dtype, DType::kBFloat16) << op.name;
    }
  }
}

// Recomputed operators convert their weights again in backward. Before that, the cache keeps the copies to
// the end of forward.
TEST(Autocast, WhatIsRecomputedConvertsItsWeightsAgain) {
  Scenario s = Autocast(TinyLlama());
  s.recompute = Recompute::kFull;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(CopiesInLayer0(plan, Phase::kForward, DType::kFloat32, DType::kBFloat16), 4 + 2);
  // (The down projection is not run again, but its weight is converted for its gradient.)
  EXPECT_EQ(CopiesInLayer0(plan, Phase::kRecompute, DType::kFloat32, DType::kBFloat16), 3 + 2);
  EXPECT_EQ(CopiesInLayer0(plan, Phase::kBackward, DType::kFloat32, DType::kBFloat16), 1 + 2);
  // A copy of forward is freed after the loss.
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  const auto loss = std::find_if(ops.begin(), ops.end(),
                                 [](const Op& op) { return std::holds_alternative<CrossEntropy>(op.kind); });
  const std::vector<MemoryOp>& memory = plan.roles[0].steady.memory;
  const auto freed = std::find_if(memory.begin(), memory.end(), [&](const MemoryOp& op) {
    return !op.allocates() && plan.roles[0].buffers[op.buffer].name == "blocks.0.attn.qkv.converted";
  });
  ASSERT_NE(freed, memory.end());
  EXPECT_GT(freed->before, loss - ops.begin());
}

// A layer that keeps its activations keeps its weights' copies, too, whatever follows it.
TEST(Autocast, LayersThatAreNotRecomputedConvertOnce) {
  Scenario s = Autocast(TinyLlama());
  s.recompute = Recompute::kFull;
  s.recompute_every = 2;  // of layers 0 and 1 the latter
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(CopiesInLayer0(plan, Phase::kForward, DType::kFloat32, DType::kBFloat16), 4 + 2);
  s.recompute = Recompute::kNone;
  s.recompute_every = 1;
  const Plan none = *CompilePlan(s);
  EXPECT_EQ(CopiesInLayer0(plan, Phase::kBackward, DType::kFloat32, DType::kBFloat16),
            CopiesInLayer0(none, Phase::kBackward, DType::kFloat32, DType::kBFloat16));
}

// Stages hand the residual stream to each other as it is.
TEST(Autocast, MessagesBetweenStagesAreInFp32) {
  Scenario s = Autocast(TinyGpt());
  s.parallel.pipeline.size = s.cluster.devices_per_node = 2;
  s.batch.accumulate = 2;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(Count<Send>(plan, [](const Op&, const Send& m) { return m.dtype == DType::kFloat32; }), 2);
}

// PyTorch's softmax returns fp32 under autocast; what the next product takes is rounded and kept beside it. With
// dropout, what is dropped is that copy.
TEST(Autocast, KeepsPytorchsProbabilitiesTwice) {
  Scenario s = Autocast(TinyGpt());
  s.model.attention = AttentionKind::kEager;
  s.cluster.device = "a100-sxm-80g";
  const int64_t scores = s.batch.micro * s.model.heads * s.model.seq_len * s.model.seq_len;
  const auto kept = [&](Framework framework, double dropout) {
    s.framework = framework;
    s.model.dropout = dropout;
    const Plan plan = *CompilePlan(s);
    std::vector<DType> types;
    for (const Op& op : plan.roles[0].steady.ops) {
      const auto* backward = std::get_if<AttentionBackward>(&op.kind);
      if (backward == nullptr || op.layer != 0) continue;
      EXPECT_EQ(backward->fp32_softmax, framework == Framework::kPytorch);
      for (size_t i = 3; i < op.reads.size(); ++i) {  // behind dout, qkv and out
        EXPECT_EQ(op.reads[i].elements, scores);
        types.push_back(plan.roles[0].buffers[op.reads[i].buffer].dtype);
      }
    }
    return types;
  };
  using Types = std::vector<DType>;
  EXPECT_EQ(kept(Framework::kPytorch, 0), (Types{DType::kFloat32, DType::kBFloat16}));
  EXPECT_EQ(kept(Framework::kPytorch, 0.1), (Types{DType::kFloat32, DType::kBFloat16}));
  EXPECT_EQ(kept(Framework::kWindtunnel, 0), (Types{DType::kBFloat16}));
}

}  // namespace
}  // namespace windtunnel
