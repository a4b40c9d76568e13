// What tensor parallelism sends, by Megatron's table, what waits for it, and which part of the model a rank
// has. Per layer there is an all-reduce of the residual stream's X after each of two halves, forward and
// backward; with sequence parallelism there are the all-reduce's two halves, and inputs are gathered again
// for weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "plan/plan.h"
#include "tests/plan/plan_checks.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario Tensor(Scenario s, int64_t ranks, bool sequence, bool tied = false) {
  s.parallel.tensor = {.size = ranks, .sequence = sequence};
  s.model.tie_embeddings = tied;
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

// Elements of the residual stream of a micro-batch: 2 x 16 tokens of 32.
constexpr int64_t kTokens = 32, kX = kTokens * 32;

// Counts the collectives of the steady step for which `take` is true, by kind. Expects that all have
// `elements`.
template <typename Take>
std::map<CollectiveKind, int> Count(const Plan& plan, int64_t elements, Take take) {
  std::map<CollectiveKind, int> count;
  for (const Op& op : plan.roles[0].steady.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective == nullptr || collective->kind == CollectiveKind::kBarrier || !take(op)) continue;
    EXPECT_EQ(collective->elements, elements) << op.name;
    ++count[collective->kind];
  }
  return count;
}

using Counts = std::map<CollectiveKind, int>;
constexpr auto kAllReduce = CollectiveKind::kAllReduce, kAllGather = CollectiveKind::kAllGather,
               kReduceScatter = CollectiveKind::kReduceScatter;

Counts OfLayer(const Plan& plan, Phase phase) {
  return Count(plan, kX, [&](const Op& op) { return op.layer == 0 && op.phase == phase; });
}

TEST(TensorParallel, ALayerReducesItsStreamTwiceForwardAndTwiceBackward) {
  for (const Scenario& model : {TinyGpt(), TinyLlama()}) {
    const Plan plan = *CompilePlan(Tensor(model, 2, false));
    EXPECT_EQ(OfLayer(plan, Phase::kForward), (Counts{{kAllReduce, 2}}));
    EXPECT_EQ(OfLayer(plan, Phase::kBackward), (Counts{{kAllReduce, 2}}));
  }
}

TEST(TensorParallel, WithSequenceItScattersAndGathersAndGathersInputsAgain) {
  for (const Scenario& model : {TinyGpt(), TinyLlama()}) {
    const Plan plan = *CompilePlan(Tensor(model, 2, true));
    EXPECT_EQ(OfLayer(plan, Phase::kForward), (Counts{{kAllGather, 2}, {kReduceScatter, 2}}));
    EXPECT_EQ(OfLayer(plan, Phase::kBackward), (Counts{{kAllGather, 4}, {kReduceScatter, 2}}));
  }
}

// The embedding's sum and the head's gradient; with sequence parallelism also the head's input, in forward
// and for the weight, and the embedding's gradient.
TEST(TensorParallel, EmbeddingAndHeadShareTheVocabulary) {
  const auto outside = [](Phase phase) {
    return [phase](const Op& op) { return op.layer < 0 && op.phase == phase; };
  };
  const Plan plan = *CompilePlan(Tensor(TinyGpt(), 2, false));
  EXPECT_EQ(Count(plan, kX, outside(Phase::kForward)), (Counts{{kAllReduce, 1}}));
  EXPECT_EQ(Count(plan, kX, outside(Phase::kBackward)), (Counts{{kAllReduce, 1}}));
  const Plan sequence = *CompilePlan(Tensor(TinyGpt(), 2, true));
  EXPECT_EQ(Count(sequence, kX, outside(Phase::kForward)), (Counts{{kAllGather, 1}, {kReduceScatter, 1}}));
  EXPECT_EQ(Count(sequence, kX, outside(Phase::kBackward)), (Counts{{kAllGather, 2}, {kReduceScatter, 1}}));
}

