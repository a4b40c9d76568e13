// Compares the cuda device's kernels, run on blocks of fibers, with the cpu device: index arithmetic, masks,
// tails, barriers and formulae, on machines without a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/cuda/emulator/block.h"
#include "runtime/cuda/emulator/device.h"
#include "tests/runtime/cuda/operator_case.h"

namespace windtunnel {
namespace {

class EmulatedOperator : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, EmulatedOperator,
                         testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(EmulatedOperator, IsTheCpuDevices) {
  test::HostBench cpu(MakeCpuDevice()), emulated(MakeEmulatedDevice());
  for (const test::OperatorCase& c : test::OperatorCases(GetParam(), /*large=*/false)) {
    SCOPED_TRACE(c.name + ": " + CostKey(c.kind));
    const test::Outcome expected = RunOn(cpu, c), got = RunOn(emulated, c);
    ASSERT_EQ(expected.error, "");
    ASSERT_EQ(got.error, "");
    // fp16's threads are bf16's.
    const bool reverses = GetParam() != DType::kFloat16;
    emulator::StartReversed(reverses);
    const test::Outcome reversed = reverses ? RunOn(emulated, c) : got;
    emulator::StartReversed(false);
    for (size_t i = 0; i < got.writes.size(); ++i) {
      const test::Buffer& buffer = got.writes[i];
      if (!buffer.compared) continue;
      EXPECT_LT(RelativeError(buffer, expected.writes[i]), test::ToleranceOf(buffer)) << "write " << i;
      EXPECT_EQ(buffer.bytes, reversed.writes[i].bytes) << "write " << i << ": the order of threads shows";
    }
  }
}

std::string ErrorOf(const test::OperatorCase& c) {
  test::HostBench emulated(MakeEmulatedDevice());
  return RunOn(emulated, c).error;
}

TEST(EmulatedDevice, NamesWhatIsWrongInTheDataAsTheCpuDeviceDoes) {
  test::OperatorCase ids{.name = "embedding",
                         .kind = EmbeddingForward{.tokens = 3, .seq = 3, .vocab = 10, .hidden = 8}};
  ids.ReadIntegers({1, 17, 2}).Read(DType::kFloat32, 80).Write(DType::kFloat32, 24);
  test::OperatorCase targets{.name = "loss", .kind = CrossEntropy{.rows = 2, .vocab = 10}};
  targets.Read(DType::kFloat32, 20).ReadIntegers({3, -1}).Write(DType::kFloat32, 1).WriteToRead(0);
  test::HostBench cpu(MakeCpuDevice());
  for (const test::OperatorCase& c : {ids, targets}) {
    const std::string expected = RunOn(cpu, c).error;
    EXPECT_NE(expected, "");
    EXPECT_EQ(ErrorOf(c), expected);
  }
}

// Losses that have not found their scale make some: the same experts are chosen on both devices, each once.
TEST(EmulatedDevice, RanksExpertsWithoutANumberLastAsTheCpuDeviceDoes) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {nan, 1,         3,   2,    // the first
                                     1,   nan,       2,   nan,  // others
                                     nan, nan,       0,   nan,  // all but one
                                     nan, nan,       nan, nan,  // all
                                     nan, -infinity, 5,   5};   // equal ones, too
  const int64_t tokens = static_cast<int64_t>(logits.size()) / 4;
  test::Buffer values{.bytes = std::vector<uint8_t>(logits.size() * sizeof(float))};
  std::memcpy(values.bytes.data(), logits.data(), values.bytes.size());
  test::HostBench cpu(MakeCpuDevice()), emulated(MakeEmulatedDevice());
  for (const int64_t groups : {0, 2}) {
    const RouteTokens op{tokens, 4, 2, 8, DType::kFloat32, groups, groups / 2};
    test::OperatorCase c{.name = "route tokens", .kind = op};
    c.ReadValues(values).Write(DType::kFloat32, tokens * 4).Write(DType::kFloat32, tokens * 2);
    c.Write(DType::kInt32, tokens * 2);
    EXPECT_EQ(RunOn(emulated, c).writes[2].bytes, RunOn(cpu, c).writes[2].bytes) << groups << " groups";
  }
}

TEST(EmulatedDevice, RefusesByNameWhatItHasNoKernelFor) {
  EXPECT_EQ(ErrorOf({.name = "latent heads", .kind = JoinLatentHeads{.batch = 1, .seq = 8}}),
            "rope: the cuda device has no kernel for it");
  EXPECT_EQ(
      ErrorOf({.name = "tf32", .kind = Scale{.elements = 8, .dtype = DType::kTf32}}),
      "scale in tf32: the cuda device's kernels are for fp32, bf16 and fp16; set precision to one of them");
  EXPECT_EQ(
      ErrorOf({.name = "wide",
               .kind = AttentionForward{.batch = 1, .seq = 8, .heads = 1, .kv_heads = 1, .head_dim = 512}}),
      "attention with a head_dim of 512: this device's kernels have room for up to 256");
  EXPECT_EQ(ErrorOf({.name = "groups", .kind = RouteTokens{1, 130, 2, 2, DType::kFloat32, 65, 2}}),
            "model.experts.groups is 65: this device's kernels choose among up to 64");
  StateSpaceForward long_state;
  static_cast<StateSpaceShape&>(long_state) = {
      .batch = 1, .seq = 8, .heads = 1, .groups = 1, .head_dim = 4, .state = 512, .conv = 4};
  EXPECT_EQ(ErrorOf({.name = "long state", .kind = long_state}),
            "a state space model with a state of 512 and a convolution of 4: this device's kernels have room "
            "for up "
            "to 256 and 4");
  DeltaNetForward wide;
  static_cast<DeltaNetShape&>(wide) = {
      .batch = 1, .seq = 8, .key_heads = 1, .value_heads = 1, .key_dim = 512, .value_dim = 4, .conv = 4};
  EXPECT_EQ(ErrorOf({.name = "wide keys", .kind = wide}),
            "a gated delta network with heads of 512 columns of keys and a convolution of 4: this device's "
            "kernels have "
            "room for up to 256 and 4");
}

}  // namespace
}  // namespace windtunnel
