// It really trains: data parallelism gives the losses and weights of one device with the same global batch, whatever the
// reducer's options, and every model learns.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/in_process_ranks.h"

namespace windtunnel {
namespace {

constexpr int kSteps = 20;
constexpr double kTolerance = 1e-5;

// The scenario on one device with the batch of all its ranks.
Scenario OnOneDevice(Scenario s) {
  s.batch.micro *= s.parallel.data.size;
  s.parallel.data = {};
  s.cluster.devices_per_node = 1;
  return s;
}

double NormWiseDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

struct Case {
  const char* name;
  Scenario scenario;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Scenario With(Scenario s, const std::function<void(Scenario&)>& change) {
  change(s);
  return s;
}

class DdpParity : public testing::TestWithParam<Case> {};

TEST_P(DdpParity, LossesAreThoseOfOneDeviceUnderAdamW) {
  Scenario s = GetParam().scenario;
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3, .weight_decay = 0.01, .clip_norm = s.optimizer.clip_norm};
  const Trained ranks = Train(*CompilePlan(s), kSteps), one = Train(*CompilePlan(OnOneDevice(s)), kSteps);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(ranks.losses[step], one.losses[step], kTolerance * one.losses[step]) << "step " << step;
  }
}

TEST_P(DdpParity, WeightsAreThoseOfOneDeviceUnderSgd) {
  Scenario s = GetParam().scenario;
  // At five times this rate twenty steps blow differences of rounding in the biases, which start at zero, up to 1e-4.
  s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.02, .clip_norm = s.optimizer.clip_norm};
  const Plan plan = *CompilePlan(s);
  const Trained ranks = Train(plan, kSteps), one = Train(*CompilePlan(OnOneDevice(s)), kSteps);
  ASSERT_EQ(ranks.weights.size(), one.weights.size());
  for (size_t i = 0; i < ranks.weights.size(); ++i) {
    EXPECT_LT(NormWiseDifference(ranks.weights[i], one.weights[i]), kTolerance) << plan.roles[0].parameters[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, DdpParity,
    testing::Values(
        Case{"Gpt", TinyGpt(2)}, Case{"Llama", TinyLlama(2)}, Case{"Mlp", TinyMlp(2)}, Case{"FourRanks", TinyGpt(4)},
        Case{"ThreeRanks", TinyMlp(3)},
        Case{"TiedEmbeddings", With(TinyGpt(2), [](Scenario& s) { s.model.tie_embeddings = true; })},
        Case{"SmallBuckets", With(TinyGpt(2), [](Scenario& s) { s.parallel.data.bucket_cap_mb = 0.01; })},
        Case{"FindUnused", With(TinyGpt(2), [](Scenario& s) { s.parallel.data.find_unused_parameters = true; })},
        Case{"BucketView", With(TinyGpt(2), [](Scenario& s) { s.parallel.data.gradient_as_bucket_view = true; })},
        Case{"NoOverlap", With(TinyGpt(2), [](Scenario& s) { s.parallel.data.overlap = false; })},
        Case{"Accumulate", With(TinyGpt(2), [](Scenario& s) { s.batch.accumulate = 3; })},
        Case{"EveryMicroBatch", With(TinyGpt(2),
                                     [](Scenario& s) {
                                       s.batch.accumulate = 2;
                                       s.parallel.data.sync = GradientSync::kEveryMicroBatch;
                                     })},
        Case{"EveryMicroBatchInView", With(TinyGpt(2),
                                           [](Scenario& s) {
                                             s.batch.accumulate = 2;
                                             s.parallel.data.sync = GradientSync::kEveryMicroBatch;
                                             s.parallel.data.gradient_as_bucket_view = true;
                                           })},
        Case{"Clipped", With(TinyGpt(2), [](Scenario& s) { s.optimizer.clip_norm = 0.5; })}),
    [](const auto& info) { return info.param.name; });

TEST(Training, EveryModelLearnsTheSyntheticData) {
  for (Scenario s : {TinyGpt(), TinyLlama(), TinyMlp()}) {
    s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 3e-3};
    s.batch.micro *= 4;
    const Trained trained = Train(*CompilePlan(s), 150);
    EXPECT_LT(trained.losses.back(), 0.8 * trained.losses.front()) << s.name;
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
  const Trained flash = Train(*CompilePlan(s), kSteps);
  s.model.attention = AttentionKind::kEager;
  const Trained eager = Train(*CompilePlan(s), kSteps);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(flash.losses[step], eager.losses[step], kTolerance * eager.losses[step]);
  }
}

}  // namespace
}  // namespace windtunnel