TEST(TensorParallel, TheLossTakesThreeNumbersATokenAndNeverWholeLogits) {
  for (bool sequence : {false, true}) {
    Scenario s = Tensor(TinyGpt(), 2, sequence);
    s.model.vocab = 4096;  // so that nothing else is as large as the logits
    const Plan plan = *CompilePlan(s);
    EXPECT_EQ(Count(plan, kTokens, [](const Op& op) { return op.phase == Phase::kLoss; }),
              (Counts{{kAllReduce, 3}}));
    int maxima = 0;
    for (const Op& op : plan.roles[0].steady.ops) {
      const auto* collective = std::get_if<Collective>(&op.kind);
      maxima += collective != nullptr && collective->reduction == Reduction::kMax;
    }
    EXPECT_EQ(maxima, 1);
    for (const Buffer& buffer : plan.roles[0].buffers)
      EXPECT_LT(buffer.bytes, Bytes(4) * (kTokens * s.model.vocab)) << buffer.name;
  }
}

TEST(TensorParallel, RecomputingABlockRepeatsItsCollectivesUpToWhatBackwardNeeds) {
  Scenario s = Tensor(TinyGpt(), 2, true);
  s.recompute = Recompute::kFull;
  // Nothing needs the down projection's output.
  EXPECT_EQ(OfLayer(*CompilePlan(s), Phase::kRecompute), (Counts{{kAllGather, 2}, {kReduceScatter, 1}}));
  s.framework = Framework::kMegatron;  // runs the whole block again
  EXPECT_EQ(OfLayer(*CompilePlan(s), Phase::kRecompute), (Counts{{kAllGather, 2}, {kReduceScatter, 2}}));
}

TEST(TensorParallel, GradientsOfWhatSeesOwnTokensOnlyAreSummedOnceAStep) {
  Scenario s = Tensor(TinyGpt(), 2, true);
  s.batch.accumulate = 3;
  const auto sums = [](const Op& op) { return op.name == "tensor sums"; };
  // Two layers of two norms (weight, bias) and two row-parallel biases, and the final norm: (2 (2 2 + 2) + 2)
  // 32.
  EXPECT_EQ(Count(*CompilePlan(s), 14 * 32, sums), (Counts{{kAllReduce, 1}}));
  s.parallel.tensor.sequence = false;  // every rank has seen all tokens
  EXPECT_EQ(Count(*CompilePlan(s), 0, sums), Counts{});
}

// ---- overlap

OpIndex Find(const Program& program, const std::string& name, auto is_kind) {
  for (OpIndex i = 0; i < static_cast<OpIndex>(program.ops.size()); ++i) {
    if (program.ops[i].name == name && is_kind(program.ops[i].kind)) return i;
  }
  ADD_FAILURE() << "no operator " << name;
  return -1;
}
bool IsGemm(const OpKind& kind) { return std::holds_alternative<Gemm>(kind); }
bool IsNormBackward(const OpKind& kind) { return std::holds_alternative<NormBackward>(kind); }
auto Is(CollectiveKind wanted) {
  return [wanted](const OpKind& kind) {
    const auto* collective = std::get_if<Collective>(&kind);
    return collective != nullptr && collective->kind == wanted;
  };
}
bool WaitsFor(const Program& program, OpIndex op, OpIndex dependency) {
  const auto& all = program.ops[op].dependencies;
  return std::find(all.begin(), all.end(), dependency) != all.end();
}

TEST(TensorParallel, TheWeightsGradientIsComputedWhileTheInputsIsSummed) {
  for (bool sequence : {false, true}) {
    const Plan plan = *CompilePlan(Tensor(TinyGpt(), 2, sequence));
    const Program& program = plan.roles[0].steady;
    const std::string up = "blocks.0.mlp.up";
    const OpIndex input = Find(program, up + ".input", IsGemm),
                  weight = Find(program, up + ".weight", IsGemm);
    const OpIndex sum = Find(program, up + ".dx", Is(sequence ? kReduceScatter : kAllReduce));
    EXPECT_LT(input, sum);
    EXPECT_LT(sum, weight);
    EXPECT_FALSE(WaitsFor(program, weight, sum));
    EXPECT_TRUE(WaitsFor(program, Find(program, "blocks.0.norm2", IsNormBackward), sum));
    if (!sequence) continue;
    // The input is gathered while its gradient is computed.
    const OpIndex gather = Find(program, up + ".x", Is(kAllGather));
    EXPECT_LT(gather, input);
    EXPECT_FALSE(WaitsFor(program, input, gather));
    EXPECT_TRUE(WaitsFor(program, weight, gather));
  }
}

