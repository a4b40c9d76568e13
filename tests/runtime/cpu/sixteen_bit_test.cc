// Compares every kernel in bf16 and fp16 with the reference in double precision on the same rounded numbers:
// the result is what fp32 arithmetic and one rounding give. If every fp32 operation is exact (whole numbers),
// that is the rounded exact result.
#include <gtest/gtest.h>

#include <array>

#include "plan/op.h"
#include "scenarios/words.h"
#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::BFloat16;
using test::Float16;
using test::Launch;
using test::Plus;
using test::RandomIndices;
using test::RandomValues;
using test::RefOf;
using test::RelativeError;
using test::RoundedTo;
using test::Tensor;
using test::TensorOf;
using test::TypeOf;
using test::Values;
using test::ValuesOf;

// Whole numbers from -limit to limit.
Values WholeNumbers(uint64_t stream, int64_t n, int limit) {
  Values values;
  for (int32_t index : RandomIndices(stream, n, 2 * limit + 1)) values.push_back(index - limit);
  return values;
}

template <typename T>
void ExpectFinite(const std::vector<T>& tensor) {
  for (T element : tensor) ASSERT_TRUE(std::isfinite(cpu::ToFloat(element)));
}

template <typename T>
class SixteenBit : public testing::Test {
 protected:
  using Typed = TensorOf<T>;
  static constexpr DType kType = TypeOf<T>();
  // A rounding to 8 or 11 significant bits is wrong by at most half a unit in the last place. The tolerance
  // is one unit.
  static constexpr double kTolerance = kType == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;

  static Values Random(uint64_t stream, int64_t n, double scale = 1.0) {
    return RoundedTo<T>(RandomValues(stream, n, scale));
  }
};
using Types = testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(SixteenBit, Types);

TYPED_TEST(SixteenBit, GemmMatchesTheReferenceForEveryFlag) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{20, 100, 10}, {5, 7, 9}, {130, 128, 96}, {33, 40, 3000}}) {
    for (int flags = 0; flags < 16; ++flags) {
      const Gemm op{m,          n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0,
                    this->kType};
      const Values a = this->Random(1, m * k), b = this->Random(2, k * n), bias = this->Random(3, n),
                   c = this->Random(4, m * n);
      Values expected = reference::Gemm(m, n, k, op.transpose_a, op.transpose_b, a, b);
      for (int64_t i = 0; i < m * n; ++i)
        expected[i] += (op.bias ? bias[i % n] : 0.0) + (op.accumulate ? c[i] : 0.0);
      TensorOf<TypeParam> a16 = a, b16 = b, bias16 = bias, c16 = c;
      std::vector<TensorRef> reads = {a16.ref(), b16.ref()};
      if (op.bias) reads.push_back(bias16.ref());
      ASSERT_EQ(Launch(op, reads, {c16.ref()}), "");
      EXPECT_LT(RelativeError(c16, expected), this->kTolerance) << CostKey(op);
    }
  }
}

TYPED_TEST(SixteenBit, GemmRoundsAnAccumulatedResultOnce) {
  const int64_t m = 40, n = 50, k = 3000;
  const Values a = WholeNumbers(1, m * k, 4), b = WholeNumbers(2, k * n, 4), c = WholeNumbers(3, m * n, 100);
  TensorOf<TypeParam> a16 = a, b16 = b, c16 = c;
  Gemm op{m, n, k};
  op.accumulate = true;
  op.dtype = this->kType;
  ASSERT_EQ(Launch(op, {a16.ref(), b16.ref()}, {c16.ref()}), "");
  EXPECT_EQ(ValuesOf(c16), RoundedTo<TypeParam>(Plus(reference::Gemm(m, n, k, false, false, a, b), c)));
}

TYPED_TEST(SixteenBit, ColumnSumRoundsOnce) {
  const int64_t rows = 517, columns = 37;
  const Values in = WholeNumbers(1, rows * columns, 50), before = WholeNumbers(2, columns, 100);
  for (bool accumulate : {false, true}) {
    Values sums = accumulate ? before : Values(columns);
    for (int64_t i = 0; i < rows * columns; ++i) sums[i % columns] += in[i];
    TensorOf<TypeParam> in16 = in, out = before;
    ASSERT_EQ(Launch(ColumnSum{rows, columns, accumulate, this->kType}, {in16.ref()}, {out.ref()}), "");
    EXPECT_EQ(ValuesOf(out), RoundedTo<TypeParam>(sums));
  }
}

