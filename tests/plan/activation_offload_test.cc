#include "plan/activation_offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plan/plan.h"
#include "plan/program_builder.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using enum Copy::Crosses;

Scenario OnHost(Scenario s, int64_t layers) {
  s.model.layers = layers;
  s.activation_offload = true;
  s.cluster.device = "h100-sxm-80g";
  s.run.backend = Backend::kNccl;
  return s;
}

Scenario InTwoStages(Scenario s, const char* schedule) {
  s.parallel.pipeline = {.size = 2, .schedule = schedule};
  s.batch.accumulate = 4;
  s.cluster.devices_per_node = 2;
  return s;
}

bool Crosses(const Op& op, Copy::Crosses crosses) {
  const auto* copy = std::get_if<Copy>(&op.kind);
  return copy != nullptr && copy->crosses == crosses;
}

// The layer that makes what a copy moves, by the name: "blocks.3.norm1.sum". -1: none, but what comes before
// the first layer of a stage.
int LayerOf(const Op& copy) {
  constexpr std::string_view kPrefix = "blocks.";
  return copy.name.starts_with(kPrefix) ? std::stoi(copy.name.substr(kPrefix.size())) : -1;
}

// The layers with activations that leave the device.
std::set<int> LayersOf(const Program& program) {
  std::set<int> layers;
  for (const Op& op : program.ops)
    if (Crosses(op, kToHost)) layers.insert(LayerOf(op));
  layers.erase(-1);
  return layers;
}

bool IsForward(const Op& op) { return op.phase == Phase::kForward; }
bool IsBackward(const Op& op) { return op.phase == Phase::kBackward || op.phase == Phase::kRecompute; }

// The first operator of the compute stream in the layer's forward, or backward.
OpIndex Begin(const Program& program, int layer, bool (*is_in_pass)(const Op&)) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.layer == layer && op.stream == kComputeStream && is_in_pass(op)) return static_cast<OpIndex>(i);
  }
  ADD_FAILURE() << "no layer " << layer;
  return 0;
}

bool WaitsFor(const Op& op, OpIndex other) {
  return std::find(op.dependencies.begin(), op.dependencies.end(), other) != op.dependencies.end();
}

TEST(ActivationOffload, EachCopyHasABlockToHideBehind) {
  const Plan plan = CompilePlan(OnHost(TinyLlama(), 7)).value();
  const Program& program = plan.roles[0].steady;
  std::map<int, OpIndex> last_to_host, first_back;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const auto index = static_cast<OpIndex>(i);
    if (LayerOf(program.ops[i]) < 0) continue;
    if (Crosses(program.ops[i], kToHost)) last_to_host[LayerOf(program.ops[i])] = index;
    if (Crosses(program.ops[i], kToDevice)) first_back.try_emplace(LayerOf(program.ops[i]), index);
  }
  ASSERT_EQ(last_to_host.size(), 5u);
  for (const auto& [layer, copy] : last_to_host) {
    const OpIndex begin = Begin(program, layer, IsForward), next = Begin(program, layer + 1, IsForward),
                  after_next = Begin(program, layer + 2, IsForward);
    EXPECT_GT(copy, begin) << layer;
    EXPECT_LT(copy, next) << layer;
    EXPECT_TRUE(WaitsFor(program.ops[after_next], copy)) << layer;
  }
  for (const auto& [layer, copy] : first_back) {
    const OpIndex before = Begin(program, layer + 1, IsBackward), begin = Begin(program, layer, IsBackward);
    EXPECT_LT(copy, before) << layer;
    EXPECT_GT(copy, Begin(program, layer + 2, IsBackward)) << layer;
    EXPECT_LT(before, begin) << layer;
  }
}

