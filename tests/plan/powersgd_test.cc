// PowerSGD in DDP's reducer: what is compressed, what is sent, and from which step on.
#include "plan/powersgd.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "tests/plan/race_check.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

using testing::ElementsAre;

Scenario Compressed(Scenario s, int64_t rank = 2) {
  s.parallel.data.powersgd = PowerSgdSpec{.rank = rank};
  return s;
}

Parameter OfShape(std::vector<int64_t> shape) {
  Parameter parameter;
  parameter.elements = 1;
  for (const int64_t size : shape) parameter.elements *= size;
  parameter.shape = std::move(shape);
  return parameter;
}

// As powerSGD_hook._should_compress: (rows + columns) x rank x min_compression_rate < rows x columns.
TEST(PowerSgd, CompressesWhatBecomesShorterByMoreThanTheRate) {
  EXPECT_EQ(CompressedRank({.rank = 1}, OfShape({5, 5})), 1);
  EXPECT_EQ(CompressedRank({.rank = 1}, OfShape({4, 4})), 0) << "16 < 16 is false";
  EXPECT_EQ(CompressedRank({.rank = 2}, OfShape({5, 5})), 0);
  EXPECT_EQ(CompressedRank({.rank = 2, .min_compression_rate = 1}, OfShape({5, 5})), 2);
  EXPECT_EQ(CompressedRank({.rank = 1}, OfShape({100})), 0) << "a vector is a matrix of one column";
}

TEST(PowerSgd, TakesTheFirstDimensionAsRowsAndNoMoreColumnsThanThere) {
  EXPECT_EQ(CompressedRank({.rank = 64, .min_compression_rate = 0.1}, OfShape({8, 3, 20})), 8);
  EXPECT_EQ(CompressedRank({.rank = 4}, OfShape({40, 2, 20})), 4);
}

// The all-reduces of a program: name and elements.
std::vector<std::string> AllReducesOf(const Program& program) {
  std::vector<std::string> sums;
  for (const Op& op : program.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective != nullptr && collective->kind == CollectiveKind::kAllReduce)
      sums.push_back(fmt::format("{}: {}", op.name, collective->elements));
  }
  return sums;
}

// Weights of 20 x 30 and 40 x 20, in one bucket.
Scenario SmallMlp() {
  Scenario s = TinyMlp(2);
  s.model.widths = {30, 20, 40};
  return s;
}

TEST(PowerSgd, SumsThreeMessagesOfABucket) {
  const Plan plan = *CompilePlan(Compressed(SmallMlp()));
  const Role& role = plan.roles[0];
  // Biases as they are, then what stands for 20 x 30 and 40 x 20: 20 + 40 rows and 30 + 20 columns, times 2.
  EXPECT_THAT(AllReducesOf(role.steady), ElementsAre("bucket 0: 60", "bucket 0 P: 120", "bucket 0 Q: 100"));
}

TEST(PowerSgd, AnswersTheNextBucketFirst) {
  Scenario s = Compressed(TinyGpt(2));
  s.parallel.data.bucket_cap_mb = 0.03;
  std::vector<std::string> names;
  for (const std::string& sum : AllReducesOf(CompilePlan(s)->roles[0].steady))
    names.push_back(sum.substr(0, sum.find(':')));
  ASSERT_GT(names.size(), 6u);
  const auto place = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  EXPECT_LT(place("bucket 1 P"), place("bucket 0 Q"));
  EXPECT_LT(place("bucket 0 Q"), place("bucket 2 P"));
  EXPECT_EQ(names.back().substr(names.back().size() - 2), " Q");
}

TEST(PowerSgd, BeginsWithItsStepAndKeepsAProgramForTheStepsBefore) {
  Scenario s = Compressed(SmallMlp());
  const std::vector<std::string> whole = AllReducesOf(CompilePlan(SmallMlp())->roles[0].steady);
  s.parallel.data.powersgd->start_step = 5;
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  EXPECT_EQ(role.startup.size(), 3u);
  EXPECT_EQ(role.FirstSteadyStep(), 5);
  for (int step : {2, 3, 4}) EXPECT_EQ(AllReducesOf(role.StepProgram(step)), whole) << step;
  EXPECT_EQ(&role.StepProgram(5), &role.steady);
  EXPECT_EQ(AllReducesOf(role.steady).size(), 3u);
}

TEST(PowerSgd, KeepsWhatItLosesUnlessTold) {
  const auto kept = [](const Plan& plan) {
    Bytes bytes;
    for (const Buffer& buffer : plan.roles[0].buffers)
      if (buffer.name.ends_with(" error")) bytes += buffer.bytes;
    return bytes;
  };
  Scenario s = Compressed(SmallMlp());
  EXPECT_EQ(kept(*CompilePlan(s)), Bytes(4 * (30 * 20 + 20 * 40)));
  s.parallel.data.powersgd->error_feedback = false;
  EXPECT_EQ(kept(*CompilePlan(s)), Bytes(0));
}

TEST(PowerSgd, OfPlansWithoutFirstStepsIsTheSame) {
  const Scenario s = Compressed(SmallMlp());
  const Plan plan = *CompilePlan(s, {.checks = false, .starts_up = false});
  EXPECT_EQ(AllReducesOf(plan.roles[0].steady), AllReducesOf(CompilePlan(s)->roles[0].steady));
}

TEST(PowerSgd, OfOneRankIsNothing) {
  Scenario s = Compressed(TinyMlp(1));
  EXPECT_EQ(CompilePlan(s)->roles[0].steady.ops.size(), CompilePlan(TinyMlp(1))->roles[0].steady.ops.size());
}

// Its hook synchronises behind each bucket.
TEST(PowerSgd, OfPytorchWaitsForEachBucket) {
  Scenario s = Compressed(TinyGpt(2));
  s.parallel.data.bucket_cap_mb = 0.03;
  s.framework = Framework::kPytorch;
  s.cluster.device = "a100-sxm-80g";
  std::vector<std::string> order;
  const Plan plan = *CompilePlan(s);
  for (const Op& op : plan.roles[0].steady.ops) {
    const bool waits = std::holds_alternative<HostWait>(op.kind);
    if (waits || op.name == "bucket 1 P" || op.name == "bucket 1 Q" || op.name == "bucket 0 Q")
      order.push_back(waits ? "wait for " + op.name : op.name);
  }
  ASSERT_GT(order.size(), 5u);
  order.resize(5);
  EXPECT_THAT(
      order, ElementsAre("bucket 0 Q", "wait for bucket 0", "bucket 1 P", "bucket 1 Q", "wait for bucket 1"));
}

TEST(PowerSgd, HasNoRaces) {
  for (Scenario s : {Compressed(TinyGpt(2)), Compressed(TinyLlama(3)), Compressed(TinyMlp(2))}) {
    s.parallel.data.bucket_cap_mb = 0.02;
    s.cluster.device = "a100-sxm-80g";
    for (const Framework framework : {Framework::kWindtunnel, Framework::kPytorch}) {
      for (const bool view : {false, true}) {
        s.framework = framework;
        s.parallel.data.gradient_as_bucket_view = view;
        const Plan plan = *CompilePlan(s);
        EXPECT_EQ(FindRace(plan, plan.roles[0], plan.roles[0].steady), "") << s.name << ", " << view;
      }
    }
  }
}

}  // namespace
}  // namespace windtunnel
