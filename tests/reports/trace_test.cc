#include "reports/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/reports/sample_outcome.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

Json Events() { return Json::parse(TraceJson(SampleOutcome()))["traceEvents"]; }

TEST(TraceJson, HasAProcessPerRankAndSide) {
  std::map<int, std::string> processes;
  for (const Json& event : Events())
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
  std::map<int, std::string> expected = {
      {0, "rank 0 predicted"}, {1, "rank 0 measured"}, {2, "rank 1 predicted"}, {3, "rank 1 measured"}};
  EXPECT_EQ(processes, expected);
}

TEST(TraceJson, HasATrackPerStream) {
  std::map<int, std::string> tracks;
  for (const Json& event : Events())
    if (event["name"] == "thread_name" && event["pid"] == 0) tracks[event["tid"]] = event["args"]["name"];
  std::map<int, std::string> expected = {{0, "step"}, {1, "compute"}, {2, "data"}};
  EXPECT_EQ(tracks, expected);
}

TEST(TraceJson, GivesSpansInMicrosecondsWithWhatTheyAre) {
  for (const Json& event : Events()) {
    if (event["ph"] != "X" || event["pid"] != 2 || event["cat"] != "all_reduce") continue;
    EXPECT_EQ(event["ts"], 7000.0);
    EXPECT_EQ(event["dur"], 3000.0);
    EXPECT_EQ(event["tid"], 2);
    EXPECT_EQ(event["name"], "bucket 0");
    EXPECT_EQ(event["args"]["shape"], "all_reduce fp32 bytes=4194304");
    return;
  }
  FAIL() << "no all-reduce of rank 1";
}

TEST(TraceJson, HasOneCompleteEventPerSpanAndStep) {
  int complete = 0;
  for (const Json& event : Events()) complete += event["ph"] == "X";
  EXPECT_EQ(complete, 4 * (1 + 6));
}

TEST(TraceJson, PairsTheEndsOfEveryArrow) {
  std::map<int, std::multiset<std::string>> arrows;
  for (const Json& event : Events())
    if (event["ph"] == "s" || event["ph"] == "f") arrows[event["id"]].insert(event["ph"].get<std::string>());
  EXPECT_EQ(arrows.size(), 8u) << "copy to all-reduce and all-reduce to optimizer, four times";
  for (const auto& [id, ends] : arrows) EXPECT_EQ(ends, (std::multiset<std::string>{"f", "s"})) << id;
}

TEST(TraceJson, DrawsWhatIsAllocatedAndReservedOverTheStep) {
  std::map<std::string, std::vector<std::pair<double, double>>> curves;
  for (const Json& event : Events())
    if (event["ph"] == "C" && event["pid"] == 0)
      curves[event["name"]].emplace_back(event["ts"].get<double>(), event["args"]["MiB"].get<double>());
  using Curve = std::vector<std::pair<double, double>>;
  EXPECT_EQ(curves["allocated memory"], (Curve{{0, 28}, {11000, 12}}));
  EXPECT_EQ(curves["reserved memory"], (Curve{{0, 40}, {11000, 40}}));
}

TEST(TraceJson, RepeatsNoCounterExceptAtTheEnd) {
  Outcome outcome = SampleOutcome();
  Timeline& timeline = outcome.prediction->timelines.front();
  timeline.memory.clear();
  for (const auto& [at, allocated] : {std::pair(0, 1), std::pair(1, 2), std::pair(2, 2), std::pair(3, 2)}) {
    MemorySample sample;
    sample.time = Milliseconds(at);
    sample.allocated = MiB(allocated);
    sample.reserved = MiB(4);
    timeline.memory.push_back(sample);
  }
  std::map<std::string, std::vector<double>> times;
  const Json trace = Json::parse(TraceJson(outcome));
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "C" && event["pid"] == 0) times[event["name"]].push_back(event["ts"]);
  EXPECT_EQ(times["allocated memory"], (std::vector<double>{0, 1000, 3000}));
  EXPECT_EQ(times["reserved memory"], (std::vector<double>{0, 3000}));
}

TEST(TraceJson, CountsMemoryInMebibytes) {
  for (const Json& event : Events())
    if (event["name"] == "allocated memory") {
      EXPECT_EQ(event["ph"], "C");
      EXPECT_EQ(event["args"]["MiB"], 28.0);
      return;
    }
  FAIL() << "no counter";
}

// Every computation of the schedule once, on a track between the step's and the streams'.
TEST(TraceJson, HasASlicePerActionOfAPipeline) {
  const Outcome outcome = PipelineOutcome({.schedule = "zb_h1"});
  std::map<std::string, int> tracks, order;
  std::multiset<std::string> actions;
  const Json events = Json::parse(TraceJson(outcome))["traceEvents"];
  for (const Json& event : events) {
    if (event["pid"] != 2) continue;  // rank 1
    if (event["name"] == "thread_name") tracks[event["args"]["name"]] = event["tid"];
  }
  ASSERT_TRUE(tracks.contains("stage 1"));
  for (const Json& event : events) {
    if (event["pid"] != 2) continue;
    if (event["name"] == "thread_sort_index")
      for (const auto& [name, track] : tracks)
        if (event["tid"] == track) order[name] = event["args"]["sort_index"];
    if (event["ph"] == "X" && event["tid"] == tracks["stage 1"])
      actions.insert(event["name"].get<std::string>());
  }
  EXPECT_EQ(actions, (std::multiset<std::string>{"1F0", "1F1", "1F2", "1F3", "1I0", "1I1", "1I2", "1I3",
                                                 "1W0", "1W1", "1W2", "1W3"}));
  EXPECT_LT(order["step"], order["stage 1"]);
  EXPECT_LT(order["stage 1"], order["compute"]);
}

}  // namespace
}  // namespace windtunnel