TYPED_TEST(SixteenBit, NormForwardAndBackwardMatchTheReference) {
  const int64_t rows = 67, columns = 129, elements = rows * columns;
  const Values x = this->Random(1, elements), branch = this->Random(2, elements),
               gamma = this->Random(3, columns), beta = this->Random(4, columns),
               dy = this->Random(5, elements), dresidual = this->Random(6, elements),
               before = this->Random(7, columns);
  const Values stored = RoundedTo<TypeParam>(Plus(x, branch));
  for (NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    const bool bias = kind == NormKind::kLayerNorm;
    TensorOf<TypeParam> x16 = x, branch16 = branch, gamma16 = gamma, beta16 = beta, sum(elements),
                        y(elements);
    Tensor statistics(bias ? 2 * rows : rows);
    std::vector<TensorRef> reads = {x16.ref(), branch16.ref(), gamma16.ref()};
    if (bias) reads.push_back(beta16.ref());
    const NormForward forward{kind, rows, columns, bias, /*residual=*/true, this->kType};
    ASSERT_EQ(Launch(forward, reads, {sum.ref(), y.ref(), statistics.ref()}), "");
    EXPECT_EQ(ValuesOf(sum), stored);
    EXPECT_LT(RelativeError(y, reference::Norm(kind, rows, columns, stored, gamma, bias ? beta : Values())),
              this->kTolerance);

    TensorOf<TypeParam> dy16 = dy, dx = dresidual, dgamma = before, dbeta = before;
    std::vector<TensorRef> writes = {dx.ref(), dgamma.ref()};
    if (bias) writes.push_back(dbeta.ref());
    const NormBackward backward{kind,       rows, columns, bias, /*residual=*/true, /*accumulate=*/true,
                                this->kType};
    ASSERT_EQ(Launch(backward, {dy16.ref(), sum.ref(), gamma16.ref(), statistics.ref(), dx.ref()}, writes),
              "");
    const auto expected = reference::NormBackward(kind, rows, columns, dy, stored, gamma);
    EXPECT_LT(RelativeError(dx, Plus(expected.dx, dresidual)), this->kTolerance);
    EXPECT_LT(RelativeError(dgamma, Plus(expected.dgamma, before)), this->kTolerance);
    if (bias) {
      EXPECT_LT(RelativeError(dbeta, Plus(expected.dbeta, before)), this->kTolerance);
    }
  }
}

struct AttentionRun {
  reference::AttentionShape s;
  AttentionKind kind;
  int64_t saved_elements() const {
    return s.batch * s.heads * s.seq * (kind == AttentionKind::kEager ? s.seq : 1);
  }
};

// Saved: eager's probabilities in T, or flash's log-sum-exp in fp32.
template <typename T, typename SavedTensor>
void ExpectAttention(const AttentionRun& run, double scale, double tolerance) {
  const auto& s = run.s;
  const Values qkv = RoundedTo<T>(RandomValues(1, s.qkv_elements(), scale)),
               dout = RoundedTo<T>(RandomValues(2, s.out_elements()));
  TensorOf<T> qkv16 = qkv, dout16 = dout, out(s.out_elements()), dqkv(s.qkv_elements());
  SavedTensor saved(run.saved_elements());
  Tensor workspace(AttentionWorkspaceElements(s.seq, /*backward=*/true));
  ASSERT_EQ(Launch(AttentionForward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, run.kind, TypeOf<T>()},
                   {qkv16.ref()}, {out.ref(), saved.ref(), workspace.ref()}),
            "");
  ASSERT_EQ(Launch(AttentionBackward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, run.kind, TypeOf<T>()},
                   {dout16.ref(), qkv16.ref(), out.ref(), saved.ref()}, {dqkv.ref(), workspace.ref()}),
            "");
  ExpectFinite(out);
  ExpectFinite(dqkv);
  if (scale != 1.0) return;
  const reference::AttentionResult expected = reference::Attention(s, qkv);
  const bool eager = run.kind == AttentionKind::kEager;
  EXPECT_LT(RelativeError(out, expected.out), tolerance);
  EXPECT_LT(RelativeError(saved, eager ? expected.probabilities : expected.log_sum_exp),
            eager ? tolerance : 1e-5);
  // Backward reads results of forward that were rounded, so its result has more than its own rounding.
  EXPECT_LT(RelativeError(dqkv, reference::AttentionBackward(s, dout, qkv)), 2 * tolerance);
}

