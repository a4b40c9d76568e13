// The files of scenarios/ load, round-trip and say what their names say; the schema beside them is the
// format's.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/read_file.h"
#include "scenarios/json_schema.h"
#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

std::vector<std::string> ShippedFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Shipped, FilesLoadUnderTheirOwnNameAndRoundTrip) {
  EXPECT_GE(ShippedFiles().size(), 7u);
  for (const std::string& file : ShippedFiles()) {
    Result<Scenario> scenario = LoadScenario(file, {});
    ASSERT_TRUE(scenario) << scenario.error().message;
    EXPECT_EQ(scenario->name, std::filesystem::path(file).stem().string());
    EXPECT_EQ(scenario->source_file, file);
    EXPECT_FALSE(scenario->description.empty()) << file;
    scenario->source_file.clear();
    Result<Scenario> again = ParseScenario(ResolvedYaml(*scenario), "resolved", "/", {});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, *scenario) << file;
  }
}

// "ddp_gpt_2rank", "dp_gpt_2threads", "ddp_gpt_2nodes_1gbit" (a rank on each node), and for devices other
// than this machine's "fsdp_llama7b_8xa100" or "qlora_llama2_70b_2xrtx4090".
TEST(Shipped, NamesEndInTheWorldSize) {
  for (const std::string& file : ShippedFiles()) {
    Scenario scenario = LoadScenario(file, {}).value();
    const bool one_process = scenario.parallel.data.kind == DataParallelKind::kDp;
    std::string device = scenario.cluster.device;
    std::erase(device, '-');
    const std::string what = scenario.cluster.device != "cpu" ? "x" + device.substr(0, 4)
                             : one_process                    ? "threads"
                             : scenario.cluster.nodes > 1     ? "nodes"
                                                              : "rank";
    EXPECT_NE(file.find("_" + std::to_string(scenario.WorldSize()) + what), std::string::npos) << file;
  }
}

TEST(Shipped, TheSchemaIsTheFormats) {
  EXPECT_EQ(ReadFile("scenarios/scenario.schema.json", "the schema").value(), ScenarioJsonSchema())
      << "refresh it: ./bazelw run //scenarios:print_schema > scenarios/scenario.schema.json";
}

}  // namespace
}  // namespace windtunnel
