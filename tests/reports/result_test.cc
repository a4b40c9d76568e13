#include "reports/result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/reports/sample_outcome.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

Json Parsed(const Outcome& outcome) { return Json::parse(ResultJson({outcome})); }

TEST(ResultJson, HasEveryKeyOfTheContract) {
  Json json = Parsed(SampleOutcome());
  EXPECT_EQ(json["schema"], "windtunnel/result/1");
  for (const char* key : {"scenario", "scenario_digest", "profile", "profile_digest", "predicted", "measured",
                          "error", "within_tolerance", "by_operator"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* key : {"step_time_s", "tokens_per_s", "mfu", "mfu_convention", "tflops_per_device",
                          "bubble_fraction", "compute_s", "communication_s", "exposed_communication_s",
                          "host_s", "memory", "initial_peak_bytes", "outside_allocator_bytes", "wall_s"}) {
    EXPECT_TRUE(json["predicted"].contains(key)) << key;
    EXPECT_TRUE(json["measured"].contains(key)) << key;
  }
  for (const char* key : {"cost_sources", "events"}) EXPECT_TRUE(json["predicted"].contains(key)) << key;
  for (const char* key : {"steps", "step_times_s", "losses"})
    EXPECT_TRUE(json["measured"].contains(key)) << key;
  for (const char* key : {"step_time", "peak_memory_bytes", "bubble_fraction"})
    EXPECT_TRUE(json["error"].contains(key)) << key;
  for (const char* key :
       {"parameters", "gradients", "optimizer", "activations", "communication", "workspace"})
    EXPECT_TRUE(json["predicted"]["memory"][0]["at_peak"].contains(key)) << key;
}

TEST(ResultJson, HasATrainingOnlyWhereItWasAskedFor) {
  Outcome outcome = SampleOutcome();
  EXPECT_FALSE(Parsed(outcome)["predicted"].contains("training"));
  outcome.train_tokens = 8192e6;
  const Json training = Parsed(outcome)["predicted"]["training"];
  EXPECT_EQ(training["tokens"], 8192e6);
  EXPECT_EQ(training["steps"], 1e6);
  EXPECT_EQ(training["time_s"], 11000);
  EXPECT_NEAR(training["device_hours"].get<double>(), 2 * 11000.0 / 3600, 1e-9);
}

TEST(ResultJson, GivesSecondsAndBytes) {
  Json json = Parsed(SampleOutcome());
  EXPECT_EQ(json["predicted"]["step_time_s"]["p50"], 0.011);
  EXPECT_EQ(json["measured"]["step_time_s"]["p90"], 0.010);
  EXPECT_EQ(json["predicted"]["memory"][0]["ranks"], "0-1");
  EXPECT_EQ(json["predicted"]["memory"][0]["peak_allocated_bytes"], 28 << 20);
  EXPECT_EQ(json["predicted"]["memory"][0]["at_peak"]["activations"], 16 << 20);
  EXPECT_EQ(json["measured"]["memory"][1]["ranks"], "1");
  EXPECT_EQ(json["error"]["peak_memory_bytes"], 0);
  EXPECT_EQ(json["error"]["resident_bytes"], -3 * (1 << 20));
  EXPECT_EQ(json["predicted"]["cost_sources"]["interpolated"], 0.25);
  EXPECT_TRUE(json["predicted"]["mfu"].is_null()) << "a CPU has no peak";
}

TEST(ResultJson, SaysHowFragmentedMemoryIs) {
  Outcome outcome = SampleOutcome();
  outcome.prediction->memory[0].steady.allocated_at_reserved = MiB(27);
  outcome.prediction->memory[0].steady.largest_unserved = MiB(6);
  Json fragmentation = Parsed(outcome)["predicted"]["memory"][0]["fragmentation"];
  EXPECT_EQ(fragmentation["reserved_bytes"], 40 << 20);
  EXPECT_EQ(fragmentation["allocated_bytes"], 27 << 20);
  EXPECT_EQ(fragmentation["largest_unserved_bytes"], 6 << 20);
}

TEST(ResultJson, HasHostMemoryWhereThereIsAny) {
  Outcome outcome = SampleOutcome();
  EXPECT_FALSE(Parsed(outcome)["predicted"]["memory"][0].contains("peak_host_bytes"));
  MemoryPeak& peak = outcome.prediction->memory[0].steady;
  peak.host_allocated = MiB(24);
  peak.host_by_category[static_cast<int>(Category::kOptimizer)] = MiB(24);
  Json json = Parsed(outcome);
  EXPECT_EQ(json["predicted"]["memory"][0]["peak_host_bytes"], 24 << 20);
  EXPECT_EQ(json["predicted"]["memory"][0]["host_at_peak"]["optimizer"], 24 << 20);
  EXPECT_FALSE(json["measured"]["memory"][0].contains("peak_host_bytes"));
  EXPECT_EQ(json["error"]["peak_host_bytes"], 24 << 20);
}

TEST(ResultJson, OfTwoEqualPredictionsDiffersInWallTimeOnly) {
  Outcome first = SampleOutcome(), second = SampleOutcome();
  first.measurement.reset();
  second.measurement.reset();
  EXPECT_EQ(ResultJson({first}), ResultJson({second}));
  second.prediction_wall = Milliseconds(9);
  Json a = Parsed(first), b = Parsed(second);
  EXPECT_NE(a, b);
  a["predicted"].erase("wall_s");
  b["predicted"].erase("wall_s");
  EXPECT_EQ(a, b);
}

TEST(ResultJson, OfAPredictionAloneClaimsNothingMeasured) {
  Outcome outcome = SampleOutcome();
  outcome.measurement.reset();
  Json json = Parsed(outcome);
  for (const char* key : {"measured", "error", "within_tolerance"}) EXPECT_FALSE(json.contains(key)) << key;
}

TEST(ResultJson, OfARunAloneNamesNoProfile) {
  Outcome outcome = SampleOutcome();
  outcome.prediction.reset();
  Json json = Parsed(outcome);
  for (const char* key : {"predicted", "profile", "error"}) EXPECT_FALSE(json.contains(key)) << key;
  EXPECT_EQ(json["by_operator"][0]["operator"], "gemm");
}

TEST(ResultJson, OfSeveralScenariosIsAnArray) {
  Json json = Json::parse(ResultJson({SampleOutcome(), SampleOutcome()}));
  ASSERT_TRUE(json.is_array());
  EXPECT_EQ(json.size(), 2u);
}

TEST(ResultJson, SurvivesANameThatIsNotUtf8) {
  Outcome outcome = SampleOutcome();
  outcome.plan.scenario.name = "caf\xe9";
  EXPECT_TRUE(Parsed(outcome)["scenario"].is_string());
}

TEST(ResultJson, SaysByRoleAndByRankWhereTimeGoes) {
  Json json = Parsed(SampleOutcome());
  EXPECT_EQ(json["predicted"]["by_role"].size(), 1u);
  EXPECT_EQ(json["predicted"]["by_role"][0]["ranks"], "0-1");
  EXPECT_EQ(json["predicted"]["by_role"][0]["exposed_communication_s"], 0.0015);
  EXPECT_EQ(json["measured"]["by_rank"].size(), 2u);
  EXPECT_EQ(json["measured"]["by_rank"][1]["ranks"], "1");
  EXPECT_EQ(json["measured"]["by_rank"][1]["exposed_communication_s"], 0.001);
}

TEST(ResultJson, HasTheBubbleOfEveryStage) {
  Json predicted = Parsed(PipelineOutcome({.data = 2}))["predicted"];
  ASSERT_EQ(predicted["by_role"].size(), 2u);
  const Json& last = predicted["by_role"][1];
  EXPECT_EQ(last["ranks"], "2-3");
  EXPECT_EQ(last["name"], "stage 1");
  double sum = 0;
  for (const Json& role : predicted["by_role"]) {
    const double step = role["compute_s"].get<double>() + role["exposed_communication_s"].get<double>() +
                        role["bubble_s"].get<double>() + role["host_s"].get<double>();
    EXPECT_NEAR(role["bubble_s"].get<double>() / step, role["bubble_fraction"].get<double>(), 1e-9);
    sum += role["bubble_fraction"].get<double>();
  }
  EXPECT_NEAR(sum / 2, predicted["bubble_fraction"].get<double>(), 1e-6);
}

}  // namespace
}  // namespace windtunnel