TYPED_TEST(SixteenBit, AttentionMatchesTheReference) {
  for (const reference::AttentionShape& shape :
       {reference::AttentionShape{
            .batch = 2, .seq = 2 * kAttentionBlock + 5, .heads = 4, .kv_heads = 2, .head_dim = 16},
        {.batch = 1, .seq = 17, .heads = 3, .kv_heads = 3, .head_dim = 5}}) {
    ExpectAttention<TypeParam, TensorOf<TypeParam>>({shape, AttentionKind::kEager}, 1.0, this->kTolerance);
    ExpectAttention<TypeParam, Tensor>({shape, AttentionKind::kFlash}, 1.0, this->kTolerance);
  }
}

TYPED_TEST(SixteenBit, AttentionStaysFiniteWhereScoresOverflowTheExponential) {
  const reference::AttentionShape shape{.batch = 1, .seq = 70, .heads = 2, .kv_heads = 1, .head_dim = 4};
  ExpectAttention<TypeParam, TensorOf<TypeParam>>({shape, AttentionKind::kEager}, 50.0, this->kTolerance);
  ExpectAttention<TypeParam, Tensor>({shape, AttentionKind::kFlash}, 50.0, this->kTolerance);
}

TYPED_TEST(SixteenBit, RopeMatchesTheReference) {
  const reference::AttentionShape s{.batch = 2, .seq = 19, .heads = 4, .kv_heads = 2, .head_dim = 34};
  const Values qkv = this->Random(1, s.qkv_elements());
  for (bool backward : {false, true}) {
    TensorOf<TypeParam> x = qkv;
    const Rope op{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, backward, this->kType};
    ASSERT_EQ(Launch(op, {x.ref()}, {x.ref()}), "");
    EXPECT_LT(RelativeError(x, backward ? reference::RopeBackward(s, qkv) : reference::Rope(s, qkv)),
              this->kTolerance);
  }
}

TYPED_TEST(SixteenBit, ActivationsMatchTheReference) {
  const int64_t rows = 9, columns = 133;
  for (const auto& [word, kind] : Words<ActivationKind>::table) {
    const int64_t width = IsGated(kind) ? 2 * columns : columns;
    const Values in = this->Random(1, rows * width, 3.0), dout = this->Random(2, rows * columns);
    TensorOf<TypeParam> in16 = in, dout16 = dout, out(rows * columns), din(rows * width);
    ASSERT_EQ(Launch(ActivationForward{kind, rows, columns, this->kType}, {in16.ref()}, {out.ref()}), "");
    ASSERT_EQ(
        Launch(ActivationBackward{kind, rows, columns, this->kType}, {dout16.ref(), in16.ref()}, {din.ref()}),
        "");
    EXPECT_LT(RelativeError(out, reference::Activation(kind, rows, columns, in)), this->kTolerance);
    EXPECT_LT(RelativeError(din, reference::ActivationBackward(kind, rows, columns, dout, in)),
              this->kTolerance);
  }
}

TYPED_TEST(SixteenBit, EmbeddingAddsRowsAndRoundsTheSumOfAllUsesOnce) {
  const int64_t tokens = 600, seq = 50, vocab = 7, hidden = 19;
  std::vector<int32_t> ids = RandomIndices(1, tokens, vocab - 1);  // the last row is not hit
  const Values table = this->Random(2, vocab * hidden), positions = this->Random(3, seq * hidden),
               dx = WholeNumbers(4, tokens * hidden, 100);
  TensorOf<TypeParam> table16 = table, positions16 = positions, x(tokens * hidden), dx16 = dx;
  ASSERT_EQ(Launch(EmbeddingForward{tokens, seq, vocab, hidden, true, this->kType},
                   {RefOf(ids), table16.ref(), positions16.ref()}, {x.ref()}),
            "");
  for (bool accumulate : {false, true}) {
    Values dtable = accumulate ? WholeNumbers(5, vocab * hidden, 100) : Values(vocab * hidden),
           dpositions = accumulate ? WholeNumbers(6, seq * hidden, 100) : Values(seq * hidden);
    TensorOf<TypeParam> dtable16 =
                            accumulate ? TensorOf<TypeParam>(dtable) : TensorOf<TypeParam>(vocab * hidden),
                        dpositions16 =
                            accumulate ? TensorOf<TypeParam>(dpositions) : TensorOf<TypeParam>(seq * hidden);
    for (int64_t i = 0; i < tokens * hidden; ++i) {
      const int64_t row = ids[i / hidden] * hidden + i % hidden,
                    position = i / hidden % seq * hidden + i % hidden;
      dtable[row] += dx[i];
      dpositions[position] += dx[i];
      const float sum = static_cast<float>(table[row]) + static_cast<float>(positions[position]);
      ASSERT_EQ(x[i], cpu::FromFloat<TypeParam>(sum));
    }
    const EmbeddingBackward op{tokens, seq, vocab, hidden, true, accumulate, accumulate, this->kType};
    ASSERT_EQ(Launch(op, {RefOf(ids), dx16.ref()}, {dtable16.ref(), dpositions16.ref()}), "");
    EXPECT_EQ(ValuesOf(dtable16), RoundedTo<TypeParam>(dtable));
    EXPECT_EQ(ValuesOf(dpositions16), RoundedTo<TypeParam>(dpositions));
  }
}

