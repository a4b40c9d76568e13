#include "scenarios/overrides.h"

#include <fmt/format.h>

#include <filesystem>

#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

std::string MlpAnd(const char* lines) { return fmt::format("{}{}", kMlp, lines); }

TEST(ParseOverride, SplitsAtTheFirstEqualsSign) {
  Result<Override> item = ParseOverride("cluster.device=a=b");
  ASSERT_TRUE(item);
  EXPECT_EQ(item->key, "cluster.device");
  EXPECT_EQ(item->value, "a=b");
}

TEST(ParseOverride, NeedsAKeyAndAnEqualsSign) {
  EXPECT_EQ(ParseOverride("batch.micro").error().message,
            "--set batch.micro: there is no '=', expected KEY=VALUE such as batch.micro=4");
  for (std::string text : {"=4", ".a=4", "a.=4", "a..b=4"}) {
    Result<Override> item = ParseOverride(text);
    ASSERT_FALSE(item) << text;
    EXPECT_NE(item.error().message.find("is incomplete, expected a dotted path"), std::string::npos) << text;
  }
}

TEST(Overrides, ReplaceAValue) {
  EXPECT_EQ(Parsed(MlpAnd("batch: {micro: 4, accumulate: 2}\n"), {"batch.micro=8"}).batch,
            (BatchSpec{.micro = 8, .accumulate = 2}));
}

TEST(Overrides, MakeTheBlocksThatTheFileDoesNotHave) {
  Scenario scenario = Parsed(kMlp, {"parallel.data.size=2", "parallel.data.kind=ddp"});
  EXPECT_EQ(scenario.parallel.data.size, 2);
  EXPECT_EQ(scenario.cluster.devices_per_node, 2);  // the default follows
}

TEST(Overrides, TakeListsAndBlocksInYaml) {
  EXPECT_EQ(Parsed(kMlp, {"model.widths=[4, 5, 6]"}).model.widths, (std::vector<int64_t>{4, 5, 6}));
  EXPECT_EQ(Parsed(kMlp, {"batch={micro: 3}"}).batch.micro, 3);
  EXPECT_EQ(Parsed(MlpAnd("search: {micro: [1]}\n"), {"search=null"}).search, std::nullopt);
}

TEST(Overrides, StandBesideANameThatIsShortForABlock) {
  const NetworkSpec network =
      Parsed(MlpAnd("cluster: {device: h100-sxm-80g, network: dgx-h100}\nparallel: {data: {size: 1}}\n"),
             {"cluster.network.nics_per_node=2", "cluster.network.inter_node.latency_us=7"})
          .cluster.network;
  EXPECT_EQ(network.preset, "dgx-h100");
  EXPECT_EQ(network.nics_per_node, 2);
  EXPECT_EQ(network.inter_node.latency_us, 7);
  EXPECT_EQ(network.inter_node.kind, "infiniband");  // the preset's
  EXPECT_EQ(network.inter_node.gbits_per_nic, 400);
  EXPECT_EQ(Parsed(MlpAnd("cluster: {device: h100-sxm-80g, topology: dgx-h100}\n"),
                   {"cluster.topology.oversubscription=2"})
                .cluster.topology.oversubscription,
            2);
}

TEST(Overrides, TheLastOneWins) { EXPECT_EQ(Parsed(kMlp, {"run.steps=3", "run.steps=4"}).run.steps, 4); }

TEST(Overrides, ReadRelativePathsFromTheCurrentDirectoryAndFilesFromTheirOwn) {
  EXPECT_EQ(Parsed(MlpAnd("data: text/a.txt\n")).data, "/somewhere/text/a.txt");
  EXPECT_EQ(Parsed(kMlp, {"data=text/a.txt"}).data, std::filesystem::current_path().string() + "/text/a.txt");
  EXPECT_EQ(Parsed(kMlp, {"data=/a/../b.txt"}).data, "/b.txt");
}

TEST(Overrides, AreThePlaceOfTheirMistakes) {
  EXPECT_EQ(MessageOf(kMlp, {"batch.mirco=3"}),
            "--set batch.mirco=3: unknown key 'batch.mirco', did you mean 'batch.micro'?");
  EXPECT_EQ(MessageOf(kMlp, {"paralel.data.size=3"}),
            "--set paralel.data.size=3: unknown key 'paralel', did you mean 'parallel'?");
  EXPECT_EQ(MessageOf(kMlp, {"batch.micro=few"}),
            "--set batch.micro=few: batch.micro is 'few', expected a whole number");
  EXPECT_EQ(MessageOf(kMlp, {"batch.micro="}),
            "--set batch.micro=: batch.micro is empty, expected a whole number");
  EXPECT_EQ(
      MessageOf(kMlp, {"batch.micro=[1"}),
      "--set batch.micro=[1: not valid YAML (end of sequence flow not found), expected \"key: value\" lines");
  EXPECT_EQ(MessageOf(MlpAnd("run: fast\n"), {"run.steps=2"}),
            "--set run.steps=2: run is 'fast', expected a block (set the whole of it instead)");
}

TEST(Overrides, AreAllReported) {
  EXPECT_EQ(MistakesOf(kMlp, {"batch.micro=few", "run.steps=3", "batch.mirco=3"}),
            "--set batch.micro=few: batch.micro is 'few', expected a whole number\n"
            "--set batch.mirco=3: unknown key 'batch.mirco', did you mean 'batch.micro'?");
}

TEST(Overrides, AreBlamedForAConflictWithTheFile) {
  EXPECT_EQ(
      MessageOf(MlpAnd("cluster: {nodes: 1, devices_per_node: 2}\n"), {"parallel.data.size=4"}),
      "--set parallel.data.size=4: the world size is 4 (data 4 x pipeline 1 x tensor 1 x context 1) but the "
      "cluster has 2 devices (nodes 1 x devices_per_node 2), expected the same number: parallel.data.size: 2 "
      "would use all of them");
}

}  // namespace
}  // namespace windtunnel
