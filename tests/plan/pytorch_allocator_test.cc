// Expectations are computed by hand from the rules of plan/pytorch_allocator.h and plan/allocator.h; each
// test says which.
#include "plan/pytorch_allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace windtunnel {
namespace {

constexpr StreamId kCompute = 0, kGather = 1;
constexpr PytorchAllocator::Options kSegments{.expandable = false}, kExpandable{.expandable = true};

struct Pytorch : VirtualSegmentSource {
  explicit Pytorch(PytorchAllocator::Options options = kSegments, Bytes capacity = Bytes::Max())
      : VirtualSegmentSource(capacity), allocator(this, options) {}
  PytorchAllocator* operator->() { return &allocator; }
  PytorchAllocator allocator;
};

// Rounding: up to multiples of 512 B. A request of no bytes takes none (rule 4), but has an address.
TEST(PytorchAllocator, RoundsRequestsUpTo512Bytes) {
  Pytorch pytorch;
  EXPECT_EQ(pytorch->Allocate(Bytes(1))->bytes, Bytes(512));
  EXPECT_EQ(pytorch->Allocate(Bytes(513))->bytes, Bytes(1024));
  auto nothing = pytorch->Allocate(Bytes(0));
  EXPECT_EQ(nothing->bytes, Bytes(0));
  EXPECT_NE(nothing->address, 0u);
  EXPECT_EQ(pytorch->allocated(), Bytes(1536));
  pytorch->Free(*nothing);
  EXPECT_EQ(pytorch->allocated(), Bytes(1536));
}

// Segments: 2 MiB for requests up to 1 MiB, 20 MiB below 10 MiB, then the request rounded up to 2 MiB.
TEST(PytorchAllocator, ReservesSegmentsByTheSizeOfTheRequest) {
  const std::pair<Bytes, Bytes> cases[] = {{Bytes(512), MiB(2)},         {MiB(1), MiB(2)},
                                           {MiB(1) + Bytes(1), MiB(20)}, {MiB(10) - Bytes(512), MiB(20)},
                                           {MiB(10), MiB(10)},           {MiB(10) + Bytes(1), MiB(12)}};
  for (const auto& [request, segment] : cases) {
    Pytorch pytorch;
    ASSERT_TRUE(pytorch->Allocate(request));
    EXPECT_EQ(pytorch->reserved(), segment) << request.count();
  }
}

// Splitting: the small pool from 512 B on, the large pool above 1 MiB.
TEST(PytorchAllocator, SplitsWhereTheRestIsWorthIt) {
  Pytorch pytorch;
  EXPECT_EQ(pytorch->Allocate(MiB(1) - Bytes(512))->bytes, MiB(1) - Bytes(512));
  EXPECT_EQ(pytorch->Allocate(MiB(1))->bytes, MiB(1));          // of the 1 MiB + 512 B that were left
  EXPECT_EQ(pytorch->Allocate(Bytes(512))->bytes, Bytes(512));  // the last 512 B
  EXPECT_EQ(pytorch->reserved(), MiB(2));
  EXPECT_EQ(pytorch->Allocate(MiB(25))->bytes, MiB(26));  // 1 MiB would be left: not more than 1 MiB
  auto spare = pytorch->Allocate(MiB(24));
  pytorch->Free(*spare);
  EXPECT_EQ(pytorch->Allocate(MiB(22))->bytes, MiB(22));  // 2 MiB are left
}

// Best fit: the smallest free block that is large enough; of equals the one reserved first.
TEST(PytorchAllocator, TakesTheSmallestBlockThatFits) {
  Pytorch pytorch;
  auto large = pytorch->Allocate(MiB(30)), first = pytorch->Allocate(MiB(12)),
       second = pytorch->Allocate(MiB(12));
  for (const auto& block : {*large, *second, *first}) pytorch->Free(block);
  EXPECT_EQ(pytorch->Allocate(MiB(11))->place, first->place);
  EXPECT_EQ(pytorch->Allocate(MiB(11))->place, second->place);
  EXPECT_EQ(pytorch->Allocate(MiB(11))->place, large->place);
}

// Merging: free neighbours of one segment become one block.
TEST(PytorchAllocator, MergesFreeNeighbours) {
  Pytorch pytorch;
  auto a = pytorch->Allocate(MiB(5)), b = pytorch->Allocate(MiB(5)), c = pytorch->Allocate(MiB(5));
  for (const auto& block : {*a, *c, *b}) pytorch->Free(block);
  EXPECT_EQ(pytorch->Allocate(MiB(20) - MiB(2))->place, a->place);
  EXPECT_EQ(pytorch->reserved(), MiB(20));
}

// Rule 1: a block that was freed on a communication stream cannot serve the compute stream.
TEST(PytorchAllocator, KeepsAPoolForEachStream) {
  Pytorch pytorch;
  auto unsharded = pytorch->Allocate(MiB(16), {.stream = kGather});
  pytorch->Free(*unsharded);
  ASSERT_TRUE(pytorch->Allocate(MiB(16), {.stream = kCompute}));
  EXPECT_EQ(pytorch->reserved(), MiB(32));
  EXPECT_EQ(pytorch->largest_unserved(), MiB(16)) << "16 MiB were free, of the other stream";
  EXPECT_EQ(pytorch->Allocate(MiB(16), {.stream = kGather})->place, unsharded->place);
  EXPECT_EQ(pytorch->reserved(), MiB(32));
}

// FSDP's gathers and reductions share one stream here, but have two in PyTorch.
TEST(PytorchAllocator, KeepsAPoolForWhatAStreamHasApart) {
  Pytorch pytorch;
  auto gradient = pytorch->Allocate(MiB(16), {.stream = kGather, .apart = true});
  pytorch->Free(*gradient);
  ASSERT_TRUE(pytorch->Allocate(MiB(16), {.stream = kGather}));
  EXPECT_EQ(pytorch->reserved(), MiB(32));
  EXPECT_EQ(pytorch->Allocate(MiB(16), {.stream = kGather, .apart = true})->place, gradient->place);
}

// Rule 2: a freed block counts as free at once, and is reused when its event has happened.
TEST(PytorchAllocator, ReusesARecordedBlockOnlyAfterItsEvent) {
  Pytorch pytorch;
  auto block = pytorch->Allocate(MiB(16));
  pytorch->Free(*block, 7);
  EXPECT_EQ(pytorch->allocated(), Bytes(0));
  auto other = pytorch->Allocate(MiB(16));
  EXPECT_NE(other->place, block->place);
  EXPECT_EQ(pytorch->reserved(), MiB(32));
  pytorch->Complete(7);
  EXPECT_EQ(pytorch->Allocate(MiB(16))->place, block->place);
}

// Rule 2 again: a pending block does not merge.
TEST(PytorchAllocator, DoesNotMergeWithPendingBlocks) {
  Pytorch pytorch;
  auto a = pytorch->Allocate(MiB(5)), b = pytorch->Allocate(MiB(5)),
       c = pytorch->Allocate(MiB(9));  // 1 MiB goes with c
  pytorch->Free(*b, 1);
  pytorch->Free(*a);
  EXPECT_NE(pytorch->Allocate(MiB(9))->place, a->place);
  EXPECT_EQ(c->bytes, MiB(10));
  EXPECT_EQ(pytorch->reserved(), MiB(40));
  pytorch->Complete(1);
  EXPECT_EQ(pytorch->Allocate(MiB(9))->place, a->place);
}

// Rule 3: 20 + 12 MiB of 40 are reserved; 22 more do not fit, until the 20 that are free have been given back.
TEST(PytorchAllocator, GivesFreeSegmentsBackAndTriesAgain) {
  Pytorch pytorch(kSegments, MiB(40));
  auto a = pytorch->Allocate(MiB(20));
  ASSERT_TRUE(pytorch->Allocate(MiB(12)));
  pytorch->Free(*a);
  ASSERT_TRUE(pytorch->Allocate(MiB(22)));
  EXPECT_EQ(pytorch->reserved(), MiB(34));
  EXPECT_EQ(pytorch.used(), MiB(34));
}

// Rule 3: a segment of which a part is used stays, and so does the failure.
TEST(PytorchAllocator, CannotGiveASegmentBackInParts) {
  Pytorch pytorch(kSegments, MiB(40));
  ASSERT_TRUE(pytorch->Allocate(MiB(3)));
  auto b = pytorch->Allocate(MiB(9));
  pytorch->Free(*b);
  auto result = pytorch->Allocate(MiB(30));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::kFailed);
  EXPECT_EQ(pytorch->reserved(), MiB(20));
  EXPECT_TRUE(pytorch->Allocate(MiB(16))) << "a failure breaks nothing";
}

