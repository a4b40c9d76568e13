#include "scenarios/key_places.h"

#include <gtest/gtest.h>

#include <fstream>

namespace windtunnel {
namespace {

TEST(KeyOfMessage, IsTheKeyThatItBeginsWith) {
  EXPECT_EQ(KeyOfMessage("parallel.data.wrap: no module"), "parallel.data.wrap");
  EXPECT_EQ(KeyOfMessage("cluster.network.inter_node names no bandwidth"), "cluster.network.inter_node");
  EXPECT_EQ(KeyOfMessage("data: /x: cannot be read"), "data");
  EXPECT_EQ(KeyOfMessage("recompute is 'full', expected none"), "recompute");
}

TEST(KeyOfMessage, IsNoneWhereASentenceBeginsWithSuchAWord) {
  for (const char* sentence : {"data parallelism", "run the command on each node",
                               "parallel.data.wrapping: x", "batch", "/x/data: cannot be read"})
    EXPECT_EQ(KeyOfMessage(sentence), "") << sentence;
}

TEST(PlaceOfMessage, IsThatOfTheKeyElseOfItsBlockElseOfTheOverride) {
  const std::string path = testing::TempDir() + "/places.yaml";
  std::ofstream(path) << "model: {preset: gpt2-124m}\nparallel:\n  data: {size: 2}\n";
  const std::string size = "parallel.data.size is 2", kind = "parallel.data.kind is ddp";
  EXPECT_EQ(PlaceOfMessage(size, path, {}), path + ":3:16");
  EXPECT_EQ(PlaceOfMessage(kind, path, {}), path + ":3:9");
  EXPECT_EQ(PlaceOfMessage("run.backend: nccl", path, {}), path + ":1:1");
  EXPECT_EQ(PlaceOfMessage(size, path, {{"parallel.data.size", "4"}}), "--set parallel.data.size=4");
  EXPECT_EQ(PlaceOfMessage("cluster.device is 'cpu'", path, {{"cluster.nodes", "2"}}), path + ":1:1");
  EXPECT_EQ(PlaceOfMessage("out of memory", path, {}), "");
  EXPECT_EQ(PlaceOfMessage(size, "/no/file", {}), "");
}

}  // namespace
}  // namespace windtunnel
