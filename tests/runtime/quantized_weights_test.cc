// Frozen weights in 4 bits (model.lora.quantize). Every strategy computes with the same ones, and memory is
// predicted to the byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/plan.h"
#include "runtime/checkpoint/tensor_pieces.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;
constexpr Quantization kNf4 = Quantization::kNf4, kNf4Double = Quantization::kNf4Double;

Scenario Quantized(Scenario s, Quantization quantize = kNf4) {
  s.name += "-qlora";
  s.model.lora = LoraSpec{.rank = 3, .alpha = 6, .quantize = quantize};
  return s;
}
Scenario Llama(int64_t ranks, Quantization quantize = kNf4) { return Quantized(TinyLlama(ranks), quantize); }
Scenario Gpt(int64_t ranks, Quantization quantize = kNf4) { return Quantized(TinyGpt(ranks), quantize); }
// Each tensor rank's part of a row has whole blocks of 64 weights.
Scenario Wide(Scenario s) {
  s.model.hidden = s.model.ffn = 128;
  s.model.head_dim = s.model.hidden / s.model.heads;
  return s;
}
Scenario Offloaded(Scenario s) {
  s.parallel.data.offload = Offload::kParam;
  return s;
}
Scenario In16Bits(Scenario s) {
  s.precision.param = s.precision.compute = Precision::kBf16;
  return s;
}
Scenario InFramework(Scenario s, Framework framework) {
  s.framework = framework;
  return s;
}

class QuantizedParity : public testing::TestWithParam<ParityCase> {};