// Rule 3: running out of memory waits for pending blocks first, where waiting is possible.
TEST(PytorchAllocator, WaitsForPendingBlocksBeforeItFails) {
  for (bool can_wait : {true, false}) {
    Pytorch pytorch({.expandable = false, .can_wait = can_wait}, MiB(40));
    auto a = pytorch->Allocate(MiB(30));
    pytorch->Free(*a, 1);
    EXPECT_EQ(pytorch->Allocate(MiB(32)).has_value(), can_wait);
    pytorch->Complete(1);  // has happened already, or is too late
    EXPECT_EQ(pytorch->reserved(), can_wait ? MiB(32) : MiB(30));
  }
}

// Rule 5: pages of 2 MiB (small) and 20 MiB (large); every rest of at least 512 B is split off.
TEST(ExpandableSegments, MapWholePages) {
  Pytorch pytorch(kExpandable);
  EXPECT_EQ(pytorch->Allocate(Bytes(512))->bytes, Bytes(512));
  EXPECT_EQ(pytorch->reserved(), MiB(2));
  EXPECT_EQ(pytorch->Allocate(MiB(25))->bytes, MiB(25));
  EXPECT_EQ(pytorch->reserved(), MiB(2) + MiB(40));
}

// Rule 5: a request grows into the free end: 3 and 18 MiB need two pages, where segments would have 20 and 18
// MiB.
TEST(ExpandableSegments, GrowFromTheFreeEnd) {
  Pytorch pytorch(kExpandable);
  auto first = pytorch->Allocate(MiB(3));
  auto second = pytorch->Allocate(MiB(18));
  EXPECT_EQ(second->address, first->address + static_cast<uint64_t>(MiB(3).count()));
  EXPECT_EQ(pytorch->reserved(), MiB(40));
  EXPECT_EQ(pytorch->Allocate(MiB(19))->address, second->address + static_cast<uint64_t>(MiB(18).count()));
  EXPECT_EQ(pytorch->reserved(), MiB(40)) << "3 + 18 + 19 fill both";
}

