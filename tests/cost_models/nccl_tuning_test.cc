// NCCL's estimates and choices, checked against its own table (data/nccl_tuning.json says where it comes
// from).
#include "cost_models/nccl_tuning.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace windtunnel {
namespace {

NcclGraph GraphFrom(const nlohmann::json& json) {
  if (json.is_null()) return {};
  return {json[0].get<int>(), GBps(json[1].get<double>()), GBps(json[2].get<double>())};
}

NcclCommunicator CommunicatorFrom(const nlohmann::json& system) {
  const int capability = system["cc"];
  NcclCommunicator c{.ranks = system["ranks"],
                     .nodes = system["nodes"],
                     .cpu = system["cpu"] == "amd" ? HostCpu::kAmd : HostCpu::kIntel,
                     .has_nvlink = system["nvlink"],
                     .allows_ll128 = system["ll128"],
                     .has_plain_trees = system["tree_pattern"],
                     .has_equal_channels = system["same_channels"],
                     .ring = GraphFrom(system["ring"]),
                     .tree = GraphFrom(system["tree"]),
                     .nvls = GraphFrom(system["nvls"]),
                     .channels = system["channels"],
                     .link_latency = {},
                     .net_latency = {}};
  c.generation = capability >= 100  ? GpuGeneration::kBlackwell
                 : capability >= 90 ? GpuGeneration::kHopper
                 : capability >= 80 ? GpuGeneration::kAmpere
                                    : GpuGeneration::kVolta;
  return c;
}

CollectiveKind KindFrom(const std::string& name) {
  if (name == "AllReduce") return CollectiveKind::kAllReduce;
  if (name == "AllGather") return CollectiveKind::kAllGather;
  if (name == "ReduceScatter") return CollectiveKind::kReduceScatter;
  return name == "Broadcast" ? CollectiveKind::kBroadcast : CollectiveKind::kReduce;
}

std::string InWords(NcclAlgorithm algorithm) {
  const char* const words[] = {"Tree", "Ring", "NVLS", "NVLSTree", "PAT"};
  return words[static_cast<int>(algorithm)];
}
std::string InWords(NcclProtocol protocol) {
  const char* const words[] = {"LL", "LL128", "Simple"};
  return words[static_cast<int>(protocol)];
}

class NcclTuning : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file("tests/cost_models/data/nccl_tuning.json");
    ASSERT_TRUE(file.good());
    systems_ = nlohmann::json::parse(file)["systems"];
    ASSERT_EQ(systems_.size(), 19u);
  }
  nlohmann::json systems_;
};

TEST_F(NcclTuning, EveryLatencyAndBandwidthIsThatOfNcclsTable) {
  int checked = 0;
  for (const auto& item : systems_) {
    const NcclCommunicator communicator = CommunicatorFrom(item["system"]);
    for (const char* name : {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"}) {
      for (const NcclEntry& entry : NcclTable(KindFrom(name), communicator)) {
        const std::string algorithm = InWords(entry.algorithm), protocol = InWords(entry.protocol);
        const std::string where =
            item["system"]["name"].get<std::string>() + " " + name + " " + algorithm + " " + protocol;
        bool is_found = false;
        for (const auto& row : item["entries"]) {
          if (row[0] != name || row[1] != algorithm || row[2] != protocol) continue;
          is_found = true;
          EXPECT_NEAR(entry.latency / Microseconds(1), row[3].get<double>(), 0.005) << where;
          EXPECT_NEAR(entry.bandwidth / GBps(1), row[4].get<double>(), 0.005) << where;
        }
        EXPECT_TRUE(is_found) << where;
        ++checked;
      }
    }
  }
  EXPECT_EQ(checked, 341);
}

TEST_F(NcclTuning, EveryChoiceIsNccls) {
  int checked = 0;
  for (const auto& item : systems_) {
    const NcclCommunicator communicator = CommunicatorFrom(item["system"]);
    for (const auto& row : item["choices"]) {
      const CollectiveKind kind = KindFrom(row[0]);
      const Bytes bytes(row[1].get<int64_t>());
      const std::vector<NcclEntry> table = NcclTable(kind, communicator);
      const NcclEntry& choice = ChooseAsNccl(kind, table, bytes, communicator);
      const std::string where = item["system"]["name"].get<std::string>() + " " + row.dump();
      EXPECT_EQ(InWords(choice.algorithm), row[2]) << where;
      EXPECT_EQ(InWords(choice.protocol), row[3]) << where;
      EXPECT_NEAR(EstimatedTime(kind, choice, bytes, communicator) / Microseconds(1), row[4].get<double>(),
                  0.001)
          << where;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 1330);
}

// Racks have more ranks per node. NVLS does all-gathers and reduce-scatters with at most 32 of them
// (NCCL_MAX_NVLS_ARITY), and all-reduces with all.
TEST_F(NcclTuning, NvlsGathersWithAtMost32RanksOfANode) {
  const auto has_nvls = [&](CollectiveKind kind, int ranks) {
    NcclCommunicator c{.ranks = ranks,
                       .nodes = 1,
                       .generation = GpuGeneration::kBlackwell,
                       .has_nvlink = true,
                       .ring = {16, GBps(40), GBps(40)},
                       .tree = {16, GBps(40), GBps(40)},
                       .nvls = {16, GBps(40), GBps(40)},
                       .channels = 16,
                       .link_latency = {},
                       .net_latency = {}};
    const std::vector<NcclEntry> table = NcclTable(kind, c);
    return std::any_of(table.begin(), table.end(),
                       [](const NcclEntry& entry) { return entry.algorithm == NcclAlgorithm::kNvls; });
  };
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    EXPECT_TRUE(has_nvls(kind, 32));
    EXPECT_FALSE(has_nvls(kind, 33));
  }
  EXPECT_TRUE(has_nvls(CollectiveKind::kAllReduce, 72));
}

// With 0.6 at 64 KiB and 0.5 at 128 KiB, NCCL takes the value of the power of two below; interpolated
// half-way it is 0.55.
TEST(TreeCorrection, IsOfThePowerOfTwoBelowOrLinearInBetween) {
  EXPECT_EQ(TreeCorrection(NcclProtocol::kLl, KiB(96), false), 0.6);
  EXPECT_NEAR(TreeCorrection(NcclProtocol::kLl, KiB(96), true), 0.55, 1e-12);
  EXPECT_EQ(TreeCorrection(NcclProtocol::kSimple, GiB(1), false), 1);
  EXPECT_EQ(TreeCorrection(NcclProtocol::kSimple, MiB(256), true), 0.9);
  EXPECT_NEAR(TreeCorrection(NcclProtocol::kSimple, MiB(384), true), 0.95, 1e-12);
}

}  // namespace
}  // namespace windtunnel
