// Kernels over a tensor rank's part, in every element type. The ranks' results, combined as the collectives
// between the kernels do, are those of the kernel over the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/cpu/initialize.h"
#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::BFloat16;
using test::Float16;
using test::Launch;
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

KernelContext Rank(int rank, int ranks) { return {.seed = 5, .tensor = {rank, ranks}}; }

// Columns [first, first + count) of a matrix.
Values Columns(const Values& matrix, int64_t rows, int64_t columns, int64_t first, int64_t count) {
  Values part;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t j = 0; j < count; ++j) part.push_back(matrix[row * columns + first + j]);
  }
  return part;
}

template <typename T>
class TensorParallel : public testing::Test {
 protected:
  static constexpr DType kType = TypeOf<T>();
  // One unit in the last place of 24, 8 or 11 significant bits; fp32's sums have some more roundings.
  static constexpr double kTolerance = kType == DType::kFloat32    ? 1e-6
                                       : kType == DType::kBFloat16 ? 0x1p-8
                                                                   : 0x1p-11;
};
using Types = testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(TensorParallel, Types);

// ---- the loss

// One rank's columns of the logits, and its rows' maximum, target and sum.
template <typename T>
struct VocabPart {
  TensorOf<T> logits;
  Tensor maximum, target, sum, loss;
};

void MaximiseInto(std::vector<float>& all, const std::vector<float>& one) {
  for (size_t i = 0; i < all.size(); ++i) all[i] = std::max(all[i], one[i]);
}
void AddInto(std::vector<float>& all, const std::vector<float>& one) {
  for (size_t i = 0; i < all.size(); ++i) all[i] += one[i];
}

// The three passes over `ranks` parts, with the all-reduces between them.
template <typename T>
std::vector<VocabPart<T>> LossInParts(int ranks, int64_t rows, int64_t vocab, const Values& logits,
                                      std::vector<int32_t> targets, double gradient_scale) {
  const DType type = TypeOf<T>();
  const int64_t part = vocab / ranks;
  std::vector<VocabPart<T>> parts;
  Tensor maximum(Values(rows, -INFINITY)), target(Values(rows, 0.0)), sum(Values(rows, 0.0));
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back({Columns(logits, rows, vocab, rank * part, part), Tensor(rows), Tensor(rows),
                     Tensor(rows), Tensor(1)});
    VocabPart<T>& own = parts.back();
    EXPECT_EQ(Launch(VocabParallelMaximum{rows, part, type}, {own.logits.ref()}, {own.maximum.ref()}), "");
    MaximiseInto(maximum, own.maximum);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    VocabPart<T>& own = parts[rank];
    EXPECT_EQ(Launch(VocabParallelSums{rows, part, type}, {own.logits.ref(), RefOf(targets), maximum.ref()},
                     {own.target.ref(), own.sum.ref()}, Rank(rank, ranks)),
              "");
    AddInto(target, own.target);
    AddInto(sum, own.sum);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    VocabPart<T>& own = parts[rank];
    EXPECT_EQ(Launch(VocabParallelLoss{rows, part, gradient_scale, type},
                     {own.logits.ref(), RefOf(targets), maximum.ref(), target.ref(), sum.ref()},
                     {own.loss.ref(), own.logits.ref()}, Rank(rank, ranks)),
              "");
  }
  return parts;
}

