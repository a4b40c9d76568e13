// Compares the timeline of a tiny DDP step, to the picosecond, with tests/sim/golden/tiny_ddp.txt, so that
// any change of a prediction shows. To accept a change (and give its reason in the commit's message), run
//
//   ./bazelw run //tests/sim:golden_timeline_test -- --refresh
//
// which prints the lines that differ and rewrites the file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "sim/predict.h"
#include "tests/sim/fixtures.h"

namespace windtunnel {
namespace {

using testing::Describe;
using testing::FakeCosts;
using testing::PlanBuilder;

constexpr char kGolden[] = "tests/sim/golden/tiny_ddp.txt";

// Two layers on two ranks and two cores. Each layer's gradients are a bucket that overlaps the rest of
// backward.
Plan TinyDdp() {
  PlanBuilder b(2);
  b.Kernel("load", 3);
  const BufferId saved = b.Alloc("saved activations", KiB(300), Category::kActivations);
  b.Kernel("layer 0 forward", 40);
  b.Kernel("layer 1 forward", 40);
  b.Kernel("loss", 10);
  b.Kernel("layer 1 backward", 80);
  const OpIndex bucket_0 = b.Collective("bucket 0", 60);
  b.Kernel("layer 0 backward", 80);
  b.Free(saved);
  const OpIndex bucket_1 = b.Collective("bucket 1", 70);
  b.Kernel("optimizer", 25, {bucket_0, bucket_1});
  b.Barrier();
  return b.Build();
}

// Times spread by 10 %, one straggling rank, and collectives that share cores.
std::string TinyDdpTimeline() {
  Plan plan = TinyDdp();
  plan.scenario.cluster.straggler = {.rank = 1, .slowdown = 1.1};
  FakeCosts costs;
  std::array<Duration, Distribution::kCount> quantiles;
  for (size_t i = 0; i < quantiles.size(); ++i)
    quantiles[i] = Nanoseconds(950 + 10.0 * static_cast<double>(i));
  costs.spread = Distribution::FromQuantiles(quantiles);
  costs.dispatch = Nanoseconds(400);
  costs.barrier = Microseconds(5);
  costs.cores = 2;
  costs.sharing.core_share = 0.6;
  costs.sharing.weight = 0.5;
  costs.sharing.compute_efficiency = 0.9;
  costs.drift = 0.01;
  return Describe(plan, Predict(plan, costs, {.seed = 1}).value().timelines);
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// "- was" and "+ is" for every line that differs.
std::string Difference(const std::string& was, const std::string& is) {
  const std::vector<std::string> old_lines = LinesOf(was), new_lines = LinesOf(is);
  std::string difference;
  for (size_t i = 0; i < std::max(old_lines.size(), new_lines.size()); ++i) {
    const std::string old_line = i < old_lines.size() ? old_lines[i] : "";
    const std::string new_line = i < new_lines.size() ? new_lines[i] : "";
    if (old_line != new_line) difference += fmt::format("- {}\n+ {}\n", old_line, new_line);
  }
  return difference;
}

std::string ReadGolden() {
  std::ifstream file(kGolden);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(GoldenTimeline, TinyDdpIsUnchanged) { EXPECT_EQ(Difference(ReadGolden(), TinyDdpTimeline()), ""); }

int Refresh() {
  const std::string timeline = TinyDdpTimeline();
  std::cout << Difference(ReadGolden(), timeline);
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");  // set by `bazel run`
  std::ofstream file(fmt::format("{}/{}", workspace ? workspace : ".", kGolden));
  file << timeline;
  return file.good() ? 0 : 1;
}

}  // namespace
}  // namespace windtunnel

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--refresh") return windtunnel::Refresh();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
