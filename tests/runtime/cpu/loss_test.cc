#include "runtime/cpu/loss.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomIndices;
using test::RandomValues;
using test::RefOf;
using test::RelativeError;
using test::Tensor;
using test::Values;

Values Times(Values values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

// Vocabularies within one block of the softmax, of several blocks, and larger than 256 blocks of the smallest
// size.
TEST(CrossEntropyKernel, MatchesTheReferenceAndScalesTheGradient) {
  for (const auto& [rows, vocab] :
       {std::pair<int64_t, int64_t>{1, 2}, {5, 37}, {3, 1024}, {4, 5001}, {1, 300'001}}) {
    const Values logits = RandomValues(1, rows * vocab, /*scale=*/4.0);
    std::vector<int32_t> targets = RandomIndices(2, rows, vocab);
    Tensor logits32 = logits, loss(1);
    ASSERT_EQ(Launch(CrossEntropy{rows, vocab, /*gradient_scale=*/0.25}, {logits32.ref(), RefOf(targets)},
                     {loss.ref(), logits32.ref()}),
              "");
    const reference::LossResult expected = reference::CrossEntropy(rows, vocab, logits, targets);
    EXPECT_NEAR(loss[0], expected.loss, 1e-6 * expected.loss);
    EXPECT_LT(RelativeError(logits32, Times(expected.gradient, 0.25)), 1e-6);
  }
}

// Without the loss scale nothing would be left of an fp16 gradient: 1e-8 is less than half of fp16's smallest
// number.
TEST(CrossEntropyKernel, TimesTheLossScaleBeforeTheGradientIsRounded) {
  std::vector<int32_t> targets = {0};
  Tensor scale = Values{65536, 0, 0}, plain = Values{0, 0}, scaled = Values{0, 0}, loss(1), same(1);
  CrossEntropy op{1, 2, /*gradient_scale=*/1e-8};
  ASSERT_EQ(Launch(op, {plain.ref(), RefOf(targets)}, {loss.ref(), plain.ref()}), "");
  op.scaled = true;
  ASSERT_EQ(Launch(op, {scaled.ref(), RefOf(targets), scale.ref()}, {same.ref(), scaled.ref()}), "");
  EXPECT_EQ(same[0], loss[0]);
  EXPECT_EQ(scaled[1], 65536 * plain[1]);
}

TEST(CrossEntropyKernel, SurvivesLogitsThatGrowAlongTheRow) {
  const int64_t vocab = 3000;
  Values logits(vocab);
  for (int64_t j = 0; j < vocab; ++j) logits[j] = static_cast<float>(j);  // block maxima 1000 apart
  std::vector<int32_t> targets = {static_cast<int32_t>(vocab - 1)};
  Tensor logits32 = logits, loss(1);
  ASSERT_EQ(Launch(CrossEntropy{1, vocab}, {logits32.ref(), RefOf(targets)}, {loss.ref(), logits32.ref()}),
            "");
  const reference::LossResult expected = reference::CrossEntropy(1, vocab, logits, targets);
  EXPECT_NEAR(loss[0], expected.loss, 1e-4);  // 0.459 out of a difference of logits near 3000
  EXPECT_LT(RelativeError(logits32, expected.gradient), 1e-5);
}

TEST(CrossEntropyKernel, ADivergedRowGivesNan) {
  std::vector<int32_t> targets = {0};
  Tensor logits = Values{1.0, std::nan(""), 2.0}, loss(1);
  ASSERT_EQ(Launch(CrossEntropy{1, 3}, {logits.ref(), RefOf(targets)}, {loss.ref(), logits.ref()}), "");
  EXPECT_TRUE(std::isnan(loss[0]));
}

TEST(CrossEntropyKernel, RefusesATargetOutsideTheVocabulary) {
  std::vector<int32_t> targets = {-1};
  Tensor logits(3), loss(1);
  const std::string error =
      Launch(CrossEntropy{1, 3}, {logits.ref(), RefOf(targets)}, {loss.ref(), logits.ref()});
  EXPECT_NE(error.find("target -1"), std::string::npos) << error;
}

// The mean is over the share of rows that have a target (`counted`), on whichever rank those rows are.
TEST(CrossEntropyKernel, RowsWithoutATargetHaveNoLossAndNoGradient) {
  const int64_t vocab = 7;
  const Values logits = RandomValues(1, 4 * vocab, /*scale=*/4.0);
  const std::vector<int32_t> known = RandomIndices(2, 3, vocab);
  std::vector<int32_t> targets = {known[0], kNoToken, known[1], known[2]};
  Values others(logits.begin(), logits.begin() + vocab);
  others.insert(others.end(), logits.begin() + 2 * vocab, logits.end());
  Tensor logits32 = logits, loss(1);
  CrossEntropy op{4, vocab};
  op.counted = 0.75;
  op.skips = true;
  ASSERT_EQ(Launch(op, {logits32.ref(), RefOf(targets)}, {loss.ref(), logits32.ref()}), "");
  reference::LossResult expected = reference::CrossEntropy(3, vocab, others, known);
  EXPECT_NEAR(loss[0], expected.loss, 1e-6 * expected.loss);
  expected.gradient.insert(expected.gradient.begin() + vocab, vocab, 0.0);
  EXPECT_LT(RelativeError(logits32, expected.gradient), 1e-6);
}

TEST(MeanSquaredErrorKernel, MatchesTheReferenceAndScalesTheGradient) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {20, 10}, {7, 333}}) {
    const Values prediction = RandomValues(1, rows * columns), target = RandomValues(2, rows * columns);
    Tensor prediction32 = prediction, target32 = target, loss(1), gradient(rows * columns);
    ASSERT_EQ(Launch(MeanSquaredError{rows, columns, /*gradient_scale=*/0.5},
                     {prediction32.ref(), target32.ref()}, {loss.ref(), gradient.ref()}),
              "");
    const reference::LossResult expected = reference::MeanSquaredError(prediction, target);
    EXPECT_NEAR(loss[0], expected.loss, 1e-6 * expected.loss);
    EXPECT_LT(RelativeError(gradient, Times(expected.gradient, 0.5)), 1e-6);
  }
}

}  // namespace
}  // namespace windtunnel
