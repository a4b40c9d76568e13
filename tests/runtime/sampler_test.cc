#include "runtime/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace windtunnel {
namespace {

using Indices = std::vector<int64_t>;

Indices Of(int64_t size, SamplerOptions options, int64_t epoch = 0) {
  DistributedSampler sampler(size, options);
  sampler.set_epoch(epoch);
  return sampler.indices();
}

TEST(DistributedSampler, StridesThroughTheDataInOrderWithoutShuffle) {
  EXPECT_EQ(Of(6, {.replicas = 2, .rank = 0, .shuffle = false}), (Indices{0, 2, 4}));
  EXPECT_EQ(Of(6, {.replicas = 2, .rank = 1, .shuffle = false}), (Indices{1, 3, 5}));
}

// 7 samples over 3 replicas: ceil(7 / 3) = 3 each, 9 in all, so samples 0 and 1 come twice.
TEST(DistributedSampler, PadsByRepeatingFromTheStart) {
  EXPECT_EQ(Of(7, {.replicas = 3, .rank = 0, .shuffle = false}), (Indices{0, 3, 6}));
  EXPECT_EQ(Of(7, {.replicas = 3, .rank = 1, .shuffle = false}), (Indices{1, 4, 0}));
  EXPECT_EQ(Of(7, {.replicas = 3, .rank = 2, .shuffle = false}), (Indices{2, 5, 1}));
}

// 2 samples over 5 replicas: padding (3) exceeds the data, which repeats: 0 1 0 1 0.
TEST(DistributedSampler, RepeatsTheWholeDataWhenPaddingExceedsIt) {
  for (int64_t rank = 0; rank < 5; ++rank)
    EXPECT_EQ(Of(2, {.replicas = 5, .rank = rank, .shuffle = false}), (Indices{rank % 2}));
}

TEST(DistributedSampler, ShufflesBySeedPlusEpoch) {
  const SamplerOptions options = {.seed = 5};
  EXPECT_NE(Of(100, options, 0), Of(100, options, 1));
  EXPECT_EQ(Of(100, options, 3), Of(100, {.seed = 8}, 0));
  EXPECT_EQ(DistributedSampler(100, options).indices(), Of(100, options, 0));
}

TEST(DistributedSampler, WithoutShuffleEveryEpochIsAlike) {
  EXPECT_EQ(Of(10, {.shuffle = false}, 0), Of(10, {.shuffle = false}, 4));
}

TEST(DistributedSampler, OfNoDataHasNoSamples) { EXPECT_TRUE(Of(0, {.replicas = 2, .rank = 1}).empty()); }

RC_GTEST_PROP(DistributedSampler, ReplicasPartitionTheDataWhenItDivides, ()) {
  const auto replicas = *rc::gen::inRange<int64_t>(1, 9), each = *rc::gen::inRange<int64_t>(0, 40);
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  Indices all;
  for (int64_t rank = 0; rank < replicas; ++rank) {
    Indices mine = Of(replicas * each, {.replicas = replicas, .rank = rank, .seed = seed}, 2);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  Indices expected(static_cast<size_t>(replicas * each));
  std::iota(expected.begin(), expected.end(), 0);
  RC_ASSERT(all == expected);
}

// A step of W replicas with micro-batch b sees what one replica with micro-batch W b sees.
RC_GTEST_PROP(DistributedSampler, TheGlobalBatchDoesNotDependOnTheNumberOfReplicas, ()) {
  const auto replicas = *rc::gen::inRange<int64_t>(1, 7), micro = *rc::gen::inRange<int64_t>(1, 6);
  const auto steps = *rc::gen::inRange<int64_t>(1, 5);
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const int64_t size = replicas * micro * steps;
  const Indices one = Of(size, {.seed = seed});
  for (int64_t step = 0; step < steps; ++step) {
    Indices together;
    for (int64_t rank = 0; rank < replicas; ++rank) {
      const Indices mine = Of(size, {.replicas = replicas, .rank = rank, .seed = seed});
      together.insert(together.end(), mine.begin() + step * micro, mine.begin() + (step + 1) * micro);
    }
    Indices expected(one.begin() + step * micro * replicas, one.begin() + (step + 1) * micro * replicas);
    std::sort(together.begin(), together.end());
    std::sort(expected.begin(), expected.end());
    RC_ASSERT(together == expected);
  }
}

TEST(DistributedSamplerDeathTest, ChecksTheReplicasBeforeItDividesByThem) {
  EXPECT_DEATH(DistributedSampler(4, {.replicas = 0}), "replicas > 0");
}

}  // namespace
}  // namespace windtunnel
