#include "cost_models/profile_check.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

Distribution Around(Duration median, double spread = 1.1) {
  std::array<Duration, Distribution::kCount> values;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = median.Scaled(i < 5 ? 1 / spread : i > 5 ? spread : 1);
  return Distribution::FromQuantiles(values);
}

KernelEntry Kernel(const std::string& key, Duration median, double spread = 1.1) {
  return {key, 2, 50, Around(median, spread)};
}

CollectiveEntry AllReduce(Bytes bytes, Duration median, const std::string& backend = "gloo", int ranks = 2) {
  return {.op = "all_reduce",
          .backend = backend,
          .ranks = ranks,
          .bytes = bytes,
          .count = 50,
          .time = Around(median),
          .core_time = median,
          .collective_rate_under_compute = {},
          .compute_rate_under_collective = {}};
}

Profile TwoCores() {
  Profile profile;
  profile.name = "cpu-example";
  profile.device = "cpu";
  profile.cores = 2;
  profile.dispatch = {{2, Around(Nanoseconds(800))}};
  return profile;
}

Profile Device(const std::string& name) { return *ParseProfile(*EmbeddedProfile(name), name); }

std::vector<std::string> Findings(const Profile& profile) {
  std::vector<std::string> texts;
  for (const ProfileFinding& f : CheckProfile(profile))
    texts.push_back(std::string(f.impossible ? "impossible: " : "suspicious: ") + f.where + ": " + f.what);
  return texts;
}
using Texts = std::vector<std::string>;

TEST(ProfileCheck, NothingIsWrongWithWhatAMachineMeasured) {
  Profile profile = TwoCores();
  // 2 x 256 x 1024 x 256 = 134 MFLOP in 1.2 ms: 112 GFLOP/s.
  profile.kernels = {Kernel("gemm fp32 nn m=256 n=1024 k=256", Milliseconds(1.2)),
                     Kernel("copy fp32 fp32 n=1048576", Microseconds(300)),
                     Kernel("copy fp32 fp32 n=256", Nanoseconds(40))};
  profile.collectives = {AllReduce(KiB(8), Microseconds(10)), AllReduce(MiB(32), Milliseconds(20))};
  EXPECT_EQ(Findings(profile), Texts());
}

TEST(ProfileCheck, NothingIsWrongWithTheDatasheetsOfTheProgram) {
  for (const std::string& name : EmbeddedProfileNames()) EXPECT_EQ(Findings(Device(name)), Texts()) << name;
}

// 2 x 1024^3 FLOP in 1 ms are 2.15 TFLOP/s. Two ranks on two cores have a core each, which does 64 x 6.5e9 =
// 416 GFLOP/s. In 16 bits a core may do 6.66 TFLOP/s.
TEST(ProfileCheck, NoCoreIsFasterThanItsArithmetic) {
  Profile profile = TwoCores();
  profile.kernels = {Kernel("gemm fp32 nn m=1024 n=1024 k=1024", Milliseconds(1))};
  EXPECT_EQ(Findings(profile), Texts{"impossible: gemm fp32 nn m=1024 n=1024 k=1024, 2 ranks: 2.15 TFLOP/s "
                                     "in the median, a core does at "
                                     "most 416 GFLOP/s"});
  profile.kernels = {Kernel("gemm bf16 nn m=1024 n=1024 k=1024", Milliseconds(1))};
  EXPECT_EQ(Findings(profile), Texts());
}

// 8 MiB in 1 us are 8.39 TB/s; 192 bytes a cycle are 1.25 TB/s.
TEST(ProfileCheck, NoCoreIsFasterThanItsFirstCache) {
  Profile profile = TwoCores();
  profile.kernels = {Kernel("copy fp32 fp32 n=1048576", Microseconds(1))};
  profile.collectives = {AllReduce(MiB(8), Microseconds(1))};
  EXPECT_EQ(Findings(profile), (Texts{"impossible: copy fp32 fp32 n=1048576, 2 ranks: 8.39 TB/s in the "
                                      "median, the memory of a core has at most 1.25 TB/s",
                                      "impossible: all_reduce gloo of 8.00 MiB, 2 ranks: every rank moves "
                                      "8.39 TB/s, a core has at most 1.25 TB/s"}));
}

TEST(ProfileCheck, TimesArePositive) {
  Profile profile = TwoCores();
  profile.kernels = {Kernel("copy fp32 fp32 n=10", Duration())};
  EXPECT_EQ(Findings(profile),
            Texts{"impossible: copy fp32 fp32 n=10, 2 ranks: its shortest time is not positive"});
}

// 25 us of core time within at most 11 us are 2.3 cores' time; there are two.
TEST(ProfileCheck, CoreTimeIsThatOfTheCoresThereAre) {
  Profile profile = TwoCores();
  profile.collectives = {AllReduce(KiB(8), Microseconds(10))};
  profile.collectives[0].core_time = Microseconds(25);
  EXPECT_EQ(Findings(profile), Texts{"impossible: all_reduce gloo of 8.00 KiB, 2 ranks: a rank spends 25.0 "
                                     "us of core time on it, 2.3 cores' of "
                                     "its longest time 11.0 us; the machine has 2"});
}