// When the second layer behind it begins, what a layer's backward needs is in the host's memory alone.
TEST(ActivationOffload, FreesTheDevicesMemory) {
  const Plan plan = CompilePlan(OnHost(TinyGpt(), 8)).value();
  const Role& role = plan.roles[0];
  const OpIndex away = Begin(role.steady, 2, IsForward);
  std::set<BufferId> alive;
  for (const MemoryOp& op : role.steady.memory) {
    if (op.before > away) break;
    if (!op.allocates()) alive.erase(op.buffer);
    else if (op.layer == 0 && role.buffers[op.buffer].category == Category::kActivations)
      alive.insert(op.buffer);
  }
  int on_host = 0;
  for (const BufferId id : alive) {
    const Buffer& buffer = role.buffers[id];
    on_host += buffer.space == MemorySpace::kHost;
    if (buffer.space == MemorySpace::kDevice) {
      EXPECT_LT(buffer.bytes, SizeOf(buffer.dtype) * ActivationOffload::kLeastElements) << buffer.name;
    }
  }
  EXPECT_GT(on_host, 5);
}

// The last two would leave the device for no block.
TEST(ActivationOffload, LeavesTheLastLayersOnTheDevice) {
  EXPECT_THAT(LayersOf(CompilePlan(OnHost(TinyLlama(), 5))->roles[0].steady), ElementsAre(0, 1, 2));
  EXPECT_THAT(LayersOf(CompilePlan(OnHost(TinyLlama(), 2))->roles[0].steady), IsEmpty());
}

// With several micro-batches on their way, other blocks come between.
TEST(ActivationOffload, LayersOfStagesAreAwayWhileOthersWork) {
  const Plan plan = CompilePlan(InTwoStages(OnHost(TinyGpt(), 4), "gpipe")).value();
  EXPECT_THAT(LayersOf(plan.roles[0].steady), ElementsAre(0, 1));
  EXPECT_THAT(LayersOf(plan.roles[1].steady), ElementsAre(2, 3));
}

TEST(ActivationOffload, TakesTheFirstLayersOfEachStage) {
  Scenario s = OnHost(TinyGpt(), 12);
  s.activation_offload_layers = 2;
  EXPECT_THAT(LayersOf(CompilePlan(s)->roles[0].steady), ElementsAre(0, 1));
  const Plan plan = CompilePlan(InTwoStages(s, "1f1b")).value();
  EXPECT_THAT(LayersOf(plan.roles[0].steady), ElementsAre(0, 1));
  EXPECT_THAT(LayersOf(plan.roles[1].steady), ElementsAre(6, 7));
}

// With full recomputation that is one tensor a layer: the block's input.
TEST(ActivationOffload, MovesWhatRecomputationKeeps) {
  Scenario s = OnHost(TinyLlama(), 8);
  s.recompute = Recompute::kFull;
  const Plan plan = CompilePlan(s).value();
  int64_t to_host = 0, back = 0;
  for (const Op& op : plan.roles[0].steady.ops) {
    if (Crosses(op, kToHost)) to_host += std::get<Copy>(op.kind).elements;
    if (Crosses(op, kToDevice)) back += std::get<Copy>(op.kind).elements;
  }
  EXPECT_EQ(to_host, 6 * s.batch.micro * s.model.seq_len * s.model.hidden);
  EXPECT_EQ(back, to_host);
}

TEST(ActivationOffload, EvaluationKeepsNothing) {
  const Plan plan = CompilePlan(OnHost(TinyLlama(), 6), {.evaluates = true}).value();
  EXPECT_THAT(LayersOf(plan.roles[0].evaluate), IsEmpty());
}

// FSDP's copies of offloaded parameters and those of activations take turns on the way to the device.
TEST(ActivationOffload, SharesTheLinkWithParameters) {
  Scenario s = OnHost(TinyLlama(2), 6);
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.offload = Offload::kParam;
  const Plan plan = CompilePlan(s).value();
  std::set<StreamId> to_device;
  for (const Op& op : plan.roles[0].steady.ops)
    if (Crosses(op, kToDevice)) to_device.insert(op.stream);
  EXPECT_EQ(to_device.size(), 1u);
}

}  // namespace
}  // namespace windtunnel
