// What explain reports about collectives, checked against plans whose collectives are known.
#include <gtest/gtest.h>

#include "cost_models/device_cost_model.h"
#include "reports/explain.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

std::string TableOf(const Scenario& scenario, const char* profile = "h100-sxm-80g") {
  const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile(profile), profile).value();
  const Plan plan = CompilePlan(scenario).value();
  const auto costs = MakeDeviceCostModel(device, plan);
  const Prediction prediction = Predict(plan, *costs, {}).value();
  return ExplainCollectives(plan, prediction, *costs, Ink(false)).value();
}

Scenario On(Scenario s, int64_t nodes) {
  s.cluster.device = "h100-sxm-80g";
  s.cluster.nodes = nodes;
  s.cluster.devices_per_node = s.WorldSize() / nodes;
  s.cluster.network.intra_node.kind = "nvlink4";
  s.cluster.network.inter_node.kind = "infiniband";
  s.cluster.network.inter_node.gbits_per_nic = 400;
  s.cluster.network.nics_per_node = s.cluster.devices_per_node;
  return s;
}

// Whether a line of the table contains all of `words`.
testing::AssertionResult HasLine(const std::string& table, const std::vector<std::string>& words) {
  size_t begin = 0;
  while (begin < table.size()) {
    const size_t end = table.find('\n', begin);
    const std::string line = table.substr(begin, end - begin);
    bool has_all = true;
    for (const std::string& word : words) has_all &= line.find(word) != std::string::npos;
    if (has_all) return testing::AssertionSuccess();
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return testing::AssertionFailure() << "no line with all of them in:\n" << table;
}

// Eight H100s of a node: small all-reduces use LL; 1 GiB goes by the switch.
TEST(ExplainCollectives, SaysWhatNcclChooses) {
  Scenario s = On(TinyGpt(8), 1);
  s.parallel.data.kind = DataParallelKind::kDdp;
  s.parallel.data.bucket_cap_mb = 1000;
  EXPECT_TRUE(HasLine(TableOf(s), {"data all_reduce", " 8 ", ", ll"}));
  s.model.hidden = 4096;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 16384;
  EXPECT_TRUE(HasLine(TableOf(s), {"data all_reduce", " 8 ", "nvls, simple"}));
  s.cluster.network.algorithm = CollectiveAlgorithm::kRing;
  EXPECT_TRUE(HasLine(TableOf(s), {"data all_reduce", "ring, simple"}));
}

// Messages of a pipeline count where they are sent. Each group has its own rows.
TEST(ExplainCollectives, TellsGroupsApart) {
  Scenario s = TinyLlama(2);
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.parallel.pipeline = {.size = 2, .schedule = "1f1b"};
  s.batch.accumulate = 4;
  const std::string table = TableOf(On(s, 2));
  EXPECT_TRUE(HasLine(table, {"tensor all_gather", " 2 "}));
  EXPECT_TRUE(HasLine(table, {"tensor reduce_scatter", " 2 "}));
  EXPECT_TRUE(HasLine(table, {"send", " 4 ", "messages, "})) << "four micro-batches forward";
  EXPECT_FALSE(HasLine(table, {"receive"}));
}

TEST(ExplainCollectives, OfOneDeviceThereIsNothing) { EXPECT_EQ(TableOf(On(TinyGpt(1), 1)), ""); }

// Units of layers that are alike are listed once, and so is what repeats on the critical path.
TEST(Explain, SaysOnceWhatEveryLayerDoes) {
  Scenario s = On(TinyLlama(8), 1);
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.recompute = Recompute::kFull;
  s.model.layers = 12;
  s.model.hidden = 2048;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 4096;
  const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  const Plan plan = CompilePlan(s).value();
  const auto costs = MakeDeviceCostModel(device, plan);
  const std::string buckets = ExplainBuckets(plan, Ink(false));
  EXPECT_TRUE(HasLine(buckets, {"  blocks.0: all_gather of ", " parameter tensors"}));
  EXPECT_TRUE(HasLine(buckets, {"  blocks.1 … blocks.11: the same, 11 times"}));
  EXPECT_EQ(buckets.find("blocks.5"), std::string::npos) << buckets;
  const std::string time = ExplainTime(plan, Predict(plan, *costs, {}).value(), Ink(false));
  const std::string path = time.substr(time.find("critical path"));
  EXPECT_TRUE(HasLine(path, {" × (rank 0 compute: ", "recompute", "backward", ")"}));
}

// Buckets that carry different tensors are all listed.
TEST(Explain, ListsBucketsThatDiffer) {
  Scenario s = On(TinyGpt(8), 1);
  s.parallel.data.kind = DataParallelKind::kDdp;
  s.parallel.data.bucket_cap_mb = 0.01;
  s.model.layers = 1;
  const std::string buckets = ExplainBuckets(CompilePlan(s).value(), Ink(false));
  EXPECT_EQ(buckets.find("the same"), std::string::npos) << buckets;
  EXPECT_TRUE(HasLine(buckets, {"  bucket 1: all_reduce"}));
}

}  // namespace
}  // namespace windtunnel
