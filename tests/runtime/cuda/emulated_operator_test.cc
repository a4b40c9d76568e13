// The cuda device's kernels on blocks of fibers, held against the cpu device: index arithmetic, masks, tails, barriers and formulae, on
// machines without a GPU.
#include <gtest/gtest.h>

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
    emulator::StartReversed(true);
    const test::Outcome reversed = RunOn(emulated, c);
    emulator::StartReversed(false);
    ASSERT_EQ(expected.error, "");
    ASSERT_EQ(got.error, "");
    for (size_t i = 0; i < got.writes.size(); ++i) {
      const test::Buffer& buffer = got.writes[i];
      if (!buffer.compared) continue;
      EXPECT_LT(RelativeError(buffer, expected.writes[i]), test::ToleranceOf(buffer.dtype)) << "write " << i;
      EXPECT_EQ(buffer.bytes, reversed.writes[i].bytes) << "write " << i << ": the order of threads shows";
    }
  }
}

}  // namespace
}  // namespace windtunnel
