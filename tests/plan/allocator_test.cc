#include "plan/allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace windtunnel {
namespace {

TEST(CachingAllocator, RoundsRequestsUpTo512Bytes) {
  VirtualSegmentSource source;
  CachingAllocator allocator(&source);
  EXPECT_EQ(allocator.Allocate(Bytes(1))->bytes, Bytes(512));
  EXPECT_EQ(allocator.Allocate(Bytes(513))->bytes, Bytes(1024));
  EXPECT_EQ(allocator.Allocate(Bytes(0))->bytes, Bytes(512));
  EXPECT_EQ(allocator.allocated(), Bytes(2048));
}

TEST(CachingAllocator, TakesSmallRequestsFrom2MiBSegments) {
  VirtualSegmentSource source;
  CachingAllocator allocator(&source);
  ASSERT_TRUE(allocator.Allocate(MiB(1)));
  ASSERT_TRUE(allocator.Allocate(MiB(1)));
  EXPECT_EQ(allocator.reserved(), MiB(2));
  ASSERT_TRUE(allocator.Allocate(Bytes(512)));
  EXPECT_EQ(allocator.reserved(), MiB(4));
}

TEST(CachingAllocator, TakesMediumRequestsFrom20MiBAndLargeOnesFromTheirOwnSize) {
  VirtualSegmentSource source;
  CachingAllocator allocator(&source);
  ASSERT_TRUE(allocator.Allocate(MiB(3)));
  EXPECT_EQ(allocator.reserved(), MiB(20));
  ASSERT_TRUE(allocator.Allocate(MiB(25)));  // 25 MiB in 2 MiB steps: 26 MiB
  EXPECT_EQ(allocator.reserved(), MiB(46));
}

TEST(CachingAllocator, KeepsALargeBlockWholeWhenLessThanOneMiBWouldRemain) {
  VirtualSegmentSource source;
  CachingAllocator allocator(&source);
  auto block = allocator.Allocate(MiB(25));
  // The segment has 26 MiB; the remaining 1 MiB is not more than 1 MiB, so it stays with the block.
  EXPECT_EQ(block->bytes, MiB(26));
}

TEST(CachingAllocator, MergesFreeNeighboursAndReusesThem) {
  VirtualSegmentSource source;
  CachingAllocator allocator(&source);
  auto a = allocator.Allocate(MiB(5)), b = allocator.Allocate(MiB(5)), c = allocator.Allocate(MiB(5));
  allocator.Free(*a);
  allocator.Free(*c);
  allocator.Free(*b);  // everything is one block of 20 MiB again
  EXPECT_EQ(allocator.allocated(), Bytes(0));
  auto whole = allocator.Allocate(MiB(9));
  EXPECT_EQ(whole->address, a->address);
  EXPECT_EQ(allocator.reserved(), MiB(20));
}

TEST(CachingAllocator, TakesTheSmallestBlockThatFits) {
  VirtualSegmentSource source;
  CachingAllocator allocator(&source);
  auto large = allocator.Allocate(MiB(30));
  auto small = allocator.Allocate(MiB(12));
  allocator.Free(*large);
  allocator.Free(*small);
  EXPECT_EQ(allocator.Allocate(MiB(11))->address, small->address);
}

TEST(CachingAllocator, FailsWhenTheSourceIsExhausted) {
  VirtualSegmentSource source(MiB(4));
  CachingAllocator allocator(&source);
  ASSERT_TRUE(allocator.Allocate(Bytes(100)));
  auto result = allocator.Allocate(MiB(3));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "20.0 MiB (20971520 B) asked for, 2.00 MiB of 4.00 MiB reserved");
}

RC_GTEST_PROP(CachingAllocator, NeverHandsOutOverlappingBlocksAndReturnsToNothing, ()) {
  VirtualSegmentSource source;
  CachingAllocator allocator(&source);
  std::vector<Allocation> alive;
  const auto requests = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-8, 3'000'000));
  for (int request : requests) {
    if (request < 0 && !alive.empty()) {
      const size_t victim = static_cast<size_t>(-request) % alive.size();
      allocator.Free(alive[victim]);
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    auto block = allocator.Allocate(Bytes(request < 0 ? 64 : request));
    RC_ASSERT(block.has_value());
    for (const Allocation& other : alive) {
      const bool before = block->address + static_cast<uint64_t>(block->bytes.count()) <= other.address;
      const bool after = other.address + static_cast<uint64_t>(other.bytes.count()) <= block->address;
      RC_ASSERT(before || after);
    }
    alive.push_back(*block);
  }
  Bytes sum;
  for (const Allocation& block : alive) sum += block.bytes;
  RC_ASSERT(allocator.allocated() == sum);
  RC_ASSERT(allocator.reserved() >= allocator.allocated());
  for (const Allocation& block : alive) allocator.Free(block);
  RC_ASSERT(allocator.allocated() == Bytes(0));
}

}  // namespace
}  // namespace windtunnel