TEST(ProfileCheck, OfSizesNextToEachOtherEitherMayBeFaster) {
  Profile profile = TwoCores();
  profile.kernels = {Kernel("copy fp32 fp32 n=1000", Microseconds(10)),
                     Kernel("copy fp32 fp32 n=1024", Microseconds(5))};
  profile.collectives = {AllReduce(Bytes(8000), Microseconds(100)), AllReduce(KiB(8), Microseconds(50))};
  EXPECT_EQ(Findings(profile), Texts());
}

TEST(ProfileCheck, WhatIsLargerAndYetFasterIsSuspiciousBeyondTheSpread) {
  Profile profile = TwoCores();
  profile.kernels = {Kernel("copy fp32 fp32 n=1000", Microseconds(10)),
                     Kernel("copy fp32 fp32 n=2000", Microseconds(9)),
                     Kernel("copy fp32 fp32 n=4000", Microseconds(5))};
  profile.collectives = {AllReduce(KiB(8), Microseconds(100)), AllReduce(KiB(16), Microseconds(50))};
  EXPECT_EQ(Findings(profile), (Texts{"suspicious: copy fp32 fp32 n=4000, 2 ranks: p90 5.50 us is less than "
                                      "p10 9.09 us of the smaller copy fp32 fp32 n=1000",
                                      "suspicious: all_reduce gloo of 16.0 KiB, 2 ranks: p90 55.0 us is less "
                                      "than p10 90.9 us of 8.00 KiB"}));
}

// The first kernel's p90 / p10 is 3 x 3. In a kernel of one microsecond such a spread is the timer's.
TEST(ProfileCheck, ADisturbedMeasurementIsSuspicious) {
  Profile profile = TwoCores();
  profile.kernels = {Kernel("copy fp32 fp32 n=100000", Microseconds(30), 3),
                     Kernel("copy fp32 fp32 n=200000", Microseconds(60), 4),
                     Kernel("copy fp32 fp32 n=1000", Microseconds(1), 3)};
  profile.kernels[2].count = 2;
  profile.collectives = {AllReduce(MiB(1), Milliseconds(1))};
  profile.collectives[0].time = Around(Milliseconds(1), 5);
  profile.dispatch[2] = Around(Milliseconds(2));
  profile.common_mode = {0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.6, 2, 2, 2, 2};
  EXPECT_EQ(Findings(profile), (Texts{"suspicious: copy fp32 fp32 n=1000, 2 ranks: 2 samples only",
                                      "suspicious: 2 of 3 kernels: p90 is more than 4 times p10, 16.0 times "
                                      "in copy fp32 fp32 n=200000, 2 ranks: did something else "
                                      "run? measure again",
                                      "suspicious: 1 of 1 collectives: p90 is more than 4 times p10, 25.0 "
                                      "times in all_reduce gloo of 1.00 MiB, 2 ranks: did something "
                                      "else run? measure again",
                                      "suspicious: dispatch of an operator, 2 ranks: 2.00 ms in the median, "
                                      "as if the process had to wait for its core",
                                      "suspicious: common mode: the machine's speed drifts by 2.00 from p10 "
                                      "to p90: something else ran"}));
}

// Beside other programs 99 of 100 short kernels take as long as ever, and one waits for its core.
TEST(ProfileCheck, KernelsThatWaitedForTheirCoreAreSuspicious) {
  Profile profile = TwoCores();
  std::array<Duration, Distribution::kCount> waited;
  waited.fill(Microseconds(30));
  profile.kernels = {Kernel("copy fp32 fp32 n=100000", Microseconds(30))};
  profile.kernels[0].time = Distribution::FromQuantiles(waited);
  EXPECT_EQ(Findings(profile), Texts());
  waited[10] = waited[11] = Milliseconds(12);
  profile.kernels[0].time = Distribution::FromQuantiles(waited);
  EXPECT_EQ(Findings(profile),
            (Texts{"suspicious: kernels: their means are 3.2 times their medians, all together: "
                   "did something else run? measure again"}));
}

