// Compares the reference operators' derivatives with central finite differences.
#include "tests/runtime/cpu/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel::reference {
namespace {

using test::RandomValues;

double Dot(const Values& a, const Values& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d f / d x by central differences, element by element. With h = 1e-5 the truncation error is about h^2 and
// the rounding error 1e-16 / h: 1e-10 and 1e-11.
Values Differences(Values x, const std::function<double(const Values&)>& f) {
  constexpr double kStep = 1e-5;
  Values gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = f(x);
    x[i] = at - kStep;
    gradient[i] = (above - f(x)) / (2.0 * kStep);
    x[i] = at;
  }
  return gradient;
}

void ExpectClose(const Values& gradient, const Values& differences) {
  ASSERT_EQ(gradient.size(), differences.size());
  double error = 0.0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    error += (gradient[i] - differences[i]) * (gradient[i] - differences[i]);
  }
  EXPECT_LT(std::sqrt(error / Dot(differences, differences)), 1e-6);
}

class NormReference : public testing::TestWithParam<NormKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, NormReference, testing::Values(NormKind::kLayerNorm, NormKind::kRmsNorm));

TEST_P(NormReference, BackwardIsTheDerivative) {
  const int64_t rows = 3, columns = 7;
  const Values x = RandomValues(1, rows * columns), gamma = RandomValues(2, columns),
               beta = RandomValues(3, columns);
  const Values dy = RandomValues(4, rows * columns);
  const NormGradients g = NormBackward(GetParam(), rows, columns, dy, x, gamma);
  const auto y = [&](const Values& x, const Values& gamma, const Values& beta) {
    return Dot(dy, Norm(GetParam(), rows, columns, x, gamma, beta));
  };
  ExpectClose(g.dx, Differences(x, [&](const Values& v) { return y(v, gamma, beta); }));
  ExpectClose(g.dgamma, Differences(gamma, [&](const Values& v) { return y(x, v, beta); }));
  ExpectClose(g.dbeta, Differences(beta, [&](const Values& v) { return y(x, gamma, v); }));
}

TEST(AttentionReference, BackwardIsTheDerivativeWithGroupedKeys) {
  const AttentionShape shape{.batch = 2, .seq = 5, .heads = 4, .kv_heads = 2, .head_dim = 3};
  const Values qkv = RandomValues(1, shape.qkv_elements()), dout = RandomValues(2, shape.out_elements());
  ExpectClose(AttentionBackward(shape, dout, qkv),
              Differences(qkv, [&](const Values& v) { return Dot(dout, Attention(shape, v).out); }));
}