// Rule 5: of one page, 6 MiB are free before a used block and 5 after it. 5 MiB fit the end best, but the end
// can grow.
TEST(ExpandableSegments, PreferAHoleToTheGrowingEnd) {
  Pytorch pytorch(kExpandable);
  auto a = pytorch->Allocate(MiB(6));
  ASSERT_TRUE(pytorch->Allocate(MiB(9)));
  pytorch->Free(*a);
  EXPECT_EQ(pytorch->Allocate(MiB(5))->place, a->place);
}

// Rules 3 and 5: a takes 0–15 MiB, b 15–35 of two pages. With a free, both pages still hold parts of b; with
// b free, the second can go to the other stream, and come back when that has no use for it.
TEST(ExpandableSegments, GiveFreePagesBack) {
  Pytorch pytorch(kExpandable, MiB(40));
  auto a = pytorch->Allocate(MiB(15)), b = pytorch->Allocate(MiB(20));
  pytorch->Free(*a);
  EXPECT_FALSE(pytorch->Allocate(MiB(20), {.stream = kGather}));
  a = pytorch->Allocate(MiB(15));
  pytorch->Free(*b);
  auto other = pytorch->Allocate(MiB(20), {.stream = kGather});
  ASSERT_TRUE(other);
  EXPECT_EQ(pytorch->reserved(), MiB(40));
  pytorch->Free(*other);
  auto again = pytorch->Allocate(MiB(20));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->address, b->address) << "15–20 MiB and the page that was mapped again";
  EXPECT_EQ(pytorch->reserved(), MiB(40));
}

// A plan's buffer may be larger than any device and than the addresses of a usual segment.
TEST(ExpandableSegments, TakeRequestsOfAnySize) {
  Pytorch pytorch(kExpandable), with_limit(kExpandable, GiB(80));
  EXPECT_EQ(pytorch->Allocate(GiB(2048))->bytes, GiB(2048));
  EXPECT_EQ(pytorch->Allocate(GiB(2048))->bytes, GiB(2048));
  EXPECT_FALSE(with_limit->Allocate(GiB(2048)));
  EXPECT_TRUE(with_limit->Allocate(GiB(79)));
}

// Batches that grow: segments of 12, 14 and 16 MiB, none of which serves the next size, against one page of
// 20 MiB.
TEST(ExpandableSegments, NeedLessMemoryThanSegmentsForGrowingRequests) {
  Pytorch segments(kSegments), expandable(kExpandable);
  for (Pytorch* pytorch : {&segments, &expandable}) {
    for (int64_t size : {12, 14, 16}) {
      auto block = pytorch->allocator.Allocate(MiB(size));
      ASSERT_TRUE(block);
      pytorch->allocator.Free(*block);
    }
  }
  EXPECT_EQ(segments->reserved(), MiB(12 + 14 + 16));
  EXPECT_EQ(segments->largest_unserved(), MiB(16)) << "26 MiB were free, in two pieces";
  EXPECT_EQ(expandable->reserved(), MiB(20));
  EXPECT_EQ(expandable->largest_unserved(), Bytes(0));
}

