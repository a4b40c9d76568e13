#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "plan/gradient_buckets.h"
#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

using Buckets = std::vector<std::vector<int>>;

TEST(AssignBuckets, ClosesABucketOnceItReachesItsLimit) {
  // 300 + 800 >= 1000 closes the first bucket above its limit; 200 is left over.
  EXPECT_EQ(AssignBuckets({Bytes(300), Bytes(800), Bytes(200)}, {Bytes(1000)}), (Buckets{{0, 1}, {2}}));
}

TEST(BucketCap, IsTheScenariosOrGrowsWithMegatronCoresRanks) {
  Scenario scenario = TinyGpt(8);
  EXPECT_EQ(BucketCap(scenario, Bytes(2)), MiB(25));
  scenario.framework = Framework::kMegatronCore;
  EXPECT_EQ(BucketCap(scenario, Bytes(2)), Bytes(80'000'000));
  scenario.parallel.data.size = 64;
  scenario.parallel.context.size = 2;
  EXPECT_EQ(BucketCap(scenario, Bytes(4)), Bytes(4 * 128'000'000));
  scenario.parallel.data.overlap = false;
  EXPECT_EQ(BucketCap(scenario, Bytes(4)), Bytes::Max());
  scenario.parallel.data.bucket_cap_mb = 3;
  EXPECT_EQ(BucketCap(scenario, Bytes(4)), MiB(3));
}

TEST(BucketLimits, BeginSmallButForMegatronCore) {
  Scenario scenario = TinyGpt(8);
  EXPECT_EQ(BucketLimits(scenario, Bytes(2)), (std::vector<Bytes>{MiB(1), MiB(25)}));
  scenario.framework = Framework::kMegatronCore;
  EXPECT_EQ(BucketLimits(scenario, Bytes(2)), std::vector<Bytes>{Bytes(80'000'000)});
}

TEST(AssignBuckets, MovesOnToTheNextLimitAndStaysOnTheLast) {
  const std::vector<Bytes> sizes(6, Bytes(10));
  EXPECT_EQ(AssignBuckets(sizes, {Bytes(10), Bytes(20)}), (Buckets{{0}, {1, 2}, {3, 4}, {5}}));
}

RC_GTEST_PROP(AssignBuckets, PutsEveryTensorIntoExactlyOneBucketInOrder, ()) {
  const auto counts = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 5000)));
  const int limit = *rc::gen::inRange(1, 10000);
  std::vector<Bytes> sizes;
  for (int count : counts) sizes.push_back(Bytes(count));
  std::vector<int> seen;
  for (const auto& bucket : AssignBuckets(sizes, {Bytes(100), Bytes(limit)})) {
    RC_ASSERT(!bucket.empty());
    seen.insert(seen.end(), bucket.begin(), bucket.end());
  }
  RC_ASSERT(std::is_sorted(seen.begin(), seen.end()));
  RC_ASSERT(seen.size() == sizes.size());
}

// Two layers of hidden 128 have about 0.43 M parameters (1.7 MB); a cap of 0.25 MiB makes several buckets.
Scenario SeveralBuckets() {
  Scenario s = TinyGpt(2);
  s.model.hidden = 128;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 512;
  s.parallel.data.bucket_cap_mb = 0.25;
  return s;
}

std::vector<const Op*> CollectivesOf(const Program& program, CollectiveKind kind) {
  std::vector<const Op*> found;
  for (const Op& op : program.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective != nullptr && collective->kind == kind) found.push_back(&op);
  }
  return found;
}

int64_t Elements(const Op& op) { return std::get<Collective>(op.kind).elements; }

TEST(Ddp, TheFirstStepHasOneBucketThatNothingOverlaps) {
  const Plan plan = *CompilePlan(SeveralBuckets());
  const Program& first = plan.roles[0].startup[0];
  const auto reductions = CollectivesOf(first, CollectiveKind::kAllReduce);
  ASSERT_EQ(reductions.size(), 1u);
  EXPECT_EQ(Elements(*reductions[0]), plan.model.parameters);
  // After it only copies back, the optimizer with its fresh state and the barrier: no backward.
  const Op* end = first.ops.data() + first.ops.size();
  for (const Op* op = reductions[0] + 1; op < end; ++op) EXPECT_NE(op->phase, Phase::kBackward) << op->name;
}

TEST(Ddp, RebuildsBucketsInReadyOrderAtTheStartOfTheSecondStep) {
  const Plan plan = *CompilePlan(SeveralBuckets());
  const Role& role = plan.roles[0];
  ASSERT_EQ(role.startup.size(), 2u);
  EXPECT_EQ(CollectivesOf(role.startup[1], CollectiveKind::kBroadcast).size(), 2u);
  EXPECT_TRUE(CollectivesOf(role.steady, CollectiveKind::kBroadcast).empty());
  // The head is ready first, so it opens bucket 0. All but the last are closed when they reach the given
  // size.
  const auto reductions = CollectivesOf(role.steady, CollectiveKind::kAllReduce);
  ASSERT_GE(reductions.size(), 4u);
  for (size_t i = 0; i + 1 < reductions.size(); ++i)
    EXPECT_GE(Elements(*reductions[i]) * 16, MiB(1).count()) << i;
  EXPECT_LT(Elements(*reductions[0]) * 4, MiB(1).count());
  int64_t total = 0;
  for (const Op* op : reductions) total += Elements(*op);
  EXPECT_EQ(total, plan.model.parameters);
}

