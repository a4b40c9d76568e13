#include "reports/profile_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace windtunnel {
namespace {

Profile Example() {
  Profile profile;
  profile.name = "cpu-example";
  profile.device = "cpu";
  profile.created = "2024-01-02T03:04:05Z";
  profile.cores = 2;
  profile.dispatch = {{2, Distribution::Constant(Nanoseconds(900))}};
  const auto put = [&](const std::string& key, double us) {
    profile.Put(KernelEntry{key, 2, 50, Distribution::Constant(Microseconds(us))});
  };
  put("gemm fp32 nn m=100 n=100 k=100", 20);  // 2 MFLOP
  put("copy fp32 fp32 n=1000", 1);            // 8 kB
  put("context_attention_backward fp32 b=1 s=256 h=4 kv=4 d=64 blocks=1 other accumulate", 30);
  profile.Put(CollectiveEntry{.op = "all_reduce",
                              .backend = "gloo",
                              .ranks = 2,
                              .bytes = Bytes(1'000'000),
                              .count = 30,
                              .time = Distribution::Constant(Microseconds(500)),
                              .core_time = Microseconds(321),
                              .collective_rate_under_compute = 0.71,
                              .compute_rate_under_collective = 0.5});
  profile.Put(OutsideAllocatorEntry{"gloo", 2, MiB(31)});
  return profile;
}

// The line that begins with `label`.
std::string Line(const std::string& text, const std::string& label) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(label)) return line;
  return "no line";
}

TEST(ProfileTable, SaysHowFastKernelsAreForTheirWork) {
  const std::string text = ProfileTable(Example(), Ink(false));
  EXPECT_TRUE(Line(text, "gemm").ends_with("  100 GFLOP/s")) << text;
  EXPECT_TRUE(Line(text, "copy").ends_with("  8.00 GB/s")) << text;
  EXPECT_TRUE(Line(text, "all_reduce gloo").ends_with("2.00 GB/s     321 us     0.71 and 0.50")) << text;
  EXPECT_TRUE(Line(text, "dispatch").ends_with("900 ns")) << text;
}

TEST(ProfileTable, ColumnsLineUpHoweverLongAKeyIs) {
  const std::string text = ProfileTable(Example(), Ink(false));
  const size_t width = Line(text, "kernel").size();
  EXPECT_EQ(Line(text, "gemm").size(), width);
  EXPECT_EQ(Line(text, "context_attention").size(), width);
  EXPECT_EQ(Line(text, "collective").size(), Line(text, "all_reduce").size());
}

TEST(FindingsTable, HasALineForEach) {
  EXPECT_EQ(FindingsTable({}, Ink(false)), "");
  EXPECT_EQ(FindingsTable({{true, "copy n=1", "too fast"}, {false, "gemm", "slow"}}, Ink(false)),
            "  impossible copy n=1: too fast\n  suspicious gemm: slow\n");
}

}  // namespace
}  // namespace windtunnel