// On four ranks, forward gets inputs of layers in three shifts and sends sums of GEMMs in three. Backward
// gathers output gradients the same way, but sums input gradients and gathers inputs for weights at once,
// behind other GEMMs.
TEST(TensorParallel, TokensGoAroundInParts) {
  Scenario s = Tensor(TinyGpt(), 4, true);
  s.model.heads = s.model.kv_heads = 4;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.parallel.tensor.overlap = true;
  const Plan plan = *CompilePlan(s);
  const auto of_layer = [&](Phase phase) {
    Counts counts;
    for (const Op& op : plan.roles[0].steady.ops) {
      const auto* collective = std::get_if<Collective>(&op.kind);
      if (collective == nullptr || op.layer != 0 || op.phase != phase) continue;
      EXPECT_EQ(collective->elements, collective->kind == CollectiveKind::kShift ? kX / 4 : kX) << op.name;
      ++counts[collective->kind];
    }
    return counts;
  };
  EXPECT_EQ(of_layer(Phase::kForward), (Counts{{CollectiveKind::kShift, 4 * 3}}));
  EXPECT_EQ(of_layer(Phase::kBackward),
            (Counts{{CollectiveKind::kShift, 2 * 3}, {kAllGather, 2}, {kReduceScatter, 2}}));
}

// The operators called `name` for which `is_kind` is true, in order.
std::vector<OpIndex> FindAll(const Program& program, const std::string& name, auto is_kind) {
  std::vector<OpIndex> found;
  for (OpIndex i = 0; i < static_cast<OpIndex>(program.ops.size()); ++i) {
    if (program.ops[i].name == name && is_kind(program.ops[i].kind)) found.push_back(i);
  }
  return found;
}

TEST(TensorParallel, AProductOfAPartWaitsForThatPartAlone) {
  Scenario s = Tensor(TinyGpt(), 4, true);
  s.model.heads = s.model.kv_heads = 4;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.parallel.tensor.overlap = true;
  const Plan plan = *CompilePlan(s);
  const Program& program = plan.roles[0].steady;
  const std::string up = "blocks.0.mlp.up", down = "blocks.0.mlp.down";
  for (const auto& [product, message] : {std::pair{up, up}, {down + ".input", down + ".dy"}}) {
    const std::vector<OpIndex> products = FindAll(program, product, IsGemm);
    ASSERT_EQ(products.size(), 4u) << product;
    for (int step = 0; step < 4; ++step) {
      const auto& gemm = std::get<Gemm>(program.ops[products[step]].kind);
      EXPECT_EQ(gemm.m, kTokens / 4);
      for (int other = 1; other < 4; ++other) {
        const OpIndex shift =
            Find(program, message + "." + std::to_string(other), Is(CollectiveKind::kShift));
        EXPECT_EQ(WaitsFor(program, products[step], shift), step == other) << product << step << other;
      }
      // The part that it takes is that of the rank `step` before, and so is the part that it makes.
      const Slice& y = program.ops[products[step]].writes[0];
      for (int rank = 0; rank < 4; ++rank)
        EXPECT_EQ(Locate(y, rank).first, (rank + 4 - step) % 4 * y.elements);
    }
  }
  // A part goes to its rank while the next is computed. Last come the rank's own part and the sum of all.
  const std::vector<OpIndex> products = FindAll(program, down, IsGemm);
  ASSERT_EQ(products.size(), 4u);
  const OpIndex sum =
      Find(program, down + ".sum", [](const OpKind& kind) { return std::holds_alternative<SumParts>(kind); });
  for (int step = 0; step < 4; ++step) {
    const Slice& x = program.ops[products[step]].reads[0];
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(Locate(x, rank).first, (rank + step + 1) % 4 * x.elements);
    if (step == 3) break;
    const OpIndex shift = Find(program, down + "." + std::to_string(step + 1), Is(CollectiveKind::kShift));
    EXPECT_EQ(std::get<Collective>(program.ops[shift].kind).distance, step + 1);
    EXPECT_LT(products[step], shift);
    EXPECT_LT(shift, products[step + 1]);
    EXPECT_FALSE(WaitsFor(program, products[step + 1], shift));
  }
  EXPECT_TRUE(WaitsFor(program, sum, Find(program, down + ".3", Is(CollectiveKind::kShift))));
}

