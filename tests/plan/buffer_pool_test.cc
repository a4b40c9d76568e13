#include "plan/buffer_pool.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

const std::vector<Buffer> kBuffers = {{"weights", MiB(1), Category::kParameters},
                                      {"gradients", MiB(1), Category::kGradients},
                                      {"activations", KiB(512), Category::kActivations}};

TEST(BufferPool, SaysWhatThePeakConsistedOf) {
  VirtualSegmentSource source;
  BufferPool pool(kBuffers, &source);
  ASSERT_TRUE(pool.Alloc(0));
  ASSERT_TRUE(pool.Alloc(2));
  pool.Free(2);
  ASSERT_TRUE(pool.Alloc(1));  // the peak: 2 MiB, without the activations
  pool.Free(1);
  EXPECT_EQ(pool.peak().allocated, MiB(2));
  EXPECT_EQ(pool.peak().by_category[static_cast<int>(Category::kParameters)], MiB(1));
  EXPECT_EQ(pool.peak().by_category[static_cast<int>(Category::kGradients)], MiB(1));
  EXPECT_EQ(pool.peak().by_category[static_cast<int>(Category::kActivations)], Bytes(0));
}

TEST(BufferPool, ResetPeakStartsFromWhatIsAllocated) {
  VirtualSegmentSource source;
  BufferPool pool(kBuffers, &source);
  ASSERT_TRUE(pool.Alloc(0));
  ASSERT_TRUE(pool.Alloc(1));
  pool.Free(1);
  pool.ResetPeak();
  EXPECT_EQ(pool.peak().allocated, MiB(1));
}

TEST(BufferPool, OutOfMemoryNamesTheBufferAndTheLargestHolders) {
  VirtualSegmentSource source(MiB(2));
  BufferPool pool(kBuffers, &source);
  ASSERT_TRUE(pool.Alloc(0));
  ASSERT_TRUE(pool.Alloc(1));
  auto status = pool.Alloc(2);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kFailed);
  EXPECT_NE(status.error().message.find("out of device memory for buffer 'activations' (512 KiB)"),
            std::string::npos)
      << status.error().message;
  EXPECT_NE(status.error().message.find("weights (1.00 MiB), gradients (1.00 MiB)"), std::string::npos);
}

const std::vector<Buffer> kOffloaded = {
    {"shard", MiB(4), Category::kParameters},
    {"moments", MiB(8), Category::kOptimizer, DType::kFloat32, MemorySpace::kHost}};

TEST(BufferPool, CountsHostMemoryApart) {
  VirtualSegmentSource device, host;
  BufferPool pool(kOffloaded, MemorySetup{.device = &device, .host = &host});
  ASSERT_TRUE(pool.Alloc(0));
  ASSERT_TRUE(pool.Alloc(1));
  EXPECT_EQ(pool.allocated(), MiB(4));
  EXPECT_EQ(pool.reserved(), MiB(20));
  EXPECT_EQ(device.used(), MiB(20));
  EXPECT_EQ(pool.host_allocated(), MiB(8));
  EXPECT_EQ(host.used(), MiB(20));
  EXPECT_EQ(pool.peak().allocated, MiB(4));
  EXPECT_EQ(pool.peak().by_category[static_cast<int>(Category::kOptimizer)], Bytes(0));
  EXPECT_EQ(pool.peak().host_allocated, MiB(8));
  EXPECT_EQ(pool.peak().host_by_category[static_cast<int>(Category::kOptimizer)], MiB(8));
  EXPECT_EQ(pool.Largest(10, MemorySpace::kHost), std::vector<BufferId>{1});
}

TEST(BufferPool, OutOfMemorySaysWhichMemory) {
  VirtualSegmentSource device, host(MiB(4));
  BufferPool pool(kOffloaded, MemorySetup{.device = &device, .host = &host});
  ASSERT_TRUE(pool.Alloc(0));
  auto status = pool.Alloc(1);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("out of host memory for buffer 'moments' (8.00 MiB)"),
            std::string::npos)
      << status.error().message;
  EXPECT_NE(status.error().message.find("the largest buffers alive are none"), std::string::npos)
      << "the device's are no help: " << status.error().message;
}

// FSDP: two units of 16 MiB, gathered on a stream of their own and used on the compute stream, which is
// recorded when they are freed.
struct TwoUnits {
  static constexpr StreamId kGather = 1, kHost = 2;
  std::vector<Buffer> buffers = {{"unit 0", MiB(16), Category::kParameters},
                                 {"unit 1", MiB(16), Category::kParameters}};
  Program program;