TEST_P(QuantizedParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(QuantizedParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

// With scales in 8 bits, shards that are not whole groups of 256 blocks have scales of their own: only what
// is whole on each rank is as on one device.
INSTANTIATE_TEST_SUITE_P(
    Of, QuantizedParity,
    testing::Values(ParityCase{"Ddp", Kind(Llama(2), kDdp)},
                    ParityCase{"DdpDouble", Clipped(Kind(Gpt(2, kNf4Double), kDdp))},
                    ParityCase{"Zero1", Clipped(Kind(Gpt(2), kZero1))},
                    ParityCase{"Zero2Double", Kind(Llama(2, kNf4Double), kZero2)},
                    ParityCase{"Fsdp", Clipped(Kind(Llama(2), kFsdp))},
                    ParityCase{"FsdpOnThree", Kind(Wide(Gpt(3)), kFsdp)},
                    ParityCase{"FsdpFull", Recomputed(Kind(Gpt(2), kFsdp), Recompute::kFull)},
                    ParityCase{"FsdpOffload", Offloaded(Kind(Llama(2), kFsdp))},
                    ParityCase{"FsdpOffloadOfOne", Offloaded(Kind(Llama(1, kNf4Double), kFsdp))},
                    ParityCase{"Tensor", Clipped(Tensor(Wide(Llama(1)), false))},
                    ParityCase{"TensorSequenceFsdp", Tensor(Kind(Wide(Gpt(2)), kFsdp), true)},
                    ParityCase{"Ring", Context(Kind(Llama(1), kDdp), ContextKind::kRing)},
                    ParityCase{"StagedHalves", Staged(Llama(1), "zb_h1")},
                    ParityCase{"StagedFsdp", Staged(Kind(Llama(2), kFsdp), "1f1b")},
                    // The second stage's first parameter is frozen and in 4 bits.
                    ParityCase{"StagedOlmo", Staged(Kind(Quantized(TinyOlmo(2)), kDdp), "1f1b")},
                    ParityCase{"StagedOlmoZero1", Staged(Kind(Quantized(TinyOlmo(2)), kZero1), "1f1b")},
                    ParityCase{"StagedOlmoFsdp", Staged(Kind(Quantized(TinyOlmo(2)), kFsdp), "1f1b")},
                    ParityCase{"Modules", InFramework(Kind(Gpt(2), kFsdp), Framework::kPytorch)}),
    NameOf);

// The weights of blocks' linear layers are within half a step of 4 bits of what they were, and no others change.
TEST(QuantizedWeights, AreNearTheirValues) {
  constexpr double kWidestStep = 1.0 - 0.6961928;  // between -1 and its neighbour
  for (const Quantization quantize : {kNf4, kNf4Double}) {
    const Scenario s = Llama(1, quantize);
    Scenario plain = s;
    plain.model.lora->quantize = Quantization::kNone;
    const Plan plan = *CompilePlan(s);
    const Trained packed = Train(plan, 1), whole = Train(*CompilePlan(plain), 1);
    size_t changed = 0;
    for (size_t i = 0; i < plan.roles[0].parameters.size(); ++i) {
      const Parameter& parameter = plan.roles[0].parameters[i];
      if (!parameter.is_frozen) continue;
      if (!parameter.packed) {
        EXPECT_EQ(packed.weights[i], whole.weights[i]) << parameter.name;
        continue;
      }
      ++changed;
      const std::vector<float>& values = whole.weights[i];
      float most = 0;
      for (const float value : values) most = std::max(most, std::fabs(value));
      double difference = 0, all = 0;
      for (size_t k = 0; k < values.size(); ++k) {
        EXPECT_LE(std::fabs(packed.weights[i][k] - values[k]), kWidestStep / 2 * most * 1.01)
            << parameter.name;
        difference += std::pow(packed.weights[i][k] - values[k], 2);
        all += std::pow(values[k], 2);
      }
      EXPECT_LT(std::sqrt(difference / all), 0.11) << parameter.name;  // 0.09 for normal weights
    }
    EXPECT_EQ(changed, 4u * 2u);  // qkv, proj, gate_up and down of two layers
  }
}

// 4.5 bits a weight, and 4.13 with scales of 8 bits, whose groups of 256 blocks all weights here fill.
TEST(QuantizedWeights, TakeHalfAByteAndTheirScales) {
  for (const DataParallelKind kind : {kDdp, kZero1, kFsdp}) {
    for (const auto& [quantize, bytes] :
         {std::pair(kNf4, 36.0 / 64), std::pair(kNf4Double, 8452.0 / 16384)}) {
      Scenario s = Kind(Llama(2, quantize), kind);
      s.model.hidden = s.model.ffn = 256;
      s.model.kv_heads = s.model.heads;
      s.model.head_dim = 64;
      const Plan plan = *CompilePlan(s);
      const int ranks = kind == kFsdp ? 2 : 1;
      double stored = 0, numbers = 0;
      std::vector<BufferId> seen;
      for (const Parameter& parameter : plan.roles[0].parameters) {
        if (!parameter.packed) continue;
        numbers += static_cast<double>(parameter.elements) / ranks;
        const BufferId id = parameter.values.buffer;
        if (std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
        seen.push_back(id);
        const Buffer& buffer = plan.roles[0].buffers[id];
        stored += static_cast<double>(buffer.bytes.count());
      }
      EXPECT_DOUBLE_EQ(stored / numbers, bytes);
    }
  }
}

// Shards of 6 x 24 = 144 weights, of which the last block has 16: each rank has scales of its own.
TEST(QuantizedWeights, CanBeShardedAnywhere) {
  for (const Quantization quantize : {kNf4, kNf4Double}) {
    Scenario s = Kind(Gpt(4, quantize), kFsdp);
    s.model.hidden = 24;
    s.model.head_dim = 12;
    s.model.ffn = 40;
    const Trained ranks = Train(*CompilePlan(s), 10), one = Train(*CompilePlan(OnOneDevice(s)), 10);
    for (int step = 0; step < 10; ++step)
      EXPECT_NEAR(ranks.losses[step], one.losses[step], 0.01 * one.losses[step]) << "step " << step;
    ExpectExactPeaks(*CompilePlan(s));
  }
}

// What checkpoints hold, fp32, becomes the same 4 bits again.
TEST(QuantizedWeights, AreTheSameWhenReadAgain) {
  for (const Scenario& s :
       {Kind(Llama(2), kDdp), Kind(Gpt(2, kNf4Double), kFsdp), Offloaded(Kind(Gpt(2), kFsdp))}) {
    const Plan plan = *CompilePlan(s);
    WithRanks(plan, [&](RankSession& session, Store&) -> Status {
      Executor& executor = session.executor();
      for (const TensorPiece& piece : PiecesOf(plan, session.rank(), /*with_optimizer=*/false)) {
        WT_ASSIGN_OR_RETURN(const auto values, executor.Values(piece.local));
        const std::vector<float> before(values.begin(), values.end());
        WT_RETURN_IF_ERROR(executor.SetValues(piece.local, before));
        WT_ASSIGN_OR_RETURN(const auto again, executor.Values(piece.local));
        EXPECT_EQ(before, std::vector<float>(again.begin(), again.end())) << piece.tensor;
      }
      return Ok();
    });
  }
}

TEST(QuantizedWeights, PeaksAreExact) {
  for (const Quantization quantize : {kNf4, kNf4Double}) {
    ExpectExactPeaks(*CompilePlan(Kind(Llama(2, quantize), kDdp)));
    ExpectExactPeaks(*CompilePlan(In16Bits(Kind(Gpt(2, quantize), kFsdp))));
    ExpectExactPeaks(*CompilePlan(Autocast(Kind(Gpt(2, quantize), kFsdp))));
    ExpectExactPeaks(*CompilePlan(In16Bits(Offloaded(Kind(Llama(2, quantize), kFsdp)))));
    ExpectExactPeaks(*CompilePlan(Offloaded(Kind(Llama(1, quantize), kFsdp))));
  }
  ExpectExactPeaks(*CompilePlan(In16Bits(Kind(Llama(2), kZero1))));
  ExpectExactPeaks(*CompilePlan(Recomputed(Kind(Gpt(2), kFsdp), Recompute::kFull)));
  ExpectExactPeaks(*CompilePlan(Staged(Tensor(Kind(Wide(Llama(2)), kFsdp), true), "1f1b")));
  Scenario apart = Kind(Llama(2), kFsdp);  // a unit with nothing but packed weights
  apart.model.lora->targets = {LoraTarget::kQkv};
  apart.parallel.data.wrap = {.kind = WrapPolicy::Kind::kModules,
                              .modules = {"blocks.0.mlp", "blocks.1.mlp"}};
  ExpectExactPeaks(*CompilePlan(apart));
}

}  // namespace
}  // namespace windtunnel
