#include "cost_models/fit.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

TEST(GroupTimes, RunFromTheLastArrivalToTheLastCompletion) {
  const std::vector<Duration> arrived0 = {Microseconds(1)}, arrived1 = {Microseconds(4)};
  const std::vector<Duration> done0 = {Microseconds(10)}, done1 = {Microseconds(9)};
  EXPECT_EQ(GroupTimes({&arrived0, &arrived1}, {&done0, &done1}), std::vector<Duration>{Microseconds(6)});
}

TEST(RateUnderCompute, RepeatsTheWorkedNumber) {
  // alone 10 ms, took 16 ms, computing 12 ms: (10 - 4) / 12.
  EXPECT_DOUBLE_EQ(RateUnderCompute(Milliseconds(10), Milliseconds(16), Milliseconds(12)), 0.5);
  // Faster than alone is noise.
  EXPECT_DOUBLE_EQ(RateUnderCompute(Milliseconds(10), Milliseconds(8), Milliseconds(8)), 1.0);
}

CalibrationSamples OneRank(double kernel_us, double offset_us) {
  CalibrationSamples samples;
  samples.kernels["gemm"] = {Microseconds(kernel_us), Microseconds(kernel_us + 2)};
  samples.dispatch = {Nanoseconds(100)};
  samples.common_mode = {0.9, 1.0, 1.1};
  CollectiveSamples c;
  c.op = "all_reduce";
  c.bytes = 1024;
  c.ranks = 2;
  c.arrived = {Microseconds(offset_us)};
  c.done = {Microseconds(20)};
  c.core_time = {Microseconds(5)};
  c.overlap_arrived = {Microseconds(100)};
  c.overlap_done = {Microseconds(130)};
  c.overlap_compute_end = {Microseconds(130)};
  c.compute_rate = {0.6};
  samples.collectives = {c};
  samples.outside_allocator = MiB(static_cast<int64_t>(offset_us));
  return samples;
}

TEST(FitSamples, KeepsTheFasterHost) {
  const auto issuing_takes = [](double us) {
    CalibrationSamples samples;
    samples.kernels["dispatch gemm"] = {Microseconds(us)};
    samples.kernels["gemm"] = {Microseconds(us)};
    return samples;
  };
  Profile profile;
  for (const double us : {9.0, 4.0, 7.0}) FitSamples({issuing_takes(us)}, "nccl", 1, profile);
  EXPECT_EQ(profile.FindKernel("dispatch gemm", 1)->time.p50(), Microseconds(4));
  EXPECT_EQ(profile.FindKernel("gemm", 1)->time.p50(), Microseconds(7));
  ForgetDispatch(1, profile);
  EXPECT_EQ(profile.FindKernel("dispatch gemm", 1), nullptr);
  EXPECT_NE(profile.FindKernel("gemm", 1), nullptr);
}

TEST(FitSamples, PoolsKernelsAndTakesTheGroupsTimes) {
  Profile profile;
  profile.cores = 2;
  FitSamples({OneRank(10, 2), OneRank(14, 5)}, "gloo", 2, profile);
  const KernelEntry* kernel = profile.FindKernel("gemm", 2);
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->count, 4);                      // 10, 12, 14, 16 us
  EXPECT_EQ(kernel->time.p50(), Microseconds(13));  // halfway between 12 and 14
  const CollectiveEntry* collective = profile.FindCollective("all_reduce", "gloo", 2, Bytes(1024));
  ASSERT_NE(collective, nullptr);
  EXPECT_EQ(collective->time.p50(), Microseconds(15));  // 20 - 5
  EXPECT_EQ(collective->core_time, Microseconds(5));
  EXPECT_DOUBLE_EQ(*collective->collective_rate_under_compute, 0.5);  // 15 us alone, 30 us under computation
  EXPECT_DOUBLE_EQ(*collective->compute_rate_under_collective, 0.6);
  EXPECT_EQ(profile.dispatch.at(2).p50(), Nanoseconds(100));
  EXPECT_DOUBLE_EQ(profile.common_mode[5], 1.0);
  ASSERT_EQ(profile.outside_allocator.size(), 1u);
  EXPECT_EQ(profile.outside_allocator[0].bytes, MiB(5));  // the largest rank's
}

TEST(FitSamples, ComparesComputingRanksThatShareACoreWithEachOther) {
  Profile profile;
  profile.cores = 1;  // two ranks take turns: 0.3 of a core of one's own is 0.6 of a fair half
  CalibrationSamples rank = OneRank(10, 2);
  rank.collectives[0].compute_rate = {0.3};
  FitSamples({rank, rank}, "gloo", 2, profile);
  EXPECT_DOUBLE_EQ(
      *profile.FindCollective("all_reduce", "gloo", 2, Bytes(1024))->compute_rate_under_collective, 0.6);
}

TEST(FitSamples, ReplacesEarlierEntriesOfTheSameIdentity) {
  Profile profile;
  FitSamples({OneRank(10, 2), OneRank(10, 5)}, "gloo", 2, profile);
  FitSamples({OneRank(30, 2), OneRank(30, 5)}, "gloo", 2, profile);
  EXPECT_EQ(profile.kernels.size(), 1u);
  EXPECT_EQ(profile.FindKernel("gemm", 2)->time.p50(), Microseconds(31));
}

}  // namespace
}  // namespace windtunnel
