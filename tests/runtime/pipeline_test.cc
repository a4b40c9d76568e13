// A pipeline changes where layers are and when they run, not what is computed: every schedule, and every
// combination with data parallelism, gives the losses and the weights of one device with the same global
// batch.
#include <gtest/gtest.h>

#include <functional>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using Change = std::function<void(Scenario&)>;

Scenario Pipelined(Scenario s, const char* schedule, int64_t ranks, int64_t virtual_stages = 1,
                   const Change& change = nullptr) {
  s.parallel.pipeline.size = ranks;
  s.parallel.pipeline.schedule = schedule;
  s.parallel.pipeline.virtual_stages = virtual_stages;
  s.model.layers = std::max<int64_t>(s.model.layers, ranks * virtual_stages);
  s.batch.accumulate = 2 * ranks;
  s.batch.micro = 1;
  s.cluster.devices_per_node = ranks * s.parallel.data.size;
  if (change) change(s);
  return s;
}

void Tied(Scenario& s) { s.model.tie_embeddings = true; }
void Windowed(Scenario& s) {
  s.model.layers = 6;
  s.model.sliding_window = SlidingWindowSpec{.tokens = 3, .full_every = 3};
}
void Clipped(Scenario& s) { s.optimizer.clip_norm = 0.5; }
void TiedAndClipped(Scenario& s) {
  Tied(s);
  Clipped(s);
}
Change With(DataParallelKind kind, const Change& more = nullptr) {
  return [=](Scenario& s) {
    s.parallel.data.kind = kind;
    s.parallel.data.size = 2;
    s.parallel.data.bucket_cap_mb = 0.02;
    s.cluster.devices_per_node *= 2;
    if (more) more(s);
  };
}
Scenario ThreeLayers(Scenario s) {
  s.model.widths = {10, 100, 50, 10};
  return s;
}

// Four stages: the first has only the embedding, the last only the head.
void EndsAlone(Scenario& s) { s.parallel.pipeline.balance = {0, 2, 2, 0}; }

