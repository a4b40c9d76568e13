// Tensor parallelism changes which rank computes what, not what is computed: with and without sequence
// parallelism, alone and with data parallelism, it gives the losses and the weights of one device with the
// same global batch.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

Scenario Tensor(Scenario s, int64_t ranks, bool sequence) {
  s.parallel.tensor = {.size = ranks, .sequence = sequence};
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}
Scenario TiedGpt(int64_t data = 1) {
  Scenario s = TinyGpt(data);
  s.model.tie_embeddings = true;
  return s;
}

// Llama on T ranks needs T key heads.
Scenario WithKeyHeads(Scenario s, int64_t kv_heads) {
  s.model.heads = 2 * kv_heads;
  s.model.kv_heads = kv_heads;
  s.model.head_dim = s.model.hidden / s.model.heads;
  return s;
}
Scenario OfPyTorch(Scenario s) {
  s.framework = Framework::kPytorch;
  return s;
}
// Megatron scatters the messages between stages over tensor ranks.
Scenario OfMegatron(Scenario s) {
  s.framework = Framework::kMegatron;
  return s;
}
Scenario With(Scenario s, DataParallelKind kind, int version = 2) {
  s.parallel.data.kind = kind;
  s.parallel.data.version = version;
  s.parallel.data.bucket_cap_mb = 0.02;  // several buckets
  return s;
}
Scenario Accumulated(Scenario s) {
  s.batch.accumulate = 2;
  return s;
}

class TensorParity : public testing::TestWithParam<ParityCase> {};