TEST(AttentionReference, RowsOfProbabilitiesAddUpToOneAndSeeNoFuture) {
  const AttentionShape shape{.batch = 1, .seq = 4, .heads = 1, .kv_heads = 1, .head_dim = 2};
  const Values p = Attention(shape, RandomValues(1, shape.qkv_elements())).probabilities;
  for (int64_t t = 0; t < shape.seq; ++t) {
    double sum = 0.0;
    for (int64_t u = 0; u < shape.seq; ++u) {
      sum += p[t * shape.seq + u];
      if (u > t) {
        EXPECT_EQ(p[t * shape.seq + u], 0.0);
      }
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(RopeReference, BackwardIsTheDerivative) {
  const AttentionShape shape{.batch = 1, .seq = 5, .heads = 2, .kv_heads = 1, .head_dim = 4};
  const Values qkv = RandomValues(1, shape.qkv_elements()), dy = RandomValues(2, shape.qkv_elements());
  ExpectClose(RopeBackward(shape, dy),
              Differences(qkv, [&](const Values& v) { return Dot(dy, Rope(shape, v)); }));
}

TEST(RopeReference, TurnsTheFirstPairOfPositionOneByOneRadian) {
  const AttentionShape shape{.batch = 1, .seq = 2, .heads = 1, .kv_heads = 1, .head_dim = 2};
  // Rows of (query, key, value), each of two elements; position 1's query is (1, 0).
  const Values turned = Rope(shape, {9, 9, 9, 9, 9, 9, 1, 0, 0, 0, 5, 6});
  EXPECT_DOUBLE_EQ(turned[6], std::cos(1.0));
  EXPECT_DOUBLE_EQ(turned[7], std::sin(1.0));
  EXPECT_EQ(turned[10], 5.0);  // values pass through
}

class ActivationReference : public testing::TestWithParam<ActivationKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ActivationReference,
                         testing::Values(ActivationKind::kGelu, ActivationKind::kRelu,
                                         ActivationKind::kSquaredRelu, ActivationKind::kSwiglu,
                                         ActivationKind::kGeglu, ActivationKind::kClampedSwiglu));

TEST_P(ActivationReference, BackwardIsTheDerivative) {
  const int64_t rows = 3, columns = 5, width = IsGated(GetParam()) ? 10 : 5;
  const Values in = RandomValues(1, rows * width, /*scale=*/4.0), dout = RandomValues(2, rows * columns);
  ExpectClose(ActivationBackward(GetParam(), rows, columns, dout, in), Differences(in, [&](const Values& v) {
                return Dot(dout, Activation(GetParam(), rows, columns, v));
              }));
}

// Computed by hand. Beyond its limits, as in gpt-oss, a gate of 9 counts as 7 and a value of -8 as -7, and
// neither has a gradient.
TEST(ActivationReference, ClampedSwigluStaysWithinItsLimits) {
  const auto of = [](double gate, double value) {
    return Activation(ActivationKind::kClampedSwiglu, 1, 1, {gate, value})[0];
  };
  EXPECT_DOUBLE_EQ(of(2, 3), 2 / (1 + std::exp(-1.702 * 2)) * 4);
  EXPECT_DOUBLE_EQ(of(9, 3), of(7, 3));
  EXPECT_DOUBLE_EQ(of(2, -8), of(2, -7));
  EXPECT_LT(std::abs(of(-40, 3)), 1e-25);  // the gate has no lower limit
  EXPECT_EQ(ActivationBackward(ActivationKind::kClampedSwiglu, 1, 1, {1}, {9, -8}), (Values{0, 0}));
}

TEST(LossReference, CrossEntropyGradientIsTheDerivative) {
  const int64_t rows = 4, vocab = 6;
  const Values logits = RandomValues(1, rows * vocab);
  const std::vector<int32_t> targets = {0, 5, 2, 2};
  ExpectClose(CrossEntropy(rows, vocab, logits, targets).gradient, Differences(logits, [&](const Values& v) {
                return CrossEntropy(rows, vocab, v, targets).loss;
              }));
}

TEST(LossReference, CrossEntropyOfEqualLogitsIsTheLogarithmOfTheVocabulary) {
  EXPECT_DOUBLE_EQ(CrossEntropy(1, 8, Values(8, 3.0), {1}).loss, std::log(8.0));
}

TEST(LossReference, MeanSquaredErrorGradientIsTheDerivative) {
  const Values prediction = RandomValues(1, 6), target = RandomValues(2, 6);
  ExpectClose(MeanSquaredError(prediction, target).gradient,
              Differences(prediction, [&](const Values& v) { return MeanSquaredError(v, target).loss; }));
}

TEST(GemmReference, MultipliesByHand) {
  const Values a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
  EXPECT_EQ(Gemm(2, 2, 2, false, false, a, b), (Values{19, 22, 43, 50}));
  EXPECT_EQ(Gemm(2, 2, 2, false, true, a, b), (Values{17, 23, 39, 53}));
  EXPECT_EQ(Gemm(2, 2, 2, true, false, a, b), (Values{26, 30, 38, 44}));
}

// torch 1.13.1: p = torch.tensor([1.0, -2.0]).double().requires_grad_(); p.grad = tensor([0.5, -3.0]), two
// steps of torch.optim.AdamW([p], lr=0.1, weight_decay=0.01), of Adam with the same arguments, of SGD with
// momentum=0.9 too.
TEST(OptimizerReference, RepeatsTorchOptim) {
  const Values gradient = {0.5, -3.0};
  const auto two_steps = [&](const OptimizerSpec& spec) {
    Values p = {1.0, -2.0}, m(2), v(2);
    for (int64_t step = 0; step < 2; ++step) OptimizerUpdate(spec, step, gradient, p, m, v);
    return p;
  };
  const auto expect = [&](const OptimizerSpec& spec, double first, double second) {
    const Values p = two_steps(spec);
    EXPECT_NEAR(p[0], first, 1e-9);
    EXPECT_NEAR(p[1], second, 1e-9);
  };
  OptimizerSpec spec;
  spec.lr = 0.1;
  spec.weight_decay = 0.01;
  expect(spec, 0.798101003998, -1.79610200067);
  spec.kind = OptimizerKind::kAdam;
  expect(spec, 0.800005168006, -1.80000086528);
  spec.kind = OptimizerKind::kSgd;
  spec.momentum = 0.9;
  expect(spec, 0.852151, -1.124502);
}

}  // namespace
}  // namespace windtunnel::reference