// Queries, keys and values each take a part when it arrives. Weight gradients take all parts.
TEST(TensorParallel, ModulesTakeEachPartTogether) {
  Scenario s = Tensor(TinyLlama(), 2, true);
  s.framework = Framework::kPytorch;
  s.parallel.tensor.overlap = true;
  const Plan plan = *CompilePlan(s);
  const Program& program = plan.roles[0].steady;
  std::vector<OpIndex> order;
  for (const char* name : {"blocks.0.attn.q", "blocks.0.attn.k", "blocks.0.attn.v"}) {
    const auto products = FindAll(program, name, IsGemm);
    ASSERT_EQ(products.size(), 2u) << name;
    order.insert(order.end(), products.begin(), products.end());
  }
  EXPECT_LT(order[4], order[1]) << "all of the first part, then all of the second";
}

// The rank's own part is copied beside the others only where all of them are used later: output gradients, by
// weight gradients.
TEST(TensorParallel, OwnPartsAreCopiedForLaterUsesOnly) {
  for (const Precision compute : {Precision::kBf16, Precision::kFp8}) {
    Scenario s = Tensor(TinyLlama(), 2, true);
    s.framework = Framework::kMegatronCore;
    s.precision.param = Precision::kBf16;
    s.precision.compute = compute;
    s.precision.fp8_recipe = compute == Precision::kFp8 ? Fp8Recipe::kDelayed : Fp8Recipe::kNone;
    s.parallel.tensor.overlap = true;
    const auto plan = CompilePlan(s);
    ASSERT_TRUE(plan) << plan.error().message;
    std::map<Phase, int> copies;
    for (const Op& op : plan->roles[0].steady.ops)
      copies[op.phase] += op.layer == 0 && op.name.ends_with(".own");
    EXPECT_EQ(copies[Phase::kForward], 0);
    EXPECT_EQ(copies[Phase::kBackward], 2);
  }
}

TEST(TensorParallel, ProductsInPartsAreTheSameWork) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kPytorch, Framework::kMegatronCore}) {
    const auto flops = [&](bool overlap) {
      Scenario s = Tensor(TinyLlama(), 2, true);
      s.framework = framework;
      s.parallel.tensor.overlap = overlap;
      const Plan plan = *CompilePlan(s);
      double sum = 0;
      for (const Op& op : plan.roles[0].steady.ops)
        if (const auto* gemm = std::get_if<Gemm>(&op.kind)) sum += 2.0 * gemm->m * gemm->n * gemm->k;
      return sum;
    };
    EXPECT_EQ(flops(true), flops(false));
  }
}

// ---- parts

TEST(TensorParallel, NormsWorkOnOwnTokensWithSequenceOnly) {
  for (bool sequence : {false, true}) {
    const Plan plan = *CompilePlan(Tensor(TinyGpt(), 2, sequence));
    for (const Op& op : plan.roles[0].steady.ops) {
      if (const auto* norm = std::get_if<NormForward>(&op.kind)) {
        EXPECT_EQ(norm->rows, sequence ? kTokens / 2 : kTokens) << op.name;
      }
      if (const auto* attention = std::get_if<AttentionForward>(&op.kind)) {
        EXPECT_EQ(attention->heads, 1);
        EXPECT_EQ(attention->seq, 16);
      }
    }
  }
}

TEST(TensorParallel, RanksPartsMakeUpEveryParameterOnce) {
  for (const Scenario& model : {TinyGpt(), TinyLlama()}) {
    const Plan plan = *CompilePlan(Tensor(model, 2, false)), alone = *CompilePlan(model);
    EXPECT_EQ(plan.model.parameters, alone.model.parameters);
    const auto& parameters = plan.roles[0].parameters;
    ASSERT_EQ(parameters.size(), alone.roles[0].parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter &parameter = parameters[i], &whole = alone.roles[0].parameters[i];
      EXPECT_EQ(parameter.name, whole.name);
      EXPECT_EQ(parameter.whole_shape, whole.shape);
      EXPECT_EQ(parameter.ordinal, whole.ordinal);
      if (parameter.part.empty()) {
        EXPECT_EQ(parameter.elements, whole.elements);
        continue;
      }
      EXPECT_EQ(parameter.elements, whole.elements / 2);
      std::vector<int> times(whole.elements);
      for (int rank = 0; rank < 2; ++rank) {
        ForEachRun(parameter.part, rank, 0, parameter.elements,
                   [&](int64_t, int64_t first, int64_t elements) {
                     for (int64_t e = first; e < first + elements; ++e) ++times[e];
                   });
      }
      EXPECT_EQ(times, std::vector<int>(whole.elements, 1)) << parameter.name;
    }
  }
}