  OpIndex Add(OpKind kind, StreamId stream, BufferId buffer, std::vector<OpIndex> dependencies = {}) {
    Op op;
    op.kind = std::move(kind);
    op.stream = stream;
    op.writes = {Slice{buffer}};
    op.dependencies = std::move(dependencies);
    program.ops.push_back(std::move(op));
    return static_cast<OpIndex>(program.ops.size()) - 1;
  }
  void AddMemory(MemoryOp op) {
    op.before = static_cast<OpIndex>(program.ops.size());
    program.memory.push_back(op);
  }
  // Returns the last operator that uses the unit.
  OpIndex AddUnit(BufferId unit) {
    AddMemory({.kind = MemoryOp::Kind::kAlloc, .buffer = unit, .stream = kGather});
    const OpIndex gathered = Add(Collective{CollectiveKind::kAllGather}, kGather, unit);
    const OpIndex used = Add(Gemm{}, kComputeStream, unit, {gathered});
    AddMemory({.kind = MemoryOp::Kind::kFree, .buffer = unit, .recorded_stream = kComputeStream});
    return used;
  }
  void Run(BufferPool& pool) const {
    const auto on_memory = [&](int32_t index) { EXPECT_TRUE(pool.Execute(program, program.memory[index])); };
    const auto on_op = [&](OpIndex index) {
      if (std::holds_alternative<HostWait>(program.ops[index].kind)) pool.NoteHostWait(program, index);
    };
    WalkProgram(program, on_memory, on_op);
  }
  Bytes Reserved(AllocatorKind allocator) const {
    VirtualSegmentSource source;
    BufferPool pool(buffers, MemorySetup{.device = &source, .host = &source, .allocator = allocator});
    Run(pool);
    pool.FinishProgram();
    const Bytes first = pool.reserved();
    Run(pool);
    EXPECT_EQ(pool.reserved(), first) << "the next step finds what this one left";
    EXPECT_EQ(pool.peak().allocated, MiB(16));
    EXPECT_EQ(pool.peak().reserved, first);
    EXPECT_EQ(pool.peak().allocated_at_reserved, MiB(16));
    EXPECT_EQ(pool.peak().largest_unserved, first > MiB(20) ? MiB(16) : Bytes(0));
    return first;
  }
};

TEST(BufferPool, ReservesForEveryUnitWhenTheHostRunsAhead) {
  TwoUnits fsdp;
  fsdp.AddUnit(0);
  fsdp.AddUnit(1);
  EXPECT_EQ(fsdp.Reserved(AllocatorKind::kPytorch), MiB(32));
  EXPECT_EQ(fsdp.Reserved(AllocatorKind::kPytorchExpandable), MiB(40));
  EXPECT_EQ(fsdp.Reserved(AllocatorKind::kWindtunnel), MiB(16));
}

TEST(BufferPool, AHostWaitMakesRecordedMemoryReusable) {
  TwoUnits fsdp;
  const OpIndex used = fsdp.AddUnit(0);
  fsdp.Add(HostWait{}, TwoUnits::kHost, 0, {used});
  fsdp.AddUnit(1);
  EXPECT_EQ(fsdp.Reserved(AllocatorKind::kPytorch), MiB(16));
  EXPECT_EQ(fsdp.Reserved(AllocatorKind::kPytorchExpandable), MiB(20));
}

TEST(BufferPool, WaitingForAnOperatorIsWaitingForAllBeforeIt) {
  TwoUnits fsdp;
  const OpIndex used = fsdp.AddUnit(0);
  const OpIndex reduced = fsdp.Add(Collective{CollectiveKind::kReduceScatter}, TwoUnits::kGather, 0, {used});
  const OpIndex next = fsdp.Add(Collective{CollectiveKind::kReduceScatter}, TwoUnits::kGather, 0);
  EXPECT_GT(next, reduced);
  fsdp.Add(HostWait{}, TwoUnits::kHost, 0, {next});
  fsdp.AddUnit(1);
  EXPECT_EQ(fsdp.Reserved(AllocatorKind::kPytorch), MiB(16));
}

TEST(BufferPool, AWaitForEarlierWorkDoesNotCount) {
  TwoUnits fsdp;
  const OpIndex before = fsdp.Add(Gemm{}, kComputeStream, 0);
  fsdp.AddUnit(0);
  fsdp.Add(HostWait{}, TwoUnits::kHost, 0, {before});
  fsdp.AddUnit(1);
  EXPECT_EQ(fsdp.Reserved(AllocatorKind::kPytorch), MiB(32));
}

}  // namespace
}  // namespace windtunnel