TYPED_TEST(TensorParallel, CrossEntropyInPartsIsTheReferences) {
  for (const auto& [ranks, rows, vocab] : {std::array<int64_t, 3>{1, 3, 37}, {2, 5, 64}, {4, 3, 10'004}}) {
    const Values logits = RoundedTo<TypeParam>(RandomValues(1, rows * vocab, /*scale=*/4.0));
    const std::vector<int32_t> targets = RandomIndices(2, rows, vocab);
    const reference::LossResult expected = reference::CrossEntropy(rows, vocab, logits, targets);
    Values scaled = expected.gradient;
    for (double& gradient : scaled) gradient *= 16.0;
    const auto parts = LossInParts<TypeParam>(static_cast<int>(ranks), rows, vocab, logits, targets, 16.0);
    const int64_t part = vocab / ranks;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      EXPECT_NEAR(parts[rank].loss[0], expected.loss, 1e-6 * expected.loss);
      EXPECT_EQ(parts[rank].loss[0], parts[0].loss[0]) << "the same bits on every rank";
#ifdef NDEBUG
      const double tolerance = this->kTolerance;
#else  // sanitizers' builds add up 10,004 columns one after the other, not in the lanes of vectors
      const double tolerance = 2 * this->kTolerance;
#endif
      EXPECT_LT(RelativeError(parts[rank].logits, Columns(scaled, rows, vocab, rank * part, part)),
                tolerance);
    }
  }
}

TYPED_TEST(TensorParallel, CrossEntropySurvivesLogitsOfWhichOneRankHasTheLargest) {
  const int64_t rows = 1, vocab = 2000;
  Values logits(vocab);
  for (int64_t j = 0; j < vocab; ++j) logits[j] = static_cast<double>(j);
  logits = RoundedTo<TypeParam>(logits);
  const std::vector<int32_t> targets = {static_cast<int32_t>(vocab - 1)};
  const reference::LossResult expected = reference::CrossEntropy(rows, vocab, logits, targets);
  for (const auto& part : LossInParts<TypeParam>(2, rows, vocab, logits, targets, 1.0))
    EXPECT_NEAR(part.loss[0], expected.loss, 1e-4);
}

TEST(VocabParallelLoss, RefusesATargetOutsideTheWholeVocabularyOnly) {
  std::vector<int32_t> last = {11}, beyond = {12};
  Tensor logits(6), maximum = Values{1}, target(1), sum(1);
  const auto launch = [&](std::vector<int32_t>& targets) {
    return Launch(VocabParallelSums{1, 6}, {logits.ref(), RefOf(targets), maximum.ref()},
                  {target.ref(), sum.ref()}, Rank(0, 2));
  };
  EXPECT_EQ(launch(last), "");
  EXPECT_NE(launch(beyond).find("target 12"), std::string::npos) << launch(beyond);
}

// ---- the embedding

TYPED_TEST(TensorParallel, EmbeddingsOfThePartsOfATableAddUpToTheWholes) {
  constexpr int64_t kTokens = 15, kSeq = 5, kVocab = 8, kHidden = 19;
  constexpr int kRanks = 4;
  const Values table = RandomValues(1, kVocab * kHidden), positions = RandomValues(2, kSeq * kHidden);
  std::vector<int32_t> ids = RandomIndices(3, kTokens, kVocab);
  EmbeddingForward op{kTokens, kSeq, kVocab, kHidden, true, this->kType};
  TensorOf<TypeParam> whole_table = table, at = positions, whole(kTokens * kHidden);
  ASSERT_EQ(Launch(op, {RefOf(ids), whole_table.ref(), at.ref()}, {whole.ref()}), "");
  op.vocab = kVocab / kRanks;
  op.vocab_parallel = true;
  Values sum(kTokens * kHidden);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto begin = table.begin() + rank * op.vocab * kHidden;
    TensorOf<TypeParam> part = Values(begin, begin + op.vocab * kHidden), x(kTokens * kHidden);
    ASSERT_EQ(Launch(op, {RefOf(ids), part.ref(), at.ref()}, {x.ref()}, Rank(rank, kRanks)), "");
    sum = test::Plus(sum, ValuesOf(x));
  }
  EXPECT_EQ(sum, ValuesOf(whole));  // for each token, all but one rank's row are zero
}

TYPED_TEST(TensorParallel, GradientsOfThePartsOfATableAreThePartsOfTheWholes) {
  constexpr int64_t kTokens = 40, kSeq = 5, kVocab = 8, kHidden = 19, kPart = 4;
  std::vector<int32_t> ids = RandomIndices(3, kTokens, kVocab);
  for (bool accumulate : {false, true}) {
    EmbeddingBackward op{kTokens, kSeq, kVocab, kHidden, true, accumulate, accumulate, this->kType};
    TensorOf<TypeParam> dx = RandomValues(1, kTokens * kHidden), whole = RandomValues(2, kVocab * kHidden),
                        before = whole, whole_positions = RandomValues(4, kSeq * kHidden);
    const TensorOf<TypeParam> positions_before = whole_positions;
    ASSERT_EQ(Launch(op, {RefOf(ids), dx.ref()}, {whole.ref(), whole_positions.ref()}), "");
    op.vocab = kPart;
    op.vocab_parallel = true;
    for (int rank = 0; rank < 2; ++rank) {
      const int64_t begin = rank * kPart * kHidden, end = begin + kPart * kHidden;
      const Values had = ValuesOf(before), expected = ValuesOf(whole);
      TensorOf<TypeParam> part = Values(had.begin() + begin, had.begin() + end), positions = positions_before;
      ASSERT_EQ(Launch(op, {RefOf(ids), dx.ref()}, {part.ref(), positions.ref()}, Rank(rank, 2)), "");
      EXPECT_EQ(ValuesOf(part), Values(expected.begin() + begin, expected.begin() + end));
      EXPECT_EQ(positions, whole_positions);
    }
  }
}

