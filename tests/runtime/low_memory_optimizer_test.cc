// Optimizers that keep less: moments in 8 bits (optimizer.moments), and updates in backward
// (optimizer.in_backward).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/checkpoint/tensor_pieces.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;

Scenario WithAdamW(Scenario s) {
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3, .eps = kParityEps, .weight_decay = 0.01};
  return s;
}
Scenario InBackward(Scenario s) {
  s.optimizer.in_backward = true;
  return s;
}
Scenario In8Bits(Scenario s) {
  s.optimizer.moments = MomentsType::kInt8;
  return s;
}
// So that the largest matrices have more than kLeastIn8Bits elements.
Scenario Wide(Scenario s) {
  s.model.hidden = 64;
  s.model.ffn = 128;
  s.model.head_dim = s.model.hidden / s.model.heads;
  return s;
}
Scenario Bf16(Scenario s) {
  s.precision.param = s.precision.compute = Precision::kBf16;
  return s;
}
Scenario TinyMixture(int64_t ranks = 1) {
  Scenario s = TinyLlama(ranks);
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
  return s;
}
Scenario TinyT5() {
  Scenario s = TinyGpt();
  s.model.encoder = EncoderSpec{.layers = 2, .seq_len = 24};
  s.model.position = PositionKind::kRelative;
  s.model.tie_embeddings = true;
  return s;
}

std::vector<ParityCase> UpdatedInBackward() {
  Scenario chunks = TinyLlama();
  chunks.cross_entropy_chunks = 4;
  Scenario further = TinyLlama();
  further.model.mtp = TokenPredictionSpec{};
  Scenario muon = TinyGpt();
  muon.optimizer.kind = OptimizerKind::kMuon;
  Scenario pytorch = TinyGpt();
  pytorch.framework = Framework::kPytorch;
  Scenario hybrid = Kind(TinyGpt(4), kFsdp);
  hybrid.parallel.data.sharding = Sharding::kHybridShard;
  hybrid.parallel.data.shard_size = 2;
  const auto kept = [](Sharding sharding) {
    Scenario s = Kind(TinyGpt(2), kFsdp);
    s.parallel.data.sharding = sharding;
    return s;
  };
  Scenario quantized = Adapted(Wide(TinyLlama()));
  quantized.model.lora->quantize = Quantization::kNf4;
  quantized.model.lora->dropout = 0.1;
  Scenario latent = TinyLlama();
  latent.model.kv_heads = latent.model.heads;
  latent.model.latent_attention = LatentAttentionSpec{.q_rank = 8, .kv_rank = 8, .rope_dim = 4};
  return {
      {"Gpt", TinyGpt()},
      {"TiedGpt", Tied(TinyGpt())},
      {"Llama", TinyLlama()},
      {"Qwen3", TinyQwen3()},
      {"Olmo", TinyOlmo()},
      {"Neox", TinyNeox()},
      {"CommandR", TinyCommandR()},
      {"Mixture", TinyMixture()},
      {"T5", TinyT5()},
      {"Mlp", TinyMlp()},
      {"Pytorch", pytorch},
      {"LossInChunks", chunks},
      {"FurtherTokens", further},
      {"Muon", muon},
      {"Latent", latent},
      {"Adapters", Adapted(TinyGpt())},
      {"AdaptersOfPackedWeights", quantized},
      {"Recomputed", Recomputed(TinyGpt(), Recompute::kFull)},
      {"SomeRecomputed", Recomputed(TinyLlama(), Recompute::kSelectiveOp)},
      {"Bf16", Bf16(TinyGpt())},
      {"Autocast", Autocast(TinyLlama())},
      {"In8Bits", In8Bits(Wide(TinyGpt()))},
      {"Fsdp", Kind(TinyLlama(2), kFsdp)},
      {"FsdpOfOne", Kind(TinyGpt(1), kFsdp)},
      {"FsdpBf16", Bf16(Kind(TinyGpt(2), kFsdp))},
      {"FsdpHybrid", hybrid},
      {"FsdpShardGradOp", kept(Sharding::kShardGradOp)},
      {"FsdpNoShard", kept(Sharding::kNoShard)},
      {"FsdpAdapters", Adapted(Kind(TinyLlama(2), kFsdp))},
      {"FsdpIn8Bits", In8Bits(Wide(Kind(TinyGpt(2), kFsdp)))},
      {"FsdpContext", Context(Kind(TinyLlama(1), kFsdp), ContextKind::kRing)},
  };
}

