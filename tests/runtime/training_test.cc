// It really trains: data parallelism gives the losses and weights of one device with the same global batch,
// whatever the reducer's options, and every model learns.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

class DdpParity : public testing::TestWithParam<ParityCase> {};
TEST_P(DdpParity, LossesAreThoseOfOneDeviceUnderAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(DdpParity, WeightsAreThoseOfOneDeviceUnderSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Strategies, DdpParity,
    testing::Values(
        ParityCase{"Gpt", TinyGpt(2)}, ParityCase{"Llama", TinyLlama(2)},
        ParityCase{"LlamaWithWindows", With(TinyLlama(2),
                                            [](Scenario& s) {
                                              s.model.sliding_window =
                                                  SlidingWindowSpec{.tokens = 3, .full_every = 2};
                                            })},
        ParityCase{"Gemma3", TinyGemma3(2)}, ParityCase{"Mlp", TinyMlp(2)},
        ParityCase{"FourRanks", TinyGpt(4)}, ParityCase{"ThreeRanks", TinyMlp(3)},
        ParityCase{"TiedEmbeddings", With(TinyGpt(2), [](Scenario& s) { s.model.tie_embeddings = true; })},
        ParityCase{"SmallBuckets",
                   With(TinyGpt(2), [](Scenario& s) { s.parallel.data.bucket_cap_mb = 0.01; })},
        ParityCase{"FindUnused",
                   With(TinyGpt(2), [](Scenario& s) { s.parallel.data.find_unused_parameters = true; })},
        ParityCase{"BucketView",
                   With(TinyGpt(2), [](Scenario& s) { s.parallel.data.gradient_as_bucket_view = true; })},
        ParityCase{"NoOverlap", With(TinyGpt(2), [](Scenario& s) { s.parallel.data.overlap = false; })},
        ParityCase{"Accumulate", With(TinyGpt(2), [](Scenario& s) { s.batch.accumulate = 3; })},
        ParityCase{"EveryMicroBatch", With(TinyGpt(2),
                                           [](Scenario& s) {
                                             s.batch.accumulate = 2;
                                             s.parallel.data.sync = GradientSync::kEveryMicroBatch;
                                           })},
        ParityCase{"EveryMicroBatchInView", With(TinyGpt(2),
                                                 [](Scenario& s) {
                                                   s.batch.accumulate = 2;
                                                   s.parallel.data.sync = GradientSync::kEveryMicroBatch;
                                                   s.parallel.data.gradient_as_bucket_view = true;
                                                 })},
        ParityCase{"Clipped", With(TinyGpt(2), [](Scenario& s) { s.optimizer.clip_norm = 0.5; })}),
    [](const auto& info) { return info.param.name; });

TEST(Training, EveryModelLearnsTheSyntheticData) {
  for (Scenario s : {TinyGpt(), TinyLlama(), TinyMlp()}) {
    s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 3e-3};
    s.batch.micro *= 4;
    const Trained trained = Train(*CompilePlan(s), 150);
    EXPECT_LT(trained.losses.back(), 0.8 * trained.losses.front()) << s.name;
  }
}

Scenario Activated(Scenario s, ActivationKind kind) {
  s.model.activation = kind;
  return s;
}

Scenario Dropping(Scenario s) {
  s.model.dropout = 0.3;
  return s;
}

// One step of SGD along the gradient makes the loss of its batch smaller by the learning rate times the
// gradient's square, to first order.
TEST(Training, TheGradientIsThatOfTheLoss) {
  for (Scenario s :
       {TinyGpt(), Activated(TinyGpt(), ActivationKind::kSquaredRelu), TinyLlama(), TinyQwen3(), TinyGemma3(),
        With(TinyGemma3(), [](Scenario& s) { s.recompute = Recompute::kFull; }), TinyNeox(), TinyCommandR(),
        TinyOlmo(), With(TinyCommandR(), [](Scenario& s) { s.recompute = Recompute::kFull; }),
        Activated(TinyLlama(), ActivationKind::kClampedSwiglu), Dropping(TinyGpt()), Dropping(TinyLlama())}) {
    s.batch = {.micro = 4, .accumulate = 1};
    s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 1e-4, .clip_norm = 1e9};
    const Plan plan = *CompilePlan(s);
    WithRanks(plan, [&](RankSession& session, Store&) -> Status {
      Executor& executor = session.executor();
      const auto loss = [&]() -> Result<double> {
        WT_ASSIGN_OR_RETURN([[maybe_unused]] auto timeline, executor.Run(executor.role().steady, 3));
        WT_ASSIGN_OR_RETURN(const std::vector<double> losses, executor.Losses());
        return losses.at(0);
      };
      for (size_t i = 0; i <= executor.role().startup.size(); ++i) WT_RETURN_IF_ERROR(session.Step());
      WT_ASSIGN_OR_RETURN(const double before, loss());
      WT_ASSIGN_OR_RETURN(const double norm, executor.GradientNormValue());
      WT_ASSIGN_OR_RETURN(const double after, loss());
      const double expected = s.optimizer.lr * norm * norm;
      EXPECT_NEAR(before - after, expected, 0.03 * expected) << s.name;
      return Ok();
    });
  }
}

