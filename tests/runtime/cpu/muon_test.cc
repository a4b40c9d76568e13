// The parts of Muon's update against their formulas.
#include "runtime/cpu/muon.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::BFloat16;
using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::RoundedTo;
using test::Tensor;
using test::TensorOf;
using test::Values;
using test::ValuesOf;

constexpr int64_t kElements = 333;

OptimizerSpec Muon() {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kMuon;
  spec.lr = 0.01;
  spec.weight_decay = 0.1;
  spec.momentum = 0.95;
  return spec;
}

double Norm(const Values& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// Nesterov's: the gradient and the momentum that it has just gone into.
TEST(MuonDirection, IsTheUnitVectorOfGradientAndNewMomentum) {
  const Values gradient = RandomValues(1, kElements), before = RandomValues(2, kElements, 0.3);
  Tensor g = gradient, momentum = before;
  TensorOf<BFloat16> x(kElements);
  ASSERT_EQ(Launch(MuonDirection{Muon(), kElements}, {g.ref()}, {momentum.ref(), x.ref()}), "");
  Values expected_momentum, expected;
  for (int64_t i = 0; i < kElements; ++i) {
    expected_momentum.push_back(0.95 * before[i] + 0.05 * gradient[i]);
    expected.push_back(0.05 * gradient[i] + 0.95 * expected_momentum[i]);
  }
  const double norm = Norm(expected);
  for (double& value : expected) value /= norm;
  EXPECT_LT(RelativeError(momentum, expected_momentum), 1e-6);
  EXPECT_LT(RelativeError(x, expected), 4e-3) << "bf16 has 8 bits";
  EXPECT_NEAR(Norm(ValuesOf(x)), 1, 1e-3);
}

TEST(MuonDirection, OfNothingIsNothing) {
  Tensor g = Values(kElements, 0.0), momentum = Values(kElements, 0.0);
  TensorOf<BFloat16> x(kElements);
  ASSERT_EQ(Launch(MuonDirection{Muon(), kElements}, {g.ref()}, {momentum.ref(), x.ref()}), "");
  EXPECT_EQ(ValuesOf(x), Values(kElements, 0.0));
}

TEST(MuonDirection, RoundsAMomentumInBf16AfterwardsOnly) {
  OptimizerSpec spec = Muon();
  const Values before = RoundedTo<BFloat16>(RandomValues(2, kElements));
  Tensor g = RandomValues(1, kElements), wide = before;
  TensorOf<BFloat16> narrow = before, x(kElements), x_of_wide(kElements);
  ASSERT_EQ(Launch(MuonDirection{spec, kElements}, {g.ref()}, {wide.ref(), x_of_wide.ref()}), "");
  spec.moments = MomentsType::kBf16;
  ASSERT_EQ(Launch(MuonDirection{spec, kElements}, {g.ref()}, {narrow.ref(), x.ref()}), "");
  EXPECT_EQ(narrow, TensorOf<BFloat16>(ValuesOf(wide)));
  EXPECT_EQ(x, x_of_wide);
}

TEST(MuonUpdate, DecaysByTheRateAndMovesByTheAdjustedOne) {
  const Values before = RandomValues(1, kElements),
               direction = RoundedTo<BFloat16>(RandomValues(2, kElements));
  Tensor p = before;
  TensorOf<BFloat16> x = direction;
  KernelContext context;
  context.lr_factor = 0.5;
  ASSERT_EQ(Launch(MuonUpdate{Muon(), kElements, 3.0}, {x.ref()}, {p.ref()}, context), "");
  Values expected;
  for (int64_t i = 0; i < kElements; ++i)
    expected.push_back((1 - 0.005 * 0.1) * before[i] - 0.005 * 3 * direction[i]);
  EXPECT_LT(RelativeError(p, expected), 1e-6);
}

TEST(MuonUpdate, AnOverflowLeavesMomentumAndParameters) {
  for (const float overflow : {0.0f, 1.0f}) {
    Tensor g = RandomValues(1, kElements), found = Values{overflow};
    Tensor momentum = RandomValues(2, kElements), p = RandomValues(3, kElements);
    const Tensor momentum_before = momentum, p_before = p;
    TensorOf<BFloat16> x(kElements);
    ASSERT_EQ(Launch(MuonDirection{Muon(), kElements, /*guarded=*/true}, {g.ref(), found.ref()},
                     {momentum.ref(), x.ref()}),
              "");
    ASSERT_EQ(Launch(MuonUpdate{Muon(), kElements, 1.0, /*guarded=*/true}, {x.ref(), found.ref()}, {p.ref()}),
              "");
    EXPECT_EQ(momentum == momentum_before, overflow != 0);
    EXPECT_EQ(p == p_before, overflow != 0);
  }
}

}  // namespace
}  // namespace windtunnel
