// Costs that commands look up, and the layers of stages that follow from them.
#include "cli/costs.h"

#include <gtest/gtest.h>

#include "cost_models/device_spec.h"
#include "cost_models/profile.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// Stages of equal work are slower here than stages whose hosts and collectives count. What-ifs do not change
// which of the two is chosen.
TEST(WithBalance, IsTheSameForWhatIfs) {
  const char* const text = R"(
model: {layers: 4, hidden: 1024, heads: 8, vocab: 50304, seq_len: 128, tie_embeddings: false}
batch: {accumulate: 8}
precision: {param: bf16}
recompute: selective
parallel:
  data: {size: 8}
  pipeline: {size: 2, schedule: dualpipe_v}
  context: {size: 2, kind: all_gather}
cluster:
  device: a100-sxm-40g
  nodes: 8
  devices_per_node: 4
  network: {intra_node: pcie4, inter_node: {gbits_per_nic: 200}}
)";
  const Costs costs{ParseProfile(EmbeddedProfile("a100-sxm-40g").value(), "a100").value(), ""};
  const auto balance = [&](const std::vector<Override>& overrides) {
    const Scenario scenario = ParseScenario(text, "s.yaml", "", overrides).value();
    return WithBalance(scenario, costs).parallel.pipeline.balance;
  };
  const std::vector<int64_t> plain = balance({});
  EXPECT_EQ(plain, (std::vector<int64_t>{1, 2, 1, 0}));
  EXPECT_EQ(balance({{"cluster.jitter", "0.02"}}), plain);
  EXPECT_EQ(balance({{"cluster.straggler", "{rank: 0, slowdown: 1.3}"}}), plain);
  EXPECT_EQ(balance({{"cluster.topology", "rail-fat-tree"}}), plain);
}

}  // namespace
}  // namespace windtunnel