TEST_P(TensorParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(TensorParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Alone, TensorParity,
    testing::Values(ParityCase{"Gpt", Tensor(TiedGpt(), 2, false)},
                    ParityCase{"GptSequence", Tensor(TiedGpt(), 2, true)},
                    ParityCase{"GptUntiedSequence", Tensor(TinyGpt(), 2, true)},
                    ParityCase{"GptClipped", Clipped(Tensor(TiedGpt(), 2, false))},
                    ParityCase{"GptSequenceClipped", Clipped(Tensor(TiedGpt(), 2, true))},
                    ParityCase{"GptSequenceAccumulated", Accumulated(Tensor(TiedGpt(), 2, true))},
                    ParityCase{"Gpt4", FourHeads(Tensor(TiedGpt(), 4, false))},
                    ParityCase{"Gpt4SequenceClipped", Clipped(FourHeads(Tensor(TiedGpt(), 4, true)))},
                    ParityCase{"Llama", Tensor(TinyLlama(), 2, false)},
                    ParityCase{"LlamaSequence", Tensor(TinyLlama(), 2, true)},
                    ParityCase{"LlamaSequenceClipped", Clipped(Tensor(TinyLlama(), 2, true))},
                    ParityCase{"Llama4Sequence", WithKeyHeads(Tensor(TinyLlama(), 4, true), 4)},
                    ParityCase{"Qwen3", Tensor(TinyQwen3(), 2, false)},
                    ParityCase{"Qwen3SequenceClipped", Clipped(Tensor(TinyQwen3(), 2, true))},
                    ParityCase{"Gemma3", Tensor(TinyGemma3(), 2, false)},
                    ParityCase{"Gemma3SequenceClipped", Clipped(Tensor(TinyGemma3(), 2, true))}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Recompute, TensorParity,
    testing::Values(
        ParityCase{"Full", Recomputed(Tensor(TiedGpt(), 2, false), Recompute::kFull)},
        ParityCase{"FullSequence", Recomputed(Tensor(TiedGpt(), 2, true), Recompute::kFull)},
        ParityCase{"FullLlamaSequence", Recomputed(Tensor(TinyLlama(), 2, true), Recompute::kFull)},
        ParityCase{"Selective", Recomputed(Tensor(TiedGpt(), 2, false), Recompute::kSelective)},
        ParityCase{"SelectiveSequence", Recomputed(Tensor(TinyLlama(), 2, true), Recompute::kSelective)},
        ParityCase{"SelectiveOpSequence", Recomputed(Tensor(TiedGpt(), 2, true), Recompute::kSelectiveOp)},
        ParityCase{"FullGemma3Sequence", Recomputed(Tensor(TinyGemma3(), 2, true), Recompute::kFull)},
        ParityCase{"ModulesAgainGemma3", MadeAgain(Tensor(TinyGemma3(), 2, false),
                                                   {RecomputeModule::kLayerNorm, RecomputeModule::kMlp})},
        ParityCase{"FullRotatedInPart",
                   Recomputed(Tensor(RotatedInPart(TinyLlama()), 2, true), Recompute::kFull)},
        ParityCase{"FullQwen3", Recomputed(Tensor(TinyQwen3(), 2, false), Recompute::kFull)},
        ParityCase{"SelectiveQwen3", Recomputed(Tensor(TinyQwen3(), 2, true), Recompute::kSelective)},
        ParityCase{"ModulesAgainSequence", MadeAgain(Tensor(TinyQwen3(), 2, true),
                                                     {RecomputeModule::kLayerNorm, RecomputeModule::kMlp})},
        ParityCase{"SelectiveOpQwen3", Recomputed(Tensor(TinyQwen3(), 2, true), Recompute::kSelectiveOp)}),
    NameOf);

constexpr auto kDdp = DataParallelKind::kDdp, kZero1 = DataParallelKind::kZero1,
               kZero2 = DataParallelKind::kZero2, kFsdp = DataParallelKind::kFsdp;

INSTANTIATE_TEST_SUITE_P(
    WithData, TensorParity,
    testing::Values(
        ParityCase{"Ddp", With(Tensor(TiedGpt(2), 2, false), kDdp)},
        ParityCase{"DdpSequenceClipped", Clipped(With(Tensor(TiedGpt(2), 2, true), kDdp))},
        ParityCase{"DdpSequenceLlama", With(Tensor(TinyLlama(2), 2, true), kDdp)},
        ParityCase{"Zero1Clipped", Clipped(With(Tensor(TiedGpt(2), 2, false), kZero1))},
        ParityCase{"Zero1SequenceClipped", Clipped(With(Tensor(TiedGpt(2), 2, true), kZero1))},
        ParityCase{"Zero1SequenceAccumulated", Accumulated(With(Tensor(TinyLlama(2), 2, true), kZero1))},
        ParityCase{"Zero2SequenceClipped", Clipped(With(Tensor(TiedGpt(2), 2, true), kZero2))},
        ParityCase{"Fsdp1SequenceClipped", Clipped(With(Tensor(TiedGpt(2), 2, true), kFsdp, 1))},
        ParityCase{"Fsdp2Clipped", Clipped(With(Tensor(TiedGpt(2), 2, false), kFsdp))},
        ParityCase{"Fsdp2SequenceClipped", Clipped(With(Tensor(TiedGpt(2), 2, true), kFsdp))},
        ParityCase{"Fsdp2SequenceAccumulated", Accumulated(With(Tensor(TinyLlama(2), 2, true), kFsdp))},
        ParityCase{"Fsdp2SequenceOfPyTorch", OfPyTorch(With(Tensor(TiedGpt(2), 2, true), kFsdp))},
        ParityCase{"Fsdp2SequenceRecomputed",
                   Recomputed(With(Tensor(TinyLlama(2), 2, true), kFsdp), Recompute::kFull)}),
    NameOf);

// Parts of the tokens go around the ring of tensor ranks.
INSTANTIATE_TEST_SUITE_P(
    WithOverlap, TensorParity,
    testing::Values(
        ParityCase{"Gpt", Overlapped(Tensor(TiedGpt(), 2, true))},
        ParityCase{"Gpt4Clipped", Clipped(FourHeads(Overlapped(Tensor(TiedGpt(), 4, true))))},
        ParityCase{"Llama4Accumulated",
                   Accumulated(WithKeyHeads(Overlapped(Tensor(TinyLlama(), 4, true)), 4))},
        ParityCase{"Gpt4OfPyTorch", OfPyTorch(FourHeads(Overlapped(Tensor(TiedGpt(), 4, true))))},
        ParityCase{"LlamaRecomputed", Recomputed(Overlapped(Tensor(TinyLlama(), 2, true)), Recompute::kFull)},
        ParityCase{"LlamaModulesAgain",
                   MadeAgain(Overlapped(Tensor(TinyLlama(), 2, true)),
                             {RecomputeModule::kLayerNorm, RecomputeModule::kCoreAttention})},
        ParityCase{"LlamaMlpAgain",
                   MadeAgain(Overlapped(Tensor(TinyLlama(), 2, true)), {RecomputeModule::kMlp})},
        ParityCase{"GptSelectiveOp",
                   Recomputed(Overlapped(Tensor(TiedGpt(), 2, true)), Recompute::kSelectiveOp)},
        ParityCase{"GptSelectiveOpOfPyTorch",
                   OfPyTorch(Recomputed(Overlapped(Tensor(TiedGpt(), 2, true)), Recompute::kSelectiveOp))},
        ParityCase{"DdpClipped", Clipped(With(Overlapped(Tensor(TiedGpt(2), 2, true)), kDdp))},
        ParityCase{"Zero1Accumulated", Accumulated(With(Overlapped(Tensor(TinyLlama(2), 2, true)), kZero1))},
        ParityCase{"Fsdp2Clipped", Clipped(With(Overlapped(Tensor(TiedGpt(2), 2, true)), kFsdp))},
        ParityCase{"ZeroBubble", Staged(Overlapped(Tensor(TinyLlama(), 2, true)), "zb_h1")},
        ParityCase{"StagesWithShards",
                   Clipped(With(Staged(Overlapped(Tensor(TiedGpt(2), 2, true)), "1f1b"), kZero1))}),
    NameOf);

Scenario Mlp(std::vector<int64_t> widths, int64_t tensor, int64_t data = 1) {
  Scenario s = TinyMlp(data);
  s.model.widths = std::move(widths);
  return Tensor(s, tensor, false);
}

INSTANTIATE_TEST_SUITE_P(
    OfMlps, TensorParity,
    testing::Values(ParityCase{"TutorialsToy", Mlp({10, 32, 5}, 2)},
                    ParityCase{"Pairs4", Mlp({10, 64, 12, 32, 7}, 4)},
                    ParityCase{"OddClipped", Clipped(Mlp({10, 100, 50, 10}, 2))},
                    ParityCase{"Ddp", With(Mlp({10, 64, 12, 32, 7}, 2, 2), kDdp)},
                    ParityCase{"Zero1Clipped", Clipped(With(Mlp({10, 64, 12, 9}, 2, 2), kZero1))},
                    ParityCase{"Fsdp2Clipped", Clipped(With(Mlp({10, 64, 12, 32, 7}, 2, 2), kFsdp))},
                    ParityCase{"StagesWithinPairs", Clipped(Staged(Mlp({10, 64, 12, 32}, 2), "1f1b"))},
                    ParityCase{"StagesZeroBubble", Staged(Mlp({10, 64, 12, 32, 7}, 2), "zb_h1")},
                    ParityCase{"StagesFsdpZeroBubble",
                               With(Staged(Mlp({10, 64, 12, 32, 7}, 2, 2), "zb_h1"), kFsdp)}),
    NameOf);

Scenario Offloaded(Scenario s, Offload offload) {
  s.parallel.data.offload = offload;
  return s;
}

// Tensor ranks sum gradients that lie in the host's memory or are about to go there.
INSTANTIATE_TEST_SUITE_P(
    WithOffload, TensorParity,
    testing::Values(
        ParityCase{"FsdpParamSequenceClipped",
                   Clipped(Offloaded(With(Tensor(TiedGpt(2), 2, true), kFsdp), Offload::kParam))},
        ParityCase{"Fsdp1ParamSequence",
                   Offloaded(With(Tensor(TinyLlama(2), 2, true), kFsdp, 1), Offload::kParam)},
        ParityCase{"FsdpOptimizerSequenceClipped",
                   Clipped(Offloaded(With(Tensor(TiedGpt(2), 2, true), kFsdp), Offload::kOptimizer))},
        ParityCase{"Zero1SequenceClipped",
                   Clipped(Offloaded(With(Tensor(TiedGpt(2), 2, true), kZero1), Offload::kOptimizer))},
        ParityCase{"Zero2Sequence",
                   Offloaded(With(Tensor(TinyLlama(2), 2, true), kZero2), Offload::kOptimizer)}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    WithStages, TensorParity,
    testing::Values(
        ParityCase{"OneForwardOneBackward", Clipped(Staged(Tensor(TiedGpt(), 2, false), "1f1b"))},
        ParityCase{"OneForwardOneBackwardOfMegatron",
                   OfMegatron(Clipped(Staged(Tensor(TiedGpt(), 2, false), "1f1b")))},
        ParityCase{"ZeroBubbleOfMegatron",
                   OfMegatron(Staged(FourHeads(Tensor(TiedGpt(), 4, false)), "zb_h1"))},
        ParityCase{"OneForwardOneBackwardSequence", Clipped(Staged(Tensor(TiedGpt(), 2, true), "1f1b"))},
        ParityCase{"ZeroBubbleSequence", Staged(Tensor(TinyLlama(), 2, true), "zb_h1")},
        ParityCase{"ZeroBubble", Staged(Tensor(TiedGpt(), 2, false), "zb_h1")},
        ParityCase{"WithData", Clipped(With(Staged(Tensor(TiedGpt(2), 2, true), "1f1b"), kDdp))},
        ParityCase{"WithShards", Clipped(With(Staged(Tensor(TiedGpt(2), 2, true), "1f1b"), kZero1))}),
    NameOf);

// ---- bf16

TEST(TensorParallelBf16, TrainsAlongOneDevice) {
  for (const auto& [sequence, overlap] : {std::pair{false, false}, {true, false}, {true, true}}) {
    Scenario s = Tensor(TinyLlama(), 2, sequence);
    s.parallel.tensor.overlap = overlap;
    SCOPED_TRACE(std::to_string(sequence) + std::to_string(overlap));
    ExpectTrainsAlongOneDevice(std::move(s), 2e-3);
  }
}

// ---- what every rank must agree on

// Every tensor rank on its own updates the parameters that are not split. They keep the same bits on all
// ranks.
TEST(TensorParallelRanks, KeepWhatTheyAllHaveEqual) {
  for (bool sequence : {false, true}) {
    const Scenario s = Clipped(With(Tensor(TiedGpt(2), 2, sequence), kDdp));
    const Plan plan = *CompilePlan(s);
    std::mutex mutex;
    std::vector<std::vector<std::vector<float>>> of_rank(plan.world_size);
    std::vector<double> losses(plan.world_size), norms(plan.world_size);
    WithRanks(plan, [&](RankSession& session, Store&) -> Status {
      for (int step = 0; step < 5; ++step) WT_RETURN_IF_ERROR(session.Step());
      std::lock_guard lock(mutex);
      losses[session.rank()] = session.executor().Losses().value().front();
      norms[session.rank()] = session.executor().GradientNormValue().value();
      for (const Parameter& parameter : plan.roles[0].parameters) {
        if (!parameter.part.empty()) continue;
        WT_ASSIGN_OR_RETURN(const auto values,
                            session.executor().Values(
                                Slice{parameter.values.buffer, parameter.values.offset, parameter.elements}));
        of_rank[session.rank()].emplace_back(values.begin(), values.end());
      }
      return Ok();
    });
    for (int rank = 1; rank < plan.world_size; ++rank) {
      EXPECT_EQ(of_rank[rank], of_rank[0]) << "rank " << rank;
      EXPECT_EQ(norms[rank], norms[0]);
    }
    EXPECT_EQ(losses[0], losses[1]) << "one replica";
    EXPECT_NE(losses[0], losses[2]) << "two replicas";
  }
}

}  // namespace
}  // namespace windtunnel
