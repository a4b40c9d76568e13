#include "runtime/cpu/activation.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::Values;

class ActivationKernel : public testing::TestWithParam<ActivationKind> {
 protected:
  int64_t Width(int64_t columns) const { return IsGated(GetParam()) ? 2 * columns : columns; }
};
INSTANTIATE_TEST_SUITE_P(Kinds, ActivationKernel,
                         testing::Values(ActivationKind::kGelu, ActivationKind::kRelu,
                                         ActivationKind::kSquaredRelu, ActivationKind::kSwiglu,
                                         ActivationKind::kGeglu, ActivationKind::kClampedSwiglu));

TEST_P(ActivationKernel, MatchesTheReferenceForwardAndBackward) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 37}, {20, 100}, {5, 1024}}) {
    const Values in = RandomValues(1, rows * Width(columns), /*scale=*/3.0),
                 dout = RandomValues(2, rows * columns);
    Tensor in32 = in, dout32 = dout, out(rows * columns), din(rows * Width(columns));
    ASSERT_EQ(Launch(ActivationForward{GetParam(), rows, columns}, {in32.ref()}, {out.ref()}), "");
    ASSERT_EQ(Launch(ActivationBackward{GetParam(), rows, columns}, {dout32.ref(), in32.ref()}, {din.ref()}),
              "");
    EXPECT_LT(RelativeError(out, reference::Activation(GetParam(), rows, columns, in)), 5e-7);
    EXPECT_LT(RelativeError(din, reference::ActivationBackward(GetParam(), rows, columns, dout, in)), 5e-7);
  }
}

TEST_P(ActivationKernel, BackwardMayOverwriteTheIncomingGradient) {
  if (IsGated(GetParam())) GTEST_SKIP() << "its input is twice as wide";
  const Values in = RandomValues(1, 50), dout = RandomValues(2, 50);
  Tensor in32 = in, dout32 = dout;
  ASSERT_EQ(Launch(ActivationBackward{GetParam(), 2, 25}, {dout32.ref(), in32.ref()}, {dout32.ref()}), "");
  EXPECT_LT(RelativeError(dout32, reference::ActivationBackward(GetParam(), 2, 25, dout, in)), 5e-7);
}

TEST_P(ActivationKernel, PassesNanOn) {
  Tensor in(Width(3)), out(3);
  ASSERT_EQ(Launch(ActivationForward{GetParam(), 1, 3}, {in.ref()}, {out.ref()}), "");
  for (float value : out) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace windtunnel
