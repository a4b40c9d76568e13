#include "reports/html/html_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/html/html_data.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;

Outcome Predicted(Scenario s) {
  s.cluster = {};
  s.cluster.device = "a100-sxm-80g";
  s.cluster.devices_per_node = 8;
  s.cluster.network.intra_node.kind = "nvlink3";
  const Profile profile = *ParseProfile(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g");
  Outcome outcome;
  outcome.plan = *CompilePlan(s);
  outcome.profile = profile;
  outcome.prediction = *Predict(outcome.plan, *MakeProfileCostModel(profile, outcome.plan), {});
  return outcome;
}

Scenario TwoStages() {
  Scenario s = TinyGpt();
  s.batch = {1, 4};
  s.parallel.pipeline.size = 2;
  return s;
}

PredictPlan FromDatasheet(const Outcome& outcome) {
  return [&](const Plan& plan) { return Predict(plan, *MakeProfileCostModel(outcome.profile, plan), {}); };
}

std::string DataOf(const std::string& page) {
  const std::string open = R"(<script type="application/json" id="data">)";
  const size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

TEST(HtmlReport, IsOneFileThatLoadsNothing) {
  const Outcome outcome = Predicted(TinyGpt(2));
  const std::string page = HtmlReport({outcome}, {{}});
  for (const char* way : {" src=", "<link", "@import", "{{"}) {
    // They may occur only in the libraries' own text.
    const std::string own = page.substr(0, page.find("<script type"));
    EXPECT_EQ(own.find(way), std::string::npos) << way;
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(Json::parse(DataOf(page))["outcomes"][0]["title"], outcome.plan.scenario.name);
}

TEST(HtmlReport, NamesCannotEndTheScript) {
  Outcome outcome = Predicted(TinyGpt(2));
  outcome.plan.scenario.name = "</script><b>bold</b> & \"quoted\"";
  const std::string page = HtmlReport({outcome}, {{}});
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_EQ(Json::parse(DataOf(page))["outcomes"][0]["title"], outcome.plan.scenario.name);
  EXPECT_NE(page.find("<title>&lt;/script>&lt;b>bold"), std::string::npos);
}

// The highest point of each curve is the peak of its rank. It is the sum over categories.
TEST(HtmlReport, MemoryCurvesReachThePeaks) {
  for (const Scenario& scenario : {TinyGpt(2), TinyLlama(4), TwoStages()}) {
    const Outcome outcome = Predicted(scenario);
    const Json data = HtmlData(outcome, {});
    ASSERT_FALSE(data["memory"].empty());
    for (const Json& curve : data["memory"]) {
      const MemoryPeak& peak = PredictedMemoryOf(*outcome.prediction, curve["rank"].get<int>()).steady;
      int64_t highest = 0;
      for (const Json& point : curve["points"]) {
        int64_t sum = 0;
        for (const auto& [category, bytes] : point["bytes"].items()) {
          EXPECT_GE(bytes.get<int64_t>(), 0) << category;
          sum += bytes.get<int64_t>();
        }
        highest = std::max(highest, sum);
      }
      EXPECT_EQ(highest, peak.allocated.count());
    }
  }
}

TEST(HtmlReport, PipelineHasItsSchedule) {
  const Json data = HtmlData(Predicted(TwoStages()), {});
  EXPECT_EQ(data["actions"].size(), 2u * 2 * 4);  // ranks x (forward, backward) x micro-batches
  EXPECT_EQ(data["roles"].size(), 2u * 4);        // stages x parts
}

TEST(HtmlReport, PartsAddUpToTheStep) {
  const Outcome outcome = Predicted(TwoStages());
  const Json data = HtmlData(outcome, {});
  double sum = 0;
  for (const Json& part : data["breakdown"]) sum += part["seconds"].get<double>();
  EXPECT_NEAR(sum, ToSeconds(outcome.prediction->breakdown.step), 1e-9);
}

TEST(Scaling, FromOneReplicaToAThousandDevices) {
  Outcome outcome = Predicted(TinyGpt(4));
  Scenario& s = outcome.plan.scenario;
  s.cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 200, .latency_us = {}};
  s.cluster.network.nics_per_node = 8;
  const Scaling scaling = PredictScaling(s, FromDatasheet(outcome));
  ASSERT_EQ(scaling.points.size(), 11u);
  EXPECT_EQ(scaling.points.front().devices, 1);
  EXPECT_EQ(scaling.points.back().devices, 1024);
  EXPECT_EQ(scaling.points[2].step_time, outcome.prediction->p50);
  EXPECT_GE(scaling.points.back().step_time, scaling.points.front().step_time);
  EXPECT_EQ(scaling.note, "");
  s.cluster.straggler = StragglerSpec{1, 2};
  EXPECT_EQ(PredictScaling(s, FromDatasheet(outcome)).note, "without the straggler");
}

// Racks of three devices: 1, 2, 3, and then 6, 9, 18 … where powers of two would leave part of a rack.
TEST(Scaling, HasWholeNodes) {
  Outcome outcome = Predicted(TinyGpt(3));
  Scenario& s = outcome.plan.scenario;
  s.cluster.devices_per_node = 3;
  s.cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 200, .latency_us = {}};
  const Scaling scaling = PredictScaling(s, FromDatasheet(outcome));
  std::vector<int64_t> devices;
  for (const ScalingPoint& point : scaling.points) devices.push_back(point.devices);
  EXPECT_EQ(devices, (std::vector<int64_t>{1, 2, 3, 6, 9, 18, 33, 66, 129, 258, 513, 1026})) << scaling.note;
}

// A derived shard group is a node, also where a node has fewer devices.
TEST(Scaling, ShardsWithinTheNodesThatThereAre) {
  Outcome outcome = Predicted(TinyGpt(8));
  Scenario& s = outcome.plan.scenario;
  s.cluster.devices_per_node = 8;
  s.cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 200, .latency_us = {}};
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.sharding = Sharding::kHybridShard;
  s.parallel.data.shard_size = 8;
  s.derived.shard_size = true;
  const Scaling scaling = PredictScaling(s, FromDatasheet(outcome));
  EXPECT_EQ(scaling.note, "");
  EXPECT_EQ(scaling.points.size(), 11u);
  EXPECT_EQ(scaling.points.front().devices, 1);
}

TEST(Scaling, SaysWhatIsMissing) {
  const Outcome outcome = Predicted(TinyGpt(4));  // names no network between nodes
  const Scaling scaling = PredictScaling(outcome.plan.scenario, FromDatasheet(outcome));
  EXPECT_EQ(scaling.points.size(), 4u);
  EXPECT_NE(scaling.note.find("16 devices: cluster.network.inter_node"), std::string::npos) << scaling.note;
}

}  // namespace
}  // namespace windtunnel