// Recomputed layers beside others: the same arithmetic, so the same losses to the bit, and exact peaks.
TEST(Training, RecomputingSomeLayersChangesNoLoss) {
  for (Scenario s : {TinyGpt(), Dropping(TinyLlama()), TinyGemma3(), TinyOlmo()}) {
    s.model.layers = 4;
    const Trained kept = Train(*CompilePlan(s), kParitySteps);
    s.recompute = Recompute::kFull;
    for (const auto& [layers, every] : {std::pair<int64_t, int64_t>{1, 1}, {3, 1}, {0, 2}, {3, 3}}) {
      s.recompute_layers = layers;
      s.recompute_every = every;
      const Plan plan = *CompilePlan(s);
      EXPECT_EQ(Train(plan, kParitySteps).losses, kept.losses) << s.name << layers << every;
      ExpectExactPeaks(plan);
    }
  }
}

// A rate that falls to zero after three steps leaves the weights as they are, with every optimizer.
TEST(Training, EveryStepHasTheRateOfItsSchedule) {
  for (const OptimizerSpec& optimizer :
       {OptimizerSpec{.kind = OptimizerKind::kSgd, .lr = 0.1},
        OptimizerSpec{.kind = OptimizerKind::kSgd, .lr = 0.1, .momentum = 0.9},
        OptimizerSpec{.kind = OptimizerKind::kAdamW, .lr = 1e-2, .weight_decay = 0.1}}) {
    Scenario s = TinyMlp(2);
    s.optimizer = optimizer;
    s.lr_scheduler = {.decay = LearningRateDecay::kStep, .step_size = 3, .gamma = 0};
    const Plan plan = *CompilePlan(s);
    const Trained three = Train(plan, 3);
    EXPECT_NE(Train(plan, 2).weights, three.weights);
    EXPECT_EQ(Train(plan, 6).weights, three.weights);
    // A rate that never falls is that of a scenario without a schedule.
    s.lr_scheduler = {.decay = LearningRateDecay::kStep, .min_lr_factor = 1};
    const Trained whole = Train(*CompilePlan(s), 3);
    s.lr_scheduler = {};
    EXPECT_EQ(Train(*CompilePlan(s), 3).weights, whole.weights);
  }
}

TEST(Training, LearnsATextFile) {
  const std::string path = testing::TempDir() + "/text.txt";
  std::ofstream file(path);
  for (int i = 0; i < 200; ++i) file << "the wind tunnel tells how the full-size one will fly. ";
  file.close();
  Scenario s = TinyGpt(2);
  s.model.vocab = 256;
  s.data = path;
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 3e-3};
  const Trained trained = Train(*CompilePlan(s), 100);
  EXPECT_NEAR(trained.losses.front(), std::log(256.0), 0.2);
  EXPECT_LT(trained.losses.back(), 3.0);
}

TEST(Training, FlashAndEagerAttentionAgree) {
  Scenario s = TinyLlama();
  s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.1};
  const Trained flash = Train(*CompilePlan(s), kParitySteps);
  s.model.attention = AttentionKind::kEager;
  const Trained eager = Train(*CompilePlan(s), kParitySteps);
  for (int step = 0; step < kParitySteps; ++step) {
    EXPECT_NEAR(flash.losses[step], eager.losses[step], kParityTolerance * eager.losses[step]);
  }
}

}  // namespace
}  // namespace windtunnel