// Without a second stream, events or a limit, PyTorch's policy is Windtunnel's.
RC_GTEST_PROP(PytorchAllocator, ReservesWhatCachingAllocatorDoesOnOneStream, ()) {
  Pytorch pytorch;
  VirtualSegmentSource source;
  CachingAllocator caching(&source);
  std::vector<std::pair<Allocation, Allocation>> alive;
  for (int request : *rc::gen::container<std::vector<int>>(rc::gen::inRange(-20, 12'000'000))) {
    if (request <= 0) {
      if (alive.empty()) continue;
      const size_t victim = static_cast<size_t>(-request) % alive.size();
      pytorch->Free(alive[victim].first);
      caching.Free(alive[victim].second);
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(victim));
    } else {
      alive.emplace_back(*pytorch->Allocate(Bytes(request)), *caching.Allocate(Bytes(request)));
      RC_ASSERT(alive.back().first.place == alive.back().second.place);
    }
    RC_ASSERT(pytorch->reserved() == caching.reserved());
    RC_ASSERT(pytorch->allocated() == caching.allocated());
  }
}

bool Overlap(const Allocation& a, const Allocation& b) {
  return a.address < b.address + static_cast<uint64_t>(b.bytes.count()) &&
         b.address < a.address + static_cast<uint64_t>(a.bytes.count());
}

// Random requests on three streams, some freed after an event. Pending blocks are still in use.
void CheckInvariants(PytorchAllocator::Options options) {
  constexpr Bytes kCapacity = MiB(1040);  // 52 pages of 20 MiB
  Pytorch pytorch(options, kCapacity);
  std::vector<Allocation> alive;
  std::vector<std::pair<MemoryEvent, Allocation>> pending;
  MemoryEvent next_event = 0;
  const auto actions = *rc::gen::container<std::vector<std::tuple<int, int, bool>>>(
      rc::gen::tuple(rc::gen::inRange(0, 4), rc::gen::inRange(1, 5'000'000), rc::gen::arbitrary<bool>()));
  for (const auto& [action, size, small] : actions) {
    if (action == 3 && !alive.empty()) {
      const auto victim = alive.begin() + size % static_cast<std::ptrdiff_t>(alive.size());
      pytorch->Free(*victim, small ? next_event : kNow);
      if (small) pending.emplace_back(next_event++, *victim);
      alive.erase(victim);
    } else if (action == 3 && !pending.empty()) {
      pytorch->Complete(pending.front().first);
      pending.erase(pending.begin());
    } else {
      auto block =
          pytorch->Allocate(Bytes(small ? size / 10 : size), {.stream = action, .apart = size % 2 == 0});
      RC_ASSERT(block.has_value());  // a hundred requests of 5 MB stay below the capacity
      for (const Allocation& other : alive) RC_ASSERT(!Overlap(*block, other));
      for (const auto& [event, other] : pending) RC_ASSERT(!Overlap(*block, other));
      alive.push_back(*block);
    }
    Bytes sum;
    for (const Allocation& block : alive) sum += block.bytes;
    RC_ASSERT(pytorch->allocated() == sum);
    RC_ASSERT(pytorch->reserved() >= pytorch->allocated());
    RC_ASSERT(pytorch->reserved() == pytorch.used());
  }
  // Freed blocks all merge, so rule 3 can hand everything to one request.
  for (const auto& [event, block] : pending) pytorch->Complete(event);
  for (const Allocation& block : alive) pytorch->Free(block);
  RC_ASSERT(pytorch->allocated() == Bytes(0));
  RC_ASSERT(pytorch->Allocate(kCapacity, {.stream = 2}).has_value());
  RC_ASSERT(pytorch->reserved() == kCapacity);
}
RC_GTEST_PROP(PytorchAllocator, KeepsItsInvariants, ()) {
  CheckInvariants({.expandable = false, .can_wait = false});
}
RC_GTEST_PROP(ExpandableSegments, KeepTheirInvariants, ()) {
  CheckInvariants({.expandable = true, .can_wait = false});
}

// Last in, first out leaves no holes, so less than a page is reserved beyond the peak.
RC_GTEST_PROP(ExpandableSegments, WasteLessThanAPageOnAStack, ()) {
  Pytorch pytorch(kExpandable);
  std::vector<Allocation> stack;
  Bytes peak;
  for (int request : *rc::gen::container<std::vector<int>>(rc::gen::inRange(-10, 30))) {
    if (request > 1) {
      stack.push_back(*pytorch->Allocate(MiB(request) + Bytes(1)));
    } else if (!stack.empty()) {
      pytorch->Free(stack.back());
      stack.pop_back();
    }
    peak = std::max(peak, pytorch->allocated());
    RC_ASSERT(pytorch->reserved() < peak + MiB(20));
    RC_ASSERT(pytorch->largest_unserved() == Bytes(0));
  }
}

}  // namespace
}  // namespace windtunnel
