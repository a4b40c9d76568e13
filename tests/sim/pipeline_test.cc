// Compiled pipelines, executed in virtual time with equal stages and free messages, take as long as their
// schedule says, whether the host computes or a device does, and hold as many activations.
#include <gtest/gtest.h>

#include <algorithm>

#include "cost_models/device_spec.h"
#include "plan/schedule_bubble.h"
#include "plan/schedule_check.h"
#include "sim/predict.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// One block a stage, in which three operators take time: one in forward, one of the input's gradient, one of
// the weights' gradients.
class EqualStages : public CostModel {
 public:
  EqualStages(StageTimes times, bool host_computes) : times_(times), host_computes_(host_computes) {}

  Result<KernelCost> Kernel(const Op& op) const override {
    Duration time;
    if (std::holds_alternative<AttentionForward>(op.kind)) time = times_.forward;
    if (std::holds_alternative<AttentionBackward>(op.kind)) time = times_.input_gradient;
    if (op.name.ends_with("mlp.up.weight")) time = times_.weight_gradient;
    return KernelCost{.time = Distribution::Constant(time)};
  }
  Result<CommunicationCost> Communication(const Op&, const Group&) const override {
    return CommunicationCost{.time = Distribution::Constant(Duration())};
  }
  Distribution Dispatch() const override { return Distribution::Constant(Duration()); }
  bool host_computes() const override { return host_computes_; }
  int cores_per_node() const override { return 0; }
  double CommonMode(double) const override { return 1; }
  Bytes OutsideAllocator(const Plan&) const override { return Bytes(0); }

 private:
  StageTimes times_;
  bool host_computes_;
};

// Kernels take no time, but the host takes a while for each.
class SlowHost : public EqualStages {
 public:
  SlowHost() : EqualStages({}, /*host_computes=*/false) {}
  Distribution Dispatch() const override { return Distribution::Constant(Microseconds(10)); }
};

Scenario OneBlockAStage(const ScheduleRequest& request) {
  Scenario s = TinyGpt();
  s.model.layers = int64_t{request.ranks} * request.virtual_stages;
  s.batch = {1, request.micro_batches};
  s.parallel.pipeline = {request.ranks, request.name, request.virtual_stages,
                         std::vector<int64_t>(s.model.layers, 1)};
  s.cluster.devices_per_node = request.ranks;
  return s;
}

// The most inputs of mlp.up (one for each stage and micro-batch) that are alive at once. The gradient of
// mlp.up's weight needs them.
int64_t MostHeld(const Role& role) {
  int64_t held = 0, most = 0;
  for (const MemoryOp& op : role.steady.memory) {
    if (!role.buffers[op.buffer].name.ends_with(".norm2")) continue;
    held += op.allocates() ? 1 : -1;
    most = std::max(most, held);
  }
  return most;
}

// Returns whether the schedule runs with this number of micro-batches; if so, checks it.
bool Check(const ScheduleRequest& request, const StageTimes& times) {
  const auto schedule =
      MakeSchedule(request.name, request.ranks, request.virtual_stages, request.micro_batches);
  if (!schedule) return false;
  SCOPED_TRACE(fmt::format("{} p={} v={} m={}", request.name, request.ranks, request.virtual_stages,
                           request.micro_batches));
  const auto plan = CompilePlan(OneBlockAStage(request));
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan) return true;
  const Duration expected = RunSchedule(*schedule, times).makespan;
  const Duration own = times.all() * request.micro_batches * request.virtual_stages;
  for (bool host_computes : {true, false}) {
    const auto prediction = Predict(*plan, EqualStages(times, host_computes), {.replicates = 1});
    EXPECT_TRUE(prediction) << prediction.error().message;
    if (!prediction) return true;
    EXPECT_EQ(prediction->p50, expected) << "host computes: " << host_computes;
    EXPECT_EQ(prediction->breakdown.bubble, expected - own) << "host computes: " << host_computes;
  }
  const auto bubble = ClosedFormBubble(request, times);
  EXPECT_EQ(expected - own, bubble.value_or(expected - own));
  const std::vector<int64_t> in_flight = ActivationsInFlight(*schedule);
  for (int rank = 0; rank < request.ranks; ++rank) {
    EXPECT_EQ(MostHeld(plan->roles[rank]), in_flight[rank]) << "rank " << rank;
    EXPECT_EQ(in_flight[rank], PromisedActivationsInFlight(request, rank)) << "rank " << rank;
  }
  return true;
}