TEST(Ddp, AllocatesTheNewBucketsBeforeItFreesTheOldOne) {
  const Plan plan = *CompilePlan(SeveralBuckets());
  const Role& role = plan.roles[0];
  int last_alloc = -1, first_free = -1;
  for (size_t i = 0; i < role.startup[1].memory.size(); ++i) {
    const MemoryOp& op = role.startup[1].memory[i];
    if (role.buffers[op.buffer].name.find("bucket ") == std::string::npos) continue;
    if (op.allocates()) last_alloc = static_cast<int>(i);
    else if (first_free < 0) first_free = static_cast<int>(i);
  }
  ASSERT_GE(first_free, 0);
  EXPECT_LT(last_alloc, first_free);
}

TEST(Ddp, LaunchesBucketsInOrderAndOverlapsThemWithBackward) {
  const Plan plan = *CompilePlan(SeveralBuckets());
  const Program& steady = plan.roles[0].steady;
  const auto reductions = CollectivesOf(steady, CollectiveKind::kAllReduce);
  for (size_t i = 0; i < reductions.size(); ++i) EXPECT_EQ(reductions[i]->name, fmt::format("bucket {}", i));
  bool backward_follows = false;
  const Op* end = steady.ops.data() + steady.ops.size();
  for (const Op* op = reductions[0]; op < end; ++op) backward_follows |= op->phase == Phase::kBackward;
  EXPECT_TRUE(backward_follows);
}

TEST(Ddp, WithoutOverlapEveryBucketIsLaunchedAfterBackward) {
  Scenario s = SeveralBuckets();
  s.parallel.data.overlap = false;
  const Plan plan = *CompilePlan(s);
  for (const Op* op : CollectivesOf(plan.roles[0].steady, CollectiveKind::kAllReduce)) {
    EXPECT_EQ(op->phase, Phase::kGradientSync);
  }
}

TEST(Ddp, DividesByTheNumberOfRanksBeforeReducing) {
  const Plan plan = *CompilePlan(TinyGpt(4));
  int copies_in = 0;
  for (const Op& op : plan.roles[0].steady.ops) {
    const auto* copy = std::get_if<Copy>(&op.kind);
    if (copy == nullptr || op.phase != Phase::kBackward) continue;
    EXPECT_EQ(copy->scale, 0.25);
    ++copies_in;
  }
  EXPECT_EQ(copies_in, static_cast<int>(plan.roles[0].parameters.size()));
}

// Where no size is given.
TEST(Ddp, TheFirstBucketIsSmallByDefault) {
  Scenario s = SeveralBuckets();
  s.parallel.data.bucket_cap_mb.reset();
  const auto reductions = CollectivesOf(CompilePlan(s)->roles[0].steady, CollectiveKind::kAllReduce);
  ASSERT_EQ(reductions.size(), 2u);
  EXPECT_GE(Elements(*reductions[0]) * 4, MiB(1).count());
}

TEST(Ddp, FindUnusedParametersUsesTheLimitsFromTheFirstStepOnInReversedRegistrationOrder) {
  Scenario s = SeveralBuckets();
  s.parallel.data.find_unused_parameters = true;
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  EXPECT_EQ(role.startup.size(), 1u);
  const auto first = CollectivesOf(role.startup[0], CollectiveKind::kAllReduce);
  const auto steady = CollectivesOf(role.steady, CollectiveKind::kAllReduce);
  ASSERT_EQ(first.size(), steady.size());
  ASSERT_GE(steady.size(), 3u);
  // Reversed: the last bucket has the first parameters, so it is full. Then comes the map of used parameters.
  EXPECT_GE(Elements(*steady[steady.size() - 2]) * 16, MiB(1).count());
  EXPECT_EQ(steady.back()->name, "used parameters");
  EXPECT_EQ(std::get<Collective>(steady.back()->kind).dtype, DType::kInt32);
}

TEST(Ddp, GradientAsBucketViewKeepsGradientsInTheBucketsOnly) {
  Scenario s = SeveralBuckets();
  s.parallel.data.gradient_as_bucket_view = true;
  const Plan plan = *CompilePlan(s);
  for (const Op& op : plan.roles[0].steady.ops) {
    EXPECT_FALSE(std::holds_alternative<Copy>(op.kind)) << op.name;
  }
  for (const MemoryOp& op : plan.roles[0].steady.memory) {
    const std::string& name = plan.roles[0].buffers[op.buffer].name;
    EXPECT_TRUE(!op.allocates() || name.find(".grad") == std::string::npos) << name;
  }
  const Op* update = nullptr;
  for (const Op& op : plan.roles[0].steady.ops) {
    if (std::holds_alternative<OptimizerUpdate>(op.kind)) update = &op;
  }
  ASSERT_NE(update, nullptr);
  EXPECT_FALSE(update->dependencies.empty()) << "the optimizer waits for the reductions";
}

TEST(Ddp, AccumulationReducesOnlyInTheLastMicroBatchUnlessToldOtherwise) {
  Scenario s = SeveralBuckets();
  s.batch.accumulate = 3;
  const size_t once = CollectivesOf(CompilePlan(s)->roles[0].steady, CollectiveKind::kAllReduce).size();
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
  const size_t always = CollectivesOf(CompilePlan(s)->roles[0].steady, CollectiveKind::kAllReduce).size();
  EXPECT_EQ(always, 3 * once);
}

TEST(Ddp, BroadcastsParametersFromRankZeroAtTheStart) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  const auto broadcasts = CollectivesOf(plan.roles[0].initialize, CollectiveKind::kBroadcast);
  ASSERT_EQ(broadcasts.size(), 1u);  // everything fits 250 MiB
  EXPECT_EQ(Elements(*broadcasts[0]), plan.model.parameters);
  EXPECT_EQ(std::get<Collective>(broadcasts[0]->kind).root, 0);
}

}  // namespace
}  // namespace windtunnel