// H200: 989 TFLOP/s in bf16, 4.8 TB/s, NVLink 4 with 450 GB/s.
TEST(ProfileCheck, AMeasuredDeviceIsHeldAgainstItsDatasheet) {
  Profile profile;
  profile.name = "cuda-example";
  profile.device = "cuda";
  profile.machine = {{"gpu", "NVIDIA H200"}};
  profile.kernels = {Kernel("gemm bf16 nn m=8192 n=8192 k=8192", Milliseconds(1)),  // 1.10e12 FLOP
                     Kernel("gemm bf16 nt m=8192 n=8192 k=8192", Milliseconds(2)),
                     Kernel("copy bf16 bf16 n=1000000000", Microseconds(400)),         // 4 GB: 10 TB/s
                     Kernel("copy bf16 bf16 n=1000000", Nanoseconds(400))};            // in the cache
  profile.collectives = {AllReduce(Bytes(1'000'000'000), Milliseconds(1), "nccl", 8),  // 1 TB/s
                         AllReduce(Bytes(100'000'000), Microseconds(500), "nccl", 8)};
  const Texts found = Findings(profile);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0],
            "impossible: gemm bf16 nn m=8192 n=8192 k=8192, 2 ranks: 1.10 PFLOP/s in the median, the "
            "datasheet of h200-sxm-141g does "
            "at most 989 TFLOP/s");
  EXPECT_EQ(found[1],
            "impossible: copy bf16 bf16 n=1000000000, 2 ranks: 10.0 TB/s in the median, the memory of the "
            "datasheet of h200-sxm-141g "
            "has at most 4.80 TB/s");
  EXPECT_EQ(found[2],
            "impossible: all_reduce nccl of 954 MiB, 8 ranks: every rank moves 1.00 TB/s, the datasheet of "
            "h200-sxm-141g has at most "
            "450 GB/s");
}

// An H100 may be one of five devices, of which one has the fastest products and another the fastest memory. 2
// x 8192^3 FLOP in 1.2 ms are 916 TFLOP/s, and 4 GB in 0.95 ms are 4.2 TB/s.
TEST(ProfileCheck, OfDevicesThatAMachineMayHaveTheFastestCounts) {
  Profile profile;
  profile.name = "measured";
  profile.device = "cuda";
  profile.machine = {{"device", "NVIDIA H100 80GB HBM3"}};
  profile.kernels = {Kernel("gemm bf16 nn m=8192 n=8192 k=8192", Milliseconds(1.2)),
                     Kernel("copy bf16 bf16 n=1000000000", Microseconds(1050))};
  EXPECT_EQ(Findings(profile), Texts());
  profile.name = "h100-pcie-80g";
  ASSERT_EQ(Findings(profile).size(), 2u);
  EXPECT_NE(Findings(profile)[0].find("the datasheet of h100-pcie-80g does at most 756 TFLOP/s"),
            std::string::npos);
}

TEST(ProfileCheck, ADeviceThatIsNotKnownHasNoLimits) {
  Profile profile;
  profile.device = "cuda";
  profile.kernels = {Kernel("gemm bf16 nn m=8192 n=8192 k=8192", Microseconds(1))};
  EXPECT_EQ(Findings(profile), Texts());
}

// A number in another unit than the field's is off by a factor of a thousand.
TEST(ProfileCheck, ADatasheetsUnitsArePlausible) {
  const auto changed = [](auto change) {
    Profile profile = Device("h100-sxm-80g");
    change(*profile.hardware);
    const std::vector<std::string> findings = Findings(profile);
    return findings.empty() ? "" : findings.back();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(changed([](DeviceSpec&) {}), "");
  for (const double rate : {3.35, 3'350'000.0})
    EXPECT_TRUE(has(changed([&](DeviceSpec& d) { d.hbm = GBps(rate); }), "as if one were in another unit"))
        << rate;
  EXPECT_TRUE(
      has(changed([](DeviceSpec& d) { d.kernel_launch = Milliseconds(3); }), "of host time a kernel"));
  EXPECT_TRUE(
      has(changed([](DeviceSpec& d) { d.intra_node = "nvlink9"; }), "'nvlink9' is not a kind of link"));
}

TEST(ProfileCheck, ADatasheetIsHeldAgainstItself) {
  Profile profile = Device("a100-sxm-80g");
  DeviceSpec& device = *profile.hardware;
  device.flash.front().forward = Tflops(400);
  device.collectives.channels_intra = 200;
  device.measured_collectives = {
      {"all_reduce",
       8,
       1,
       {},
       {{MiB(1), Microseconds(100)}, {MiB(2), Microseconds(50)}, {MiB(512), Microseconds(100)}}}};
  const Texts found = Findings(profile);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_NE(found[0].find("impossible: attention.flash, head_dim"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("400 TFLOP/s is above the peak of 312 TFLOP/s"), std::string::npos) << found[0];
  EXPECT_EQ(found[1],
            "impossible: measured all_reduce of 512 MiB, 8 ranks on 1 nodes: every rank moves 5.37 TB/s, its "
            "links have 300 GB/s");
  EXPECT_EQ(found[2], "impossible: collectives: 200 channels occupy all 108 multiprocessors");
  EXPECT_EQ(found[3],
            "suspicious: measured all_reduce of 2.00 MiB, 8 ranks on 1 nodes: 50.0 us is less than 100 us of "
            "1.00 MiB");
}

}  // namespace
}  // namespace windtunnel