TYPED_TEST(SixteenBit, CrossEntropyMatchesTheReferenceAndItsLossIsFp32) {
  for (const auto& [rows, vocab] : {std::pair<int64_t, int64_t>{5, 37}, {4, 5001}}) {
    const Values logits = this->Random(1, rows * vocab, /*scale=*/4.0);
    std::vector<int32_t> targets = RandomIndices(2, rows, vocab);
    TensorOf<TypeParam> logits16 = logits;
    Tensor loss(1);
    ASSERT_EQ(Launch(CrossEntropy{rows, vocab, /*gradient_scale=*/16.0, this->kType},
                     {logits16.ref(), RefOf(targets)}, {loss.ref(), logits16.ref()}),
              "");
    reference::LossResult expected = reference::CrossEntropy(rows, vocab, logits, targets);
    for (double& gradient : expected.gradient) gradient *= 16.0;
    EXPECT_NEAR(loss[0], expected.loss, 1e-6 * expected.loss);
    EXPECT_LT(RelativeError(logits16, expected.gradient), this->kTolerance);
  }
}

TYPED_TEST(SixteenBit, CrossEntropyGradientsStayFiniteForLargeLogits) {
  const int64_t rows = 3, vocab = 1000;
  std::vector<int32_t> targets = RandomIndices(2, rows, vocab);
  TensorOf<TypeParam> logits = RandomValues(1, rows * vocab, /*scale=*/1000.0);
  Tensor loss(1);
  ASSERT_EQ(Launch(CrossEntropy{rows, vocab, 1.0, this->kType}, {logits.ref(), RefOf(targets)},
                   {loss.ref(), logits.ref()}),
            "");
  EXPECT_TRUE(std::isfinite(loss[0]));
  ExpectFinite(logits);
}

TYPED_TEST(SixteenBit, MeanSquaredErrorReadsAnFp32Target) {
  const int64_t rows = 7, columns = 333;
  const Values prediction = this->Random(1, rows * columns), target = RandomValues(2, rows * columns);
  TensorOf<TypeParam> prediction16 = prediction, gradient(rows * columns);
  Tensor target32 = target, loss(1);
  ASSERT_EQ(Launch(MeanSquaredError{rows, columns, /*gradient_scale=*/1024.0, this->kType},
                   {prediction16.ref(), target32.ref()}, {loss.ref(), gradient.ref()}),
            "");
  reference::LossResult expected = reference::MeanSquaredError(prediction, target);
  for (double& value : expected.gradient) value *= 1024.0;
  EXPECT_NEAR(loss[0], expected.loss, 1e-6 * expected.loss);
  EXPECT_LT(RelativeError(gradient, expected.gradient), this->kTolerance);
}

TYPED_TEST(SixteenBit, ScaleAndFillRoundOnce) {
  const Values x = this->Random(1, 101);
  TensorOf<TypeParam> scaled = x, filled(101), zero(101);
  ASSERT_EQ(
      Launch(Scale{.elements = 101, .scale = 0.3, .dtype = this->kType}, {scaled.ref()}, {scaled.ref()}), "");
  ASSERT_EQ(Launch(Fill{.elements = 101, .value = 0.3, .dtype = this->kType}, {}, {filled.ref()}), "");
  ASSERT_EQ(Launch(Fill{.elements = 101, .dtype = this->kType}, {}, {zero.ref()}), "");
  for (size_t i = 0; i < 101; ++i) {
    EXPECT_EQ(scaled[i], cpu::FromFloat<TypeParam>(static_cast<float>(x[i]) * 0.3f));
    EXPECT_EQ(filled[i], cpu::FromFloat<TypeParam>(0.3f));
    EXPECT_EQ(cpu::ToFloat(zero[i]), 0.0f);
  }
}

}  // namespace
}  // namespace windtunnel
