// What makes a step fit, held against plans made by hand.
#include "reports/remedies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Plan> Compile(const Scenario& scenario) { return CompilePlan(scenario); }

// Four replicas of a small GPT on one node.
Scenario Replicated() {
  Scenario s = TinyGpt(4);
  s.model.layers = 4;
  s.model.hidden = 256;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 1024;
  s.batch.micro = 64;
  s.parallel.data.kind = DataParallelKind::kDdp;
  return s;
}

Bytes ReservedBy(const Scenario& s) { return SimulateMemory(CompilePlan(s)->roles[0])->steady.reserved; }

std::vector<std::vector<std::string>> SettingsOf(const Scenario& s) {
  std::vector<std::vector<std::string>> settings;
  for (const Remedy& remedy : RemediesFor(s)) settings.push_back(remedy.settings);
  return settings;
}

TEST(RemediesFor, LeaveOutWhatTheScenarioHas) {
  Scenario s = Replicated();
  s.recompute = Recompute::kFull;
  s.batch.micro = 1;
  s.parallel.data.kind = DataParallelKind::kFsdp;
  EXPECT_THAT(SettingsOf(s), ElementsAre(ElementsAre("parallel.data.offload=param")));
  s.parallel.data.offload = Offload::kParam;
  EXPECT_THAT(SettingsOf(s), ElementsAre());
}

TEST(RemediesFor, KeepTheGlobalBatch) {
  const Scenario s = Replicated();
  for (const Remedy& remedy : RemediesFor(s))
    EXPECT_EQ(remedy.scenario.batch.micro * remedy.scenario.batch.accumulate,
              s.batch.micro * s.batch.accumulate);
}

TEST(RemediesFor, AreScenariosThatCompile) {
  for (const Remedy& remedy : RemediesFor(Replicated()))
    EXPECT_TRUE(CompilePlan(remedy.scenario)) << remedy.settings.front();
}

TEST(DescribeRemedies, NamesThoseThatFit) {
  const Scenario s = Replicated();
  Scenario recomputed = s;
  recomputed.recompute = Recompute::kFull;
  const Bytes room = ReservedBy(recomputed), outside = MiB(64);
  ASSERT_LT(room, ReservedBy(s));
  const std::string text = DescribeRemedies(s, room, outside, Compile);
  EXPECT_THAT(text, HasSubstr("what would fit:\n"));
  EXPECT_THAT(text, HasSubstr("--set recompute=full\n"));
  EXPECT_THAT(text, Not(HasSubstr("--set recompute=full --set"))) << "more than is needed";
}

TEST(DescribeRemedies, NamesTheLeastWhereNothingFits) {
  const std::string text = DescribeRemedies(Replicated(), Bytes(0), MiB(64), Compile);
  EXPECT_THAT(text,
              HasSubstr("what would fit?  more devices, or more tensor or pipeline ranks: the least that"));
  EXPECT_THAT(text, HasSubstr("parallel.data.offload="));
}

}  // namespace
}  // namespace windtunnel