// Queries, keys and values lie one after the other; each rank has heads of all three.
TEST(TensorParallel, ARankHasHeadsOfQueriesKeysAndValues) {
  const Plan plan = *CompilePlan(Tensor(TinyLlama(), 2, false));  // 4 heads and 2 key heads of 8
  const auto& parameters = plan.roles[0].parameters;
  const auto qkv = std::find_if(parameters.begin(), parameters.end(),
                                [](const Parameter& p) { return p.name == "blocks.0.attn.qkv.weight"; });
  ASSERT_NE(qkv, parameters.end());
  std::vector<std::array<int64_t, 3>> rows;
  ForEachRun(qkv->part, /*position=*/1, 0, qkv->elements,
             [&](int64_t local, int64_t whole, int64_t elements) {
               rows.push_back({local / 32, whole / 32, elements / 32});
             });
  EXPECT_EQ(rows, (std::vector<std::array<int64_t, 3>>{{0, 16, 16}, {16, 32 + 8, 8}, {24, 48 + 8, 8}}));
}

TEST(TensorParallel, TheWorkIsShared) {
  const auto flops = [](const Plan& plan) {
    double sum = 0;
    for (const Op& op : plan.roles[0].steady.ops) sum += FlopsOf(op.kind).count();
    return sum;
  };
  const double alone = flops(*CompilePlan(TinyGpt()));
  for (bool sequence : {false, true})
    EXPECT_DOUBLE_EQ(flops(*CompilePlan(Tensor(TinyGpt(), 2, sequence))), alone / 2);
}

// With offload, sums over tensor ranks still run on the device: of gradients before they leave it, or of
// those that come back.
TEST(TensorParallel, SumsOverRanksOnTheDeviceWithOffload) {
  for (Offload offload : {Offload::kOptimizer, Offload::kParam}) {
    Scenario s = TinyGpt(2);
    s.parallel.data.kind = DataParallelKind::kFsdp;
    s.parallel.data.offload = offload;
    const Plan plan = *CompilePlan(Tensor(s, 2, true));
    const Role& role = plan.roles[0];
    std::vector<std::string> crossings;
    int sums = 0;
    for (const Op& op : role.steady.ops) {
      if (op.name != "tensor sums") continue;
      if (const Copy* copy = std::get_if<Copy>(&op.kind)) {
        crossings.push_back(copy->crosses == Copy::Crosses::kToDevice ? "to device" : "to host");
      }
      if (!std::holds_alternative<Collective>(op.kind)) continue;
      ++sums;
      EXPECT_EQ(role.buffers[op.reads[0].buffer].space, MemorySpace::kDevice);
    }
    EXPECT_EQ(sums, 1);
    EXPECT_EQ(crossings, offload == Offload::kParam ? (std::vector<std::string>{"to device", "to host"})
                                                    : std::vector<std::string>());
  }
}

// ---- MLPs, in pairs of layers

Scenario TensorMlp(std::vector<int64_t> widths, int64_t ranks) {
  Scenario s = TinyMlp();
  s.model.widths = std::move(widths);
  return Tensor(s, ranks, false);
}

// The model of PyTorch's tutorial, torch.nn.Linear(10, 32), ReLU, Linear(32, 5), with {"net1":
// ColwiseParallel(), "net2": RowwiseParallel()}: one all-reduce of the output, and none backward, since
// nothing needs the input's gradient.
TEST(TensorParallelMlp, SumsTheOutputOfEachPair) {
  const auto all = [](const Op&) { return true; };
  const auto in = [](Phase phase) { return [=](const Op& op) { return op.phase == phase; }; };
  const Plan toy = *CompilePlan(TensorMlp({10, 32, 5}, 2));
  EXPECT_EQ(Count(toy, 20 * 5, all), (Counts{{kAllReduce, 1}}));
  // Between pairs there is a sum in each direction; a layer without a partner is whole, and nothing is sent
  // for it.
  const Plan pairs = *CompilePlan(TensorMlp({10, 32, 6, 48, 6}, 2));
  EXPECT_EQ(Count(pairs, 20 * 6, in(Phase::kForward)), (Counts{{kAllReduce, 2}}));
  EXPECT_EQ(Count(pairs, 20 * 6, in(Phase::kBackward)), (Counts{{kAllReduce, 1}}));
  const Plan odd = *CompilePlan(TensorMlp({10, 32, 6, 7}, 2));
  EXPECT_EQ(Count(odd, 20 * 6, all), (Counts{{kAllReduce, 1}}));
}

