#include "sim/role_memory.h"

#include <gtest/gtest.h>

#include "tests/sim/fixtures.h"

namespace windtunnel {
namespace {

MemoryOp Alloc(BufferId buffer) { return {.kind = MemoryOp::Kind::kAlloc, .buffer = buffer}; }
MemoryOp Free(BufferId buffer) { return {.kind = MemoryOp::Kind::kFree, .buffer = buffer}; }

// Buffers 0: weights, 1: start-up only, 2: activations.
Role MakeRole() {
  Role role;
  role.buffers = {{.name = "weights", .bytes = MiB(12), .category = Category::kParameters},
                  {.name = "first bucket", .bytes = MiB(20), .category = Category::kCommunication},
                  {.name = "activations", .bytes = Bytes(1000), .category = Category::kActivations}};
  role.initialize.memory = {Alloc(0)};
  role.startup.resize(1);
  role.startup[0].memory = {Alloc(1), Free(1)};
  role.steady.memory = {Alloc(2), Free(2)};
  return role;
}

// Start-up: 12 + 20 MiB. Steady: 12 MiB and 1,000 bytes rounded up to 1,024. Reserved stays: segments of 12
// and 20 MiB and the 2 MiB that small requests come from.
TEST(RoleMemory, KeepsStartUpApartFromTheSteadyStep) {
  const RoleMemory memory = SimulateMemory(MakeRole()).value();
  EXPECT_EQ(memory.initial_peak, MiB(32));
  EXPECT_EQ(memory.steady.allocated, MiB(12) + Bytes(1024));
  EXPECT_EQ(memory.steady.by_category[static_cast<int>(Category::kParameters)], MiB(12));
  EXPECT_EQ(memory.steady.by_category[static_cast<int>(Category::kActivations)], Bytes(1024));
  EXPECT_EQ(memory.steady.by_category[static_cast<int>(Category::kCommunication)], Bytes(0));
  EXPECT_EQ(memory.reserved, MiB(34));
}

// The first step's logits take the place of start-up's. The gradient, which stays, is then allocated there,
// since the scratch buffer has the gradient's place. The second step's logits need a segment of their own,
// and nothing changes after that.
TEST(RoleMemory, IsThatOfStepsThatFindWhatStepsLeave) {
  Role role;
  role.buffers = {{.name = "gradient", .bytes = MiB(20)},
                  {.name = "logits", .bytes = MiB(40)},
                  {.name = "scratch", .bytes = MiB(20)}};
  role.initialize.memory = {Alloc(0), Alloc(1), Free(1)};
  role.steady.memory = {Alloc(1), Free(1), Free(0), Alloc(2), Alloc(0), Free(2)};
  const RoleMemory memory = SimulateMemory(role).value();
  EXPECT_EQ(memory.steady.allocated, MiB(60));
  EXPECT_EQ(memory.steady.reserved, MiB(100));
  EXPECT_EQ(memory.reserved, MiB(100));
  EXPECT_EQ(memory.samples.size(), role.steady.memory.size()) << "of one step";
}

// The gradient of 13.5 MiB has a whole segment of 14 MiB, until the first step leaves it a part of another.
// At once there are 14 and 28 MiB, later 13.5 and 28. A run's peak is the first step's.
TEST(RoleMemory, HasThePeakOfAllSteadySteps) {
  Role role;
  role.buffers = {{.name = "gradient", .bytes = MiB(13) + KiB(512), .category = Category::kGradients},
                  {.name = "logits", .bytes = MiB(28), .category = Category::kActivations},
                  {.name = "scratch", .bytes = MiB(14)}};
  role.initialize.memory = {Alloc(0)};
  role.steady.memory = {Alloc(1), Free(0), Free(1), Alloc(2), Alloc(0), Free(2)};
  const RoleMemory memory = SimulateMemory(role).value();
  EXPECT_GT(memory.steps, 1);
  EXPECT_EQ(memory.steady.allocated, MiB(42));
  EXPECT_EQ(memory.steady.by_category[static_cast<int>(Category::kActivations)], MiB(28));
  Bytes last;
  for (const MemorySample& sample : memory.samples) last = std::max(last, sample.allocated);
  EXPECT_EQ(last, MiB(41) + KiB(512));
}

TEST(RoleMemory, CountsHostMemoryBesideTheDevices) {
  Role role = MakeRole();
  role.buffers[0].space = MemorySpace::kHost;
  const RoleMemory memory = SimulateMemory(role).value();
  EXPECT_EQ(memory.initial_peak, MiB(20));
  EXPECT_EQ(memory.steady.allocated, Bytes(1024));
  EXPECT_EQ(memory.steady.host_allocated, MiB(12));
  EXPECT_EQ(memory.steady.host_by_category[static_cast<int>(Category::kParameters)], MiB(12));
  EXPECT_EQ(memory.reserved, MiB(22));
  EXPECT_EQ(memory.host_reserved, MiB(12));
  EXPECT_EQ(memory.samples[0].allocated, Bytes(1024)) << "samples are the device's";
}

// The first bucket's segment of 20 MiB is free when the steady step begins. Without it, 12 MiB and the
// activations' 2 MiB fit.
TEST(RoleMemory, PytorchGivesSegmentsBackWhereTheDeviceIsFull) {
  RoleMemoryOptions options{.device_capacity = MiB(33)};
  auto full = SimulateMemory(MakeRole(), options);
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("out of device memory for buffer 'activations'"), std::string::npos)
      << full.error().message;
  options.allocator = AllocatorKind::kPytorch;
  const RoleMemory memory = SimulateMemory(MakeRole(), options).value();
  EXPECT_EQ(memory.reserved, MiB(14));
  EXPECT_EQ(memory.steady.reserved, MiB(32)) << "before the first operator";
}

// 100 MiB are free when 120 are requested, which makes 220 without a limit. With room for 150 the segment of
// 100 is given back first, in the first step, and 120 serve both from then on. 110 are not enough, and then
// the result is what would be.
TEST(RoleMemory, PytorchGivesBackWhatItHasCachedBeforeItFails) {
  Role role;
  role.buffers = {{.name = "logits", .bytes = MiB(100), .category = Category::kActivations},
                  {.name = "gradients", .bytes = MiB(120), .category = Category::kGradients}};
  role.steady.memory = {Alloc(0), Free(0), Alloc(1), Free(1)};
  const auto within = [&](Bytes room, AllocatorKind allocator) {
    return SimulateMemoryWithin(room, role, allocator).value().steady;
  };
  for (AllocatorKind allocator : {AllocatorKind::kPytorch, AllocatorKind::kPytorchExpandable}) {
    EXPECT_EQ(within(MiB(220), allocator).retries, 0);
    const MemoryPeak tight = within(MiB(150), allocator);
    EXPECT_LE(tight.reserved, MiB(150));
    EXPECT_EQ(tight.retries, 0);
    EXPECT_EQ(tight.allocated, MiB(120));
    EXPECT_GE(within(MiB(110), allocator).reserved, MiB(120));
  }
  EXPECT_EQ(within(MiB(150), AllocatorKind::kWindtunnel).reserved, MiB(220)) << "keeps its segments for ever";
}

// The requested bytes are the same for every allocator, except that Windtunnel's gives a block for a request
// of no bytes. The first bucket does not belong to the steady step, and host memory not to the device.
TEST(RoleMemory, RequestsAreKnownWithoutAnAllocator) {
  Role role = MakeRole();
  role.buffers.push_back({.name = "empty shard", .bytes = Bytes(0), .category = Category::kParameters});
  role.buffers.push_back({.name = "offloaded", .bytes = MiB(50), .space = MemorySpace::kHost});
  role.initialize.memory.push_back(Alloc(3));
  role.initialize.memory.push_back(Alloc(4));
  for (AllocatorKind allocator :
       {AllocatorKind::kWindtunnel, AllocatorKind::kPytorch, AllocatorKind::kPytorchExpandable}) {
    const Bytes for_nothing = allocator == AllocatorKind::kWindtunnel ? Bytes(512) : Bytes(0);
    EXPECT_EQ(RequestedPeak(role, allocator), MiB(12) + Bytes(1024) + for_nothing);
    EXPECT_EQ(RequestedPeak(role, allocator),
              SimulateMemory(role, {.allocator = allocator}).value().steady.requested);
  }
}

TEST(RoleMemory, SamplesEveryAllocAndFreeOfTheSteadyStep) {
  const RoleMemory memory = SimulateMemory(MakeRole()).value();
  ASSERT_EQ(memory.samples.size(), 2u);
  EXPECT_EQ(memory.samples[0].index, 0);
  EXPECT_EQ(memory.samples[0].allocated, MiB(12) + Bytes(1024));
  EXPECT_EQ(memory.samples[1].allocated, MiB(12));
}

}  // namespace
}  // namespace windtunnel
