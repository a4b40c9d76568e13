// The speed of a scenario's products, which its blocks determine.
#include "cost_models/block_speed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include "scenarios/load.h"
#include "tests/cost_models/llama_blocks.h"

namespace windtunnel {
namespace {

double SpeedOf(const Scenario& scenario, const char* device = "h100-sxm-80g") {
  const DeviceSpec spec = ParseDeviceSpec(*EmbeddedProfile(device), device).value();
  ProductSpeeds speeds;
  const double speed = speeds.Of(scenario, spec, FrameworkOf(scenario));
  EXPECT_EQ(speeds.Of(scenario, spec, FrameworkOf(scenario)), speed) << "remembered";
  return speed;
}

// In steps of eager PyTorch with six such layers, whose optimizer leaves power too, 1.11 was measured
// (reports/campaigns/2026-11-26-h100).
TEST(BlockSpeed, IsHigherWhereKernelsAreNotFused) {
  EXPECT_NEAR(SpeedOf(test::LlamaOnH100(Framework::kPytorch)), 1.09, 0.02);
  EXPECT_NEAR(SpeedOf(test::LlamaOnH100(Framework::kMegatronCore)), 1.03, 0.02);
}

TEST(BlockSpeed, IsOneWhereNoLimitIsKnownOrThereAreNoBlocks) {
  EXPECT_EQ(SpeedOf(test::LlamaOnH100(Framework::kPytorch), "a100-sxm-80g"), 1);
  Scenario mlp = test::LlamaOnH100(Framework::kPytorch);
  mlp.model = {.kind = ModelKind::kMlp, .widths = {1024, 4096, 1024}};
  EXPECT_EQ(SpeedOf(mlp), 1);
}

TEST(BlockSpeed, IsThatOfBlocksHoweverGradientsAreReduced) {
  Scenario s = test::LlamaOnH100(Framework::kPytorch);
  s.parallel.data = {.kind = DataParallelKind::kDdp, .size = 8};
  const double plain = SpeedOf(s);
  s.parallel.data.powersgd = PowerSgdSpec{.rank = 4};
  EXPECT_EQ(SpeedOf(s), plain);
}

// The threads of a search share one ProductSpeeds.
TEST(BlockSpeed, IsForSeveralThreadsAtOnce) {
  const DeviceSpec spec = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  constexpr int kThreads = 4, kBlocks = 100;
  ProductSpeeds speeds;
  std::vector<std::vector<double>> found(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int block = 0; block < kBlocks; ++block) {
        Scenario s = test::LlamaOnH100(Framework::kPytorch);
        s.model.ffn += 64 * block;
        found[thread].push_back(speeds.Of(s, spec, FrameworkOf(s)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<double>& of_thread : found) EXPECT_EQ(of_thread, found.front());
  for (const double speed : found.front()) EXPECT_NEAR(speed, 1.09, 0.1);
}

// How a step is split, and how many micro-batches it has, does not change its blocks.
TEST(BlockSpeed, IsOfABlockWhateverTheStep) {
  Scenario s = test::LlamaOnH100(Framework::kMegatronCore);
  s.parallel.data = {.kind = DataParallelKind::kZero1, .size = 4};
  s.batch.accumulate = 2;
  const double speed = SpeedOf(s);
  s.model.layers = 3;
  s.batch.accumulate = 64;
  s.parallel.pipeline.size = 4;
  s.parallel.data = {.kind = DataParallelKind::kZero1, .size = 512};
  s.cluster = {.device = "h100-sxm-80g", .nodes = 256, .devices_per_node = 8};
  EXPECT_EQ(SpeedOf(s), speed);
  s.batch.micro = 2;
  EXPECT_NE(SpeedOf(s), speed);
}

// Covers layers of experts after dense ones, and layers of alternating kinds, whose mean counts whichever
// kind comes last.
TEST(BlockSpeed, OfExpertsIsThatOfAPeriodOfLayers) {
  Scenario s = test::LlamaOnH100(Framework::kMegatronCore);
  s.parallel.data = {.kind = DataParallelKind::kZero1, .size = 8};
  const double dense = SpeedOf(s);
  s.model.experts = ExpertsSpec{.count = 64, .top_k = 4, .capacity_factor = 0};
  s.model.ffn = 1024;
  s.model.experts->dense_ffn = 14336;
  s.parallel.expert.size = 8;
  const double experts = SpeedOf(s);
  EXPECT_NE(experts, dense);
  s.model.experts->first_dense = 3;
  EXPECT_NEAR(SpeedOf(s), experts, 1e-3);
  s.model.experts->first_dense = 0;
  s.model.experts->every = 2;
  const double both = SpeedOf(s);
  EXPECT_GT(both, std::min(dense, experts));
  EXPECT_LT(both, std::max(dense, experts));
  s.model.layers = 31;
  EXPECT_NEAR(SpeedOf(s), both, 0.005);
}

// Keys for which a plan of few blocks would be refused do not matter to a block.
TEST(BlockSpeed, EveryShippedScenarioHasOne) {
  int with_a_limit = 0;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    const Scenario s = LoadScenario(entry.path().string(), {}).value();
    if (s.cluster.device != "h100-sxm-80g" && s.cluster.device != "h200-sxm-141g") continue;
    EXPECT_GT(SpeedOf(s, s.cluster.device.c_str()), 1) << entry.path();
    ++with_a_limit;
  }
  EXPECT_GT(with_a_limit, 3);
}

TEST(BlockSpeed, OfInterleavedMicroBatchesIsThatOfOne) {
  Scenario s = test::LlamaOnH100(Framework::kMegatronCore);
  s.parallel.data = {.kind = DataParallelKind::kZero1, .size = 8};
  s.model.experts = ExpertsSpec{.count = 64, .top_k = 4, .capacity_factor = 0};
  s.parallel.expert.size = 8;
  s.batch.accumulate = 8;
  const double speed = SpeedOf(s);
  EXPECT_GT(speed, 1);
  s.parallel.expert.overlap = s.parallel.expert.delay_wgrad = true;
  EXPECT_EQ(SpeedOf(s), speed);
}

}  // namespace
}  // namespace windtunnel
