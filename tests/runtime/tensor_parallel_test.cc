// Tensor parallelism changes who computes what, not what is computed: with and without sequence parallelism, alone and with data
// parallelism, it gives the losses and the weights of one device with the same global batch.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/in_process_ranks.h"
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
Scenario Clipped(Scenario s) {
  s.optimizer.clip_norm = 0.5;
  return s;
}
Scenario Recomputed(Scenario s, Recompute recompute) {
  s.recompute = recompute;
  return s;
}

Scenario FourHeads(Scenario s) {
  s.model.heads = s.model.kv_heads = 4;
  return s;
}
// Llama with T ranks: as many keys' heads.
Scenario WithKeyHeads(Scenario s, int64_t kv_heads) {
  s.model.heads = 2 * kv_heads;
  s.model.kv_heads = kv_heads;
  return s;
}
Scenario Accumulated(Scenario s) {
  s.batch.accumulate = 2;
  return s;
}

class TensorParity : public testing::TestWithParam<ParityCase> {};

TEST_P(TensorParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(TensorParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

std::string NameOf(const testing::TestParamInfo<ParityCase>& info) { return info.param.name; }

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
                    ParityCase{"Llama4Sequence", WithKeyHeads(Tensor(TinyLlama(), 4, true), 4)}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Recompute, TensorParity,
    testing::Values(
        ParityCase{"Full", Recomputed(Tensor(TiedGpt(), 2, false), Recompute::kFull)},
        ParityCase{"FullSequence", Recomputed(Tensor(TiedGpt(), 2, true), Recompute::kFull)},
        ParityCase{"FullLlamaSequence", Recomputed(Tensor(TinyLlama(), 2, true), Recompute::kFull)},
        ParityCase{"Selective", Recomputed(Tensor(TiedGpt(), 2, false), Recompute::kSelective)},
        ParityCase{"SelectiveSequence", Recomputed(Tensor(TinyLlama(), 2, true), Recompute::kSelective)},
        ParityCase{"SelectiveOpSequence", Recomputed(Tensor(TiedGpt(), 2, true), Recompute::kSelectiveOp)}),
    NameOf);

}  // namespace
}  // namespace windtunnel