class InBackwardTraining : public testing::TestWithParam<ParityCase> {};
INSTANTIATE_TEST_SUITE_P(Of, InBackwardTraining, testing::ValuesIn(UpdatedInBackward()), NameOf);

// Bit by bit: nothing reads a parameter in backward once it is updated.
TEST_P(InBackwardTraining, IsThatOfTheOptimizerBehindIt) {
  Scenario s = GetParam().scenario;
  if (s.optimizer.kind != OptimizerKind::kMuon) {
    const MomentsType moments = s.optimizer.moments;
    s = WithAdamW(s);
    s.optimizer.moments = moments;
  }
  const auto behind = CompilePlan(s), within = CompilePlan(InBackward(s));
  ASSERT_TRUE(behind) << behind.error().message;
  ASSERT_TRUE(within) << within.error().message;
  const Trained expected = Train(*behind, 6), got = Train(*within, 6);
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.weights, expected.weights);
  EXPECT_NE(got.losses.back(), got.losses.front());
}

TEST_P(InBackwardTraining, PeaksAreExact) { ExpectExactPeaks(*CompilePlan(InBackward(GetParam().scenario))); }

// The most that gradients take at a time.
Bytes MostOfGradients(const Scenario& scenario) {
  const Plan plan = *CompilePlan(scenario);
  Bytes now, least, most;  // beside what the step before has left
  for (const MemoryOp& op : plan.roles[0].steady.memory) {
    const Buffer& buffer = plan.roles[0].buffers[op.buffer];
    if (buffer.category != Category::kGradients) continue;
    now = op.kind == MemoryOp::Kind::kAlloc ? now + buffer.bytes : now - buffer.bytes;
    least = std::min(least, now);
    most = std::max(most, now);
  }
  return most - least;
}

Scenario EightLayers(Scenario s) {
  s.model.layers = 8;
  s.model.hidden = 64;
  s.model.head_dim = 16;
  s.batch.micro = 1;
  return s;
}

// Between steps there are no gradients, and in backward at most those of one layer.
TEST(InBackward, KeepsNoGradients) {
  const Scenario s = EightLayers(TinyLlama());
  const Bytes largest(int64_t{4} * 64 * 2 * 128);  // gate and up
  EXPECT_EQ(MostOfGradients(InBackward(s)), largest);
  EXPECT_GT(MostOfGradients(s), largest * int64_t{8});
}

// With FSDP, of two units at the most, also where replicas sum their shards.
TEST(InBackward, KeepsGradientsOfTwoUnitsWithFsdp) {
  for (const int64_t shards : {4, 2}) {
    Scenario s = EightLayers(Kind(TinyLlama(4), kFsdp));
    if (shards < 4) {
      s.parallel.data.sharding = Sharding::kHybridShard;
      s.parallel.data.shard_size = shards;
    }
    const Plan plan = *CompilePlan(s);
    Bytes unit;
    for (const Parameter& parameter : plan.roles[0].parameters)
      if (parameter.layer == 0) unit = unit + Bytes(4 * parameter.elements);
    EXPECT_LT(MostOfGradients(InBackward(s)), unit * int64_t{2}) << shards;
    EXPECT_GT(MostOfGradients(s), MostOfGradients(InBackward(s)) + unit) << shards;
  }
}

// As hooks do, each with an optimizer for its parameter.
TEST(InBackward, UpdatesParameterByParameter) {
  for (const Scenario& s : {TinyGpt(), Kind(TinyGpt(2), kFsdp)}) {
    const Plan plan = *CompilePlan(InBackward(s));
    const auto updates =
        std::count_if(plan.roles[0].steady.ops.begin(), plan.roles[0].steady.ops.end(),
                      [](const Op& op) { return std::holds_alternative<OptimizerUpdate>(op.kind); });
    EXPECT_EQ(static_cast<size_t>(updates), plan.roles[0].parameters.size());
  }
}

