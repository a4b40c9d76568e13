#include "runtime/cpu/norm.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::Plus;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::Values;

struct NormCase {
  NormKind kind;
  int64_t rows, columns;
  bool bias, residual;
};

class NormKernel : public testing::TestWithParam<NormCase> {
 protected:
  const NormCase c = GetParam();
  const int64_t elements = c.rows * c.columns;
  // A mean far from zero, where a one-pass variance would cancel.
  const Values x = Rounded(Plus(RandomValues(1, elements), Values(static_cast<size_t>(elements), 30.0)));
  const Values branch = RandomValues(2, elements);
  const Values gamma = RandomValues(3, c.columns), beta = RandomValues(4, c.columns);
  const bool has_beta = c.kind == NormKind::kLayerNorm && c.bias;
  const int64_t statistics_elements = c.kind == NormKind::kLayerNorm ? 2 * c.rows : c.rows;
  // The normalised input as the kernel keeps it: fp32.
  Values Sum() const { return c.residual ? Rounded(Plus(x, branch)) : x; }

  static Values Rounded(Values values) {
    for (double& value : values) value = static_cast<float>(value);
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(Shapes, NormKernel,
                         testing::Values(NormCase{NormKind::kLayerNorm, 5, 64, true, false},
                                         NormCase{NormKind::kLayerNorm, 1, 37, true, true},
                                         NormCase{NormKind::kLayerNorm, 9, 256, false, true},
                                         NormCase{NormKind::kLayerNorm, 3, 1, true, false},
                                         NormCase{NormKind::kLayerNorm, 4, 1000, false, false},
                                         NormCase{NormKind::kRmsNorm, 5, 64, true, true},
                                         NormCase{NormKind::kRmsNorm, 1, 37, false, false},
                                         NormCase{NormKind::kRmsNorm, 7, 129, false, true}));

TEST_P(NormKernel, ForwardMatchesTheReference) {
  Tensor x32 = x, branch32 = branch, gamma32 = gamma, beta32 = beta;
  Tensor sum(elements), y(elements), statistics(statistics_elements);
  std::vector<TensorRef> reads = {x32.ref()}, writes;
  if (c.residual) reads.push_back(branch32.ref());
  reads.push_back(gamma32.ref());
  if (has_beta) reads.push_back(beta32.ref());
  if (c.residual) writes.push_back(sum.ref());
  writes.push_back(y.ref());
  writes.push_back(statistics.ref());
  ASSERT_EQ(Launch(NormForward{c.kind, c.rows, c.columns, c.bias, c.residual}, reads, writes), "");
  if (c.residual) {
    EXPECT_EQ(RelativeError(sum, Sum()), 0.0);
  }
  const Values expected =
      reference::Norm(c.kind, c.rows, c.columns, Sum(), gamma, has_beta ? beta : Values());
  EXPECT_LT(RelativeError(y, expected), 1e-5);
}

TEST_P(NormKernel, BackwardMatchesTheReferenceAndAccumulates) {
  if (c.columns == 1) GTEST_SKIP() << "the norm of one column is constant: its gradient is rounding";
  const Values dy = RandomValues(5, elements), dresidual = RandomValues(6, elements),
               before = RandomValues(7, c.columns);
  const auto expected = reference::NormBackward(c.kind, c.rows, c.columns, dy, Sum(), gamma);
  for (bool accumulate : {false, true}) {
    Tensor dy32 = dy, x32 = Sum(), gamma32 = gamma, dx = dresidual;  // dx is the buffer of dresidual
    Tensor dgamma = accumulate ? Tensor(before) : Tensor(c.columns), dbeta = dgamma, y(elements);
    Tensor statistics(statistics_elements);
    ASSERT_EQ(Launch(NormForward{c.kind, c.rows, c.columns, false, false}, {x32.ref(), gamma32.ref()},
                     {y.ref(), statistics.ref()}),
              "");
    std::vector<TensorRef> reads = {dy32.ref(), x32.ref(), gamma32.ref(), statistics.ref()};
    if (c.residual) reads.push_back(dx.ref());
    std::vector<TensorRef> writes = {dx.ref(), dgamma.ref()};
    if (has_beta) writes.push_back(dbeta.ref());
    ASSERT_EQ(Launch(NormBackward{c.kind, c.rows, c.columns, c.bias, c.residual, accumulate}, reads, writes),
              "");
    EXPECT_LT(RelativeError(dx, c.residual ? Plus(expected.dx, dresidual) : expected.dx), 1e-5);
    EXPECT_LT(RelativeError(dgamma, accumulate ? Plus(expected.dgamma, before) : expected.dgamma), 1e-5);
    if (has_beta) {
      EXPECT_LT(RelativeError(dbeta, accumulate ? Plus(expected.dbeta, before) : expected.dbeta), 1e-5);
    }
    Tensor frozen_dx = dresidual;  // without the parameters' gradients, that of the input is the same
    if (c.residual) reads.back() = frozen_dx.ref();
    NormBackward frozen{c.kind, c.rows, c.columns, c.bias, c.residual};
    frozen.frozen = true;
    ASSERT_EQ(Launch(frozen, reads, {frozen_dx.ref()}), "");
    EXPECT_LT(RelativeError(frozen_dx, c.residual ? Plus(expected.dx, dresidual) : expected.dx), 1e-5);
  }
}

TEST(NormKernel, BackwardMayOverwriteTheIncomingGradient) {
  const int64_t rows = 3, columns = 40;
  const Values dy = RandomValues(1, rows * columns), x = RandomValues(2, rows * columns),
               gamma = RandomValues(3, columns);
  Tensor dy32 = dy, x32 = x, gamma32 = gamma, y(rows * columns), statistics(2 * rows), dgamma(columns);
  ASSERT_EQ(Launch(NormForward{NormKind::kLayerNorm, rows, columns, false, false}, {x32.ref(), gamma32.ref()},
                   {y.ref(), statistics.ref()}),
            "");
  ASSERT_EQ(Launch(NormBackward{NormKind::kLayerNorm, rows, columns, false, false, false},
                   {dy32.ref(), x32.ref(), gamma32.ref(), statistics.ref()}, {dy32.ref(), dgamma.ref()}),
            "");
  EXPECT_LT(
      RelativeError(dy32, reference::NormBackward(NormKind::kLayerNorm, rows, columns, dy, x, gamma).dx),
      1e-5);
}

}  // namespace
}  // namespace windtunnel