class SimulatedPipeline : public testing::TestWithParam<const char*> {};

TEST_P(SimulatedPipeline, TakesAsLongAndHoldsAsMuchAsItsSchedule) {
  const std::string name = GetParam();
  const bool is_single = name == "none" || name == "gpipe" || name == "1f1b" || name == "zb_h1";
  const std::vector<int> virtual_stages = is_single                                ? std::vector<int>{1}
                                          : name == "zb_v" || name == "dualpipe_v" ? std::vector<int>{2}
                                                                                   : std::vector<int>{2, 3};
  const StageTimes equal{Microseconds(10), Microseconds(10), Microseconds(10)};
  const StageTimes unequal{Microseconds(10), Microseconds(13), Microseconds(7)};
  int checked = 0;
  for (int ranks : {2, 3, 4, 7, 16}) {
    for (int v : virtual_stages) {
      for (int64_t m : {int64_t{1}, int64_t{2}, int64_t{ranks}, int64_t{2 * ranks}, int64_t{3 * ranks + 1},
                        int64_t{64}}) {
        if (ranks == 16 && m == 64 && v > 1) continue;  // for the test's time
        checked += Check({name, ranks, v, m}, equal) && Check({name, ranks, v, m}, unequal) ? 1 : 0;
      }
    }
  }
  EXPECT_GE(checked, 10);  // the rest are numbers of micro-batches that the schedule refuses
}

INSTANTIATE_TEST_SUITE_P(Schedules, SimulatedPipeline,
                         testing::Values("none", "gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1",
                                         "zb_v", "dualpipe_v"),
                         [](const auto& info) {
                           std::string name = info.param;
                           return name == "1f1b" ? "OneFOneB" : name;
                         });

TEST(SimulatedPipeline, OneRankOfEachStageStandsForItsReplicas) {
  Scenario s = TinyGpt();
  s.model.layers = 4;
  s.model.tie_embeddings = true;
  s.batch = {1, 4};
  s.optimizer.clip_norm = 1;
  s.parallel.pipeline.size = 4;
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.parallel.data.size = 4;
  s.cluster = {};
  s.cluster.device = "a100-sxm-80g";
  s.cluster.nodes = 2;
  s.cluster.devices_per_node = 8;
  s.cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 200, .latency_us = {}};
  s.cluster.network.nics_per_node = 8;
  const auto profile = ParseProfile(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g");
  ASSERT_TRUE(profile) << profile.error().message;
  const auto plan = CompilePlan(s);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto folded = Predict(*plan, *MakeProfileCostModel(*profile, *plan), {});
  const auto unfolded = Predict(*plan, *MakeProfileCostModel(*profile, *plan), {.fold = false});
  ASSERT_TRUE(folded && unfolded);
  EXPECT_EQ(folded->timelines.size(), 4u);
  EXPECT_EQ(unfolded->timelines.size(), 16u);
  EXPECT_EQ(folded->p50, unfolded->p50);
  EXPECT_EQ(folded->breakdown.bubble, unfolded->breakdown.bubble);
  EXPECT_EQ(folded->breakdown.exposed_communication, unfolded->breakdown.exposed_communication);
}

// A host that runs ahead of messages has already issued the operators that use them when they arrive. A host
// that waits for messages begins to issue only then, so filling and draining the pipeline takes the host's
// time for whole passes.
TEST(Pipeline, FillsWithTheTimeOfHostsThatAwaitMessages) {
  const auto fill = [](Framework framework) {  // the time beyond m micro-batches, in micro-batches
    const auto step = [&](int64_t micro_batches) {
      Scenario s = TinyGpt();
      s.model.layers = 32;
      s.batch = {1, micro_batches};
      s.parallel.pipeline = {4, "1f1b", 1, {8, 8, 8, 8}};
      s.cluster.device = "a100-sxm-80g";
      s.cluster.devices_per_node = 4;
      s.framework = framework;
      const Plan plan = CompilePlan(s).value();
      return ToSeconds(Predict(plan, SlowHost(), {}).value().p50);
    };
    const double micro_batch = (step(16) - step(8)) / 8;
    return step(16) / micro_batch - 16;
  };
  EXPECT_GT(fill(Framework::kMegatron), 2.5);
  EXPECT_LT(fill(Framework::kMegatron), 3.5);
  EXPECT_LT(fill(Framework::kDeepspeed), 1);
}

}  // namespace
}  // namespace windtunnel