class In8BitsTraining : public testing::TestWithParam<ParityCase> {};
INSTANTIATE_TEST_SUITE_P(Of, In8BitsTraining,
                         testing::Values(ParityCase{"Device", Wide(TinyGpt())},
                                         ParityCase{"DeviceBf16", Bf16(Wide(TinyLlama()))},
                                         ParityCase{"Ddp", Wide(TinyLlama(2))},
                                         ParityCase{"DataParallel", Dp(Wide(TinyGpt(2)))},
                                         ParityCase{"Fsdp", Kind(Wide(TinyGpt(2)), kFsdp)},
                                         ParityCase{"FsdpOnThree", Kind(Wide(TinyLlama(3)), kFsdp)},
                                         ParityCase{"FsdpBf16", Bf16(Kind(Wide(TinyGpt(2)), kFsdp))},
                                         ParityCase{"Tensor", Tensor(Wide(TinyLlama()), true)},
                                         ParityCase{"Staged", Staged(Wide(TinyGpt(2)), "1f1b")}),
                         NameOf);

// Moments are off by a per cent or two each, and so is each update.
TEST_P(In8BitsTraining, GoesAlongFp32) {
  const Scenario s = WithAdamW(GetParam().scenario);
  const auto plan = CompilePlan(In8Bits(s)), exact = CompilePlan(s);
  ASSERT_TRUE(plan) << plan.error().message;
  const Trained narrow = Train(*plan, kParitySteps), whole = Train(*exact, kParitySteps);
  for (int step = 0; step < kParitySteps; ++step)
    EXPECT_NEAR(narrow.losses[step], whole.losses[step], 4e-3 * whole.losses[step]) << "step " << step;
  EXPECT_NE(narrow.losses, whole.losses) << "moments were rounded";
  EXPECT_LT(narrow.losses.back(), narrow.losses.front());
}

TEST_P(In8BitsTraining, PeaksAreExact) {
  ExpectExactPeaks(*CompilePlan(In8Bits(WithAdamW(GetParam().scenario))));
}

// 260 bytes for 256 numbers of each larger tensor; fp32 for the others. Shards of FSDP 2 are tensors.
TEST(In8Bits, TakeAByteAndTheirScales) {
  for (const Scenario& s : {Wide(TinyGpt()), Kind(Wide(TinyGpt(2)), kFsdp)}) {
    const Plan plan = *CompilePlan(In8Bits(s));
    const Role& role = plan.roles[0];
    Bytes expected, stored;
    for (const Parameter& parameter : role.parameters) {
      const int64_t own = parameter.values.per_rank > 0 ? parameter.values.per_rank : parameter.elements;
      expected = expected + (own < kLeastIn8Bits ? Bytes(8 * own) : Bytes(2 * 260 * ((own + 255) / 256)));
    }
    for (const OptimizerState& state : role.optimizer_states)
      stored = stored + role.buffers[state.state.buffer].bytes;
    EXPECT_EQ(stored, expected);
  }
}

// What checkpoints hold, fp32, becomes the same bytes again.
TEST(In8Bits, AreTheSameWhenReadAgain) {
  for (const Scenario& s :
       {Wide(TinyLlama(2)), Kind(Wide(TinyGpt(2)), kFsdp), Kind(Wide(TinyGpt(3)), kFsdp)}) {
    const Plan plan = *CompilePlan(In8Bits(WithAdamW(s)));
    WithRanks(plan, [&](RankSession& session, Store&) -> Status {
      for (int step = 0; step < 3; ++step) WT_RETURN_IF_ERROR(session.Step());
      Executor& executor = session.executor();
      for (const TensorPiece& piece : PiecesOf(plan, session.rank(), /*with_optimizer=*/true)) {
        WT_ASSIGN_OR_RETURN(const auto values, executor.Values(piece.local));
        const std::vector<float> before(values.begin(), values.end());
        EXPECT_TRUE(std::any_of(before.begin(), before.end(), [](float x) { return x != 0; }))
            << piece.tensor;
        WT_RETURN_IF_ERROR(executor.SetValues(piece.local, before));
        WT_ASSIGN_OR_RETURN(const auto again, executor.Values(piece.local));
        EXPECT_EQ(before, std::vector<float>(again.begin(), again.end())) << piece.tensor;
      }
      return Ok();
    });
  }
}

}  // namespace
}  // namespace windtunnel