class PipelineParity : public testing::TestWithParam<ParityCase> {};
TEST_P(PipelineParity, LossesAreThoseOfOneDeviceUnderAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(PipelineParity, WeightsAreThoseOfOneDeviceUnderSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Schedules, PipelineParity,
    testing::Values(ParityCase{"None", Pipelined(TinyGpt(), "none", 2)},
                    ParityCase{"GPipe", Pipelined(TinyGpt(), "gpipe", 2)},
                    ParityCase{"OneFOneB", Pipelined(TinyGpt(), "1f1b", 2)},
                    ParityCase{"OneFOneBOfFour", Pipelined(TinyGpt(), "1f1b", 4, 1, TiedAndClipped)},
                    ParityCase{"Interleaved", Pipelined(TinyGpt(), "interleaved", 2, 2)},
                    ParityCase{"InterleavedOfThree", Pipelined(TinyGpt(), "interleaved", 3, 2)},
                    ParityCase{"LoopedBfs", Pipelined(TinyGpt(), "looped_bfs", 2, 2, Tied)},
                    ParityCase{"ZbH1", Pipelined(TinyGpt(), "zb_h1", 2, 1, Clipped)},
                    ParityCase{"ZbH1OfThree", Pipelined(TinyGpt(), "zb_h1", 3, 1, Tied)},
                    ParityCase{"ZbV", Pipelined(TinyGpt(), "zb_v", 2, 2, TiedAndClipped)},
                    ParityCase{"ZbVOfThree", Pipelined(TinyGpt(), "zb_v", 3, 2)},
                    ParityCase{"DualPipeV", Pipelined(TinyGpt(), "dualpipe_v", 2, 2, Tied)},
                    ParityCase{"Llama", Pipelined(TinyLlama(), "1f1b", 2)},
                    ParityCase{"Gemma3", Pipelined(TinyGemma3(), "1f1b", 2)},
                    ParityCase{"Gemma3ZbH1", Pipelined(TinyGemma3(), "zb_h1", 2)},
                    ParityCase{"EndsAlone", Pipelined(TinyLlama(), "1f1b", 4, 1, EndsAlone)},
                    ParityCase{"EndsAloneTiedClipped", Pipelined(TinyGpt(), "zb_h1", 3, 1,
                                                                 [](Scenario& s) {
                                                                   s.parallel.pipeline.balance = {0, 3, 0};
                                                                   TiedAndClipped(s);
                                                                 })},
                    ParityCase{"LlamaWithWindows", Pipelined(TinyLlama(), "1f1b", 2, 1, Windowed)},
                    ParityCase{"LlamaZbH1Recomputed",
                               Pipelined(TinyLlama(), "zb_h1", 2, 1,
                                         [](Scenario& s) { s.recompute = Recompute::kFull; })},
                    ParityCase{"SomeLayersRecomputed", Pipelined(TinyLlama(), "1f1b", 2, 1,
                                                                 [](Scenario& s) {
                                                                   s.model.layers = 4;
                                                                   s.recompute = Recompute::kFull;
                                                                   s.recompute_layers = 1;
                                                                 })},
                    ParityCase{"Mlp", Pipelined(ThreeLayers(TinyMlp()), "1f1b", 3)},
                    ParityCase{"MlpZbH1", Pipelined(ThreeLayers(TinyMlp()), "zb_h1", 3)}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Hybrids, PipelineParity,
    testing::Values(
        ParityCase{"Ddp", Pipelined(TinyGpt(), "1f1b", 2, 1, With(DataParallelKind::kDdp))},
        ParityCase{"DdpTiedClipped",
                   Pipelined(TinyGpt(), "gpipe", 2, 1, With(DataParallelKind::kDdp, TiedAndClipped))},
        ParityCase{"DdpInView", Pipelined(TinyGpt(), "1f1b", 2, 1,
                                          With(DataParallelKind::kDdp,
                                               [](Scenario& s) {
                                                 Tied(s);
                                                 s.parallel.data.gradient_as_bucket_view = true;
                                               }))},
        ParityCase{"DdpInterleaved", Pipelined(TinyGpt(), "interleaved", 2, 2, With(DataParallelKind::kDdp))},
        ParityCase{"DdpZbH1", Pipelined(TinyGpt(), "zb_h1", 2, 1, With(DataParallelKind::kDdp, Tied))},
        ParityCase{"DdpZbV", Pipelined(TinyGpt(), "zb_v", 2, 2, With(DataParallelKind::kDdp, Tied))},
        ParityCase{"Zero1",
                   Pipelined(TinyGpt(), "1f1b", 2, 1, With(DataParallelKind::kZero1, TiedAndClipped))},
        ParityCase{"Zero1ZbH1", Pipelined(TinyGpt(), "zb_h1", 2, 1, With(DataParallelKind::kZero1, Tied))},
        ParityCase{"Zero1Interleaved",
                   Pipelined(TinyGpt(), "interleaved", 2, 2, With(DataParallelKind::kZero1))},
        ParityCase{"Zero1OfMegatronCore", Pipelined(TinyGpt(), "1f1b", 2, 1,
                                                    With(DataParallelKind::kZero1,
                                                         [](Scenario& s) {
                                                           TiedAndClipped(s);
                                                           s.framework = Framework::kMegatronCore;
                                                         }))},
        ParityCase{"Zero1InterleavedOfMegatronCore",
                   Pipelined(TinyGpt(), "interleaved", 2, 2,
                             With(DataParallelKind::kZero1,
                                  [](Scenario& s) { s.framework = Framework::kMegatronCore; }))},
        ParityCase{"Fsdp", Pipelined(TinyGpt(), "1f1b", 2, 1, With(DataParallelKind::kFsdp, TiedAndClipped))},
        ParityCase{"FsdpVersion1", Pipelined(TinyGpt(), "gpipe", 2, 1,
                                             With(DataParallelKind::kFsdp,
                                                  [](Scenario& s) { s.parallel.data.version = 1; }))},
        ParityCase{"FsdpKeepsParameters",
                   Pipelined(TinyGpt(), "1f1b", 2, 1,
                             With(DataParallelKind::kFsdp,
                                  [](Scenario& s) { s.parallel.data.sharding = Sharding::kShardGradOp; }))},
        ParityCase{"FsdpInterleaved",
                   Pipelined(TinyGpt(), "interleaved", 2, 2, With(DataParallelKind::kFsdp, Tied))},
        ParityCase{"FsdpZbH1",
                   Pipelined(TinyGpt(), "zb_h1", 2, 1, With(DataParallelKind::kFsdp, TiedAndClipped))},
        ParityCase{"FsdpZbH1KeepsParameters",
                   Pipelined(TinyLlama(), "zb_h1", 3, 1,
                             With(DataParallelKind::kFsdp,
                                  [](Scenario& s) { s.parallel.data.sharding = Sharding::kShardGradOp; }))},
        ParityCase{"FsdpVersion1ZbH1", Pipelined(TinyGpt(), "zb_h1", 2, 1,
                                                 With(DataParallelKind::kFsdp,
                                                      [](Scenario& s) {
                                                        s.parallel.data.version = 1;
                                                        s.recompute = Recompute::kFull;
                                                      }))},
        ParityCase{"FsdpZbV", Pipelined(TinyGpt(), "zb_v", 2, 2, With(DataParallelKind::kFsdp, Clipped))},
        // The first and the last stage are on one rank, so the head uses a weight of another stage's unit.
        ParityCase{"FsdpZbVTied", Pipelined(TinyGpt(), "zb_v", 2, 2, With(DataParallelKind::kFsdp, Tied))},
        ParityCase{"FsdpDualPipeV",
                   Pipelined(TinyGpt(), "dualpipe_v", 2, 2, With(DataParallelKind::kFsdp, TiedAndClipped))},
        ParityCase{"FsdpLlama", Pipelined(TinyLlama(), "1f1b", 2, 1, With(DataParallelKind::kFsdp))}),
    NameOf);

// ---- memory -----------------------------------------------------------------------------------------------

TEST(PipelineMemory, IsPredictedToTheByteOnEveryRank) {
  const std::pair<const char*, int64_t> schedules[] = {{"none", 1},        {"gpipe", 1}, {"1f1b", 1},
                                                       {"interleaved", 2}, {"zb_h1", 1}, {"zb_v", 2}};
  for (const auto& [schedule, virtual_stages] : schedules) {
    for (DataParallelKind kind : {DataParallelKind::kNone, DataParallelKind::kDdp, DataParallelKind::kZero1,
                                  DataParallelKind::kFsdp}) {
      SCOPED_TRACE(fmt::format("{} {}", schedule, static_cast<int>(kind)));
      const Change change =
          kind == DataParallelKind::kNone ? Change(TiedAndClipped) : With(kind, TiedAndClipped);
      ExpectExactPeaks(*CompilePlan(Pipelined(TinyGpt(), schedule, 2, virtual_stages, change)));
    }
  }
}

TEST(PipelineMemory, IsPredictedToTheByteWithTensorParallelStages) {
  for (bool sequence : {false, true}) {
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      SCOPED_TRACE(fmt::format("{} sequence {}", schedule, sequence));
      ExpectExactPeaks(*CompilePlan(Pipelined(TinyGpt(), schedule, 2, 1, [&](Scenario& s) {
        TiedAndClipped(s);
        s.parallel.tensor = {2, sequence};
        s.cluster.devices_per_node *= 2;
      })));
    }
  }
}

// A rank holds at most as many micro-batches' activations as its schedule promises, so 1F1B peaks below GPipe.
TEST(PipelineMemory, OneFOneBHoldsFewerActivationsThanGPipe) {
  auto peak = [](const char* schedule) {
    Scenario s = Pipelined(TinyGpt(), schedule, 2);
    s.batch.accumulate = 8;
    return SimulateMemory(CompilePlan(s)->roles[0])->steady;
  };
  const int activations = static_cast<int>(Category::kActivations);
  EXPECT_LT(peak("1f1b").by_category[activations] * 3, peak("gpipe").by_category[activations]);
}

}  // namespace
}  // namespace windtunnel