TEST(TensorParallelMlp, GivesRanksPartsOfTheLayersOfAPair) {
  const Plan plan = *CompilePlan(TensorMlp({10, 32, 6, 7}, 4));
  const std::map<std::string, std::vector<int64_t>> shapes = {
      {"layers.0.weight", {8, 10}}, {"layers.0.bias", {8}},      {"layers.1.weight", {6, 8}},
      {"layers.1.bias", {6}},       {"layers.2.weight", {7, 6}}, {"layers.2.bias", {7}}};
  ASSERT_EQ(plan.roles[0].parameters.size(), shapes.size());
  for (const Parameter& parameter : plan.roles[0].parameters)
    EXPECT_EQ(parameter.shape, shapes.at(parameter.name)) << parameter.name;
  EXPECT_EQ(plan.model.parameters, 10 * 32 + 32 + 32 * 6 + 6 + 6 * 7 + 7);
}

// A pipeline may be cut within a pair; the rank's part is then sent.
TEST(TensorParallelMlp, SendsPartsBetweenStages) {
  Scenario s = TensorMlp({10, 32, 6}, 2);
  s.parallel.pipeline.size = 2;
  s.batch.accumulate = 2;
  s.cluster.devices_per_node = 4;
  const Plan plan = *CompilePlan(s);
  int messages = 0;
  for (const Op& op : plan.roles[0].steady.ops) {
    const Send* send = std::get_if<Send>(&op.kind);
    if (send == nullptr) continue;
    EXPECT_EQ(send->elements, 20 * 32 / 2);
    ++messages;
  }
  EXPECT_EQ(messages, 2);
}

// ---- what cannot be

TEST(TensorParallel, RefusesWhatDoesNotDivideByItsKey) {
  Scenario s = Tensor(TinyLlama(), 4, false);
  ExpectRefused(s, "model.kv_heads");
  s = Tensor(TinyGpt(), 4, false);
  ExpectRefused(s, "model.heads");
  s = Tensor(TinyGpt(), 2, false);
  s.model.vocab = 63;
  ExpectRefused(s, "model.vocab");
  s = Tensor(TinyGpt(), 2, false);
  s.model.ffn = 127;
  ExpectRefused(s, "model.ffn");
  s = Tensor(TinyMlp(), 2, false);
  s.model.widths = {10, 33, 5};
  ExpectRefused(s, "model.widths");
  s.model.widths = {10, 32};
  ExpectRefused(s, "parallel.tensor.size");
  s = Tensor(TinyMlp(), 2, true);
  ExpectRefused(s, "parallel.tensor.sequence");
}

TEST(TensorParallel, RefusesToOverlapSumsOfWholeActivations) {
  Scenario s = Tensor(TinyGpt(), 2, false);
  s.parallel.tensor.overlap = true;
  ExpectRefused(s, "parallel.tensor.overlap");
}

TEST(TensorParallel, RefusesTokensThatDoNotDivideWithSequenceOnly) {
  Scenario s = Tensor(TinyGpt(), 2, true);
  s.model.seq_len = 15;
  s.batch.micro = 1;
  ExpectRefused(s, "parallel.tensor.sequence");
  s.parallel.tensor.sequence = false;
  EXPECT_TRUE(CompilePlan(s));
  // 12 tokens, of which context ranks have 6 each.
  s = Tensor(TinyLlama(), 4, true);
  s.model.heads = s.model.kv_heads = 4;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.attention = AttentionKind::kFlash;
  s.model.seq_len = 12;
  s.batch.micro = 1;
  s.parallel.context.size = 2;
  ExpectRefused(s, "parallel.tensor.sequence");
}

}  // namespace
}  // namespace windtunnel