// ---- biases, copies, norms

TYPED_TEST(TensorParallel, AddBiasAddsItToEveryRowAndRoundsOnce) {
  const int64_t rows = 7, columns = 37;
  const Values y = RoundedTo<TypeParam>(RandomValues(1, rows * columns)),
               bias = RoundedTo<TypeParam>(RandomValues(2, columns));
  Values expected = y;
  for (int64_t i = 0; i < rows * columns; ++i) expected[i] += bias[i % columns];
  TensorOf<TypeParam> out = y, added = bias;
  ASSERT_EQ(Launch(AddBias{rows, columns, this->kType}, {out.ref(), added.ref()}, {out.ref()}), "");
  EXPECT_EQ(ValuesOf(out), RoundedTo<TypeParam>(expected));
}

TYPED_TEST(TensorParallel, CopyTensorsCopiesWhatThereIsOfEach) {
  TensorOf<TypeParam> a = RandomValues(1, 5), b = RandomValues(2, 7), all(12);
  TensorRef none = all.ref();
  none.elements = 0;
  ASSERT_EQ(Launch(CopyTensors{12, 3, this->kType}, {a.ref(), none, b.ref()},
                   {{all.data(), 5}, none, {all.data() + 5, 7}}),
            "");
  EXPECT_TRUE(std::equal(a.begin(), a.end(), all.begin()) && std::equal(b.begin(), b.end(), all.begin() + 5));
}

TEST(GradientNorm, CountsAShareOfWhatOtherRanksHaveToo) {
  Tensor own = Values{3}, shared = Values{4, 2}, sum(1);
  // 9 + (16 + 4) / 4.
  ASSERT_EQ(Launch(GradientNorm{.elements = 3, .tensors = 2, .squared = true, .replicas = {1, 4}},
                   {own.ref(), shared.ref()}, {sum.ref()}),
            "");
  EXPECT_EQ(sum[0], 14.0f);
}

// ---- first values

// A tensor of 12 rows (queries 8, keys 2, values 2) and 6 columns on two ranks, split by rows in blocks and
// by columns.
TEST(InitializePart, MakesTheElementsOfTheWholeThatTheRankHas) {
  constexpr int64_t kColumns = 6, kElements = 12 * kColumns;
  const TensorPart rows = {{0, 4 * kColumns}, {8 * kColumns, kColumns}, {10 * kColumns, kColumns}};
  const TensorPart columns = {{0, 3, 12, kColumns}};
  const int64_t rows_of[2][6] = {{0, 1, 2, 3, 8, 10}, {4, 5, 6, 7, 9, 11}};
  using Distribution = InitializeParameter::Distribution;
  for (Distribution distribution : {Distribution::kNormal, Distribution::kUniform, Distribution::kZeros}) {
    Tensor whole(kElements);
    ASSERT_EQ(Launch(InitializeParameter{distribution, kElements, 0.1, 3}, {}, {whole.ref()}, Rank(0, 2)),
              "");
    for (int rank = 0; rank < 2; ++rank) {
      Tensor by_rows(kElements / 2), by_columns(kElements / 2);
      InitializeParameter op{distribution, kElements / 2, 0.1, 3, rows};
      ASSERT_EQ(Launch(op, {}, {by_rows.ref()}, Rank(rank, 2)), "");
      op.part = columns;
      ASSERT_EQ(Launch(op, {}, {by_columns.ref()}, Rank(rank, 2)), "");
      for (int64_t i = 0; i < kElements / 2; ++i) {
        EXPECT_EQ(by_rows[i], whole[rows_of[rank][i / kColumns] * kColumns + i % kColumns]);
        EXPECT_EQ(by_columns[i], whole[i / 3 * kColumns + rank * 3 + i % 3]);
      }
    }
  }
}

}  // namespace
}  // namespace windtunnel
