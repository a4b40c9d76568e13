#include "runtime/cpu/embedding.h"

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

constexpr int64_t kTokens = 15, kSeq = 5, kVocab = 7, kHidden = 19;

TEST(EmbeddingKernel, AddsTheTokensRowAndThePositionsRow) {
  const Values table = RandomValues(1, kVocab * kHidden), positions = RandomValues(2, kSeq * kHidden);
  std::vector<int32_t> ids = RandomIndices(3, kTokens, kVocab);
  Tensor table32 = table, positions32 = positions, with(kTokens * kHidden), without(kTokens * kHidden);
  ASSERT_EQ(Launch(EmbeddingForward{kTokens, kSeq, kVocab, kHidden, true},
                   {RefOf(ids), table32.ref(), positions32.ref()}, {with.ref()}),
            "");
  ASSERT_EQ(Launch(EmbeddingForward{kTokens, kSeq, kVocab, kHidden, false}, {RefOf(ids), table32.ref()},
                   {without.ref()}),
            "");
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < kHidden; ++i) {
      const float token = table32[ids[t] * kHidden + i];
      EXPECT_EQ(without[t * kHidden + i], token);
      EXPECT_EQ(with[t * kHidden + i], token + positions32[t % kSeq * kHidden + i]);
    }
  }
}

struct AccumulateFlags {
  bool table, positions;
};
class EmbeddingBackwardKernel : public testing::TestWithParam<AccumulateFlags> {};
INSTANTIATE_TEST_SUITE_P(Accumulate, EmbeddingBackwardKernel,
                         testing::Values(AccumulateFlags{false, false}, AccumulateFlags{true, false},
                                         AccumulateFlags{false, true}, AccumulateFlags{true, true}));

TEST_P(EmbeddingBackwardKernel, SumsTheGradientsOfEveryUseOfARow) {
  const Values dx = RandomValues(1, kTokens * kHidden);
  std::vector<int32_t> ids = RandomIndices(2, kTokens, kVocab);
  ids[3] = ids[4];  // the same token twice in a row
  Values dtable = GetParam().table ? RandomValues(3, kVocab * kHidden) : Values(kVocab * kHidden);
  Values dpositions = GetParam().positions ? RandomValues(4, kSeq * kHidden) : Values(kSeq * kHidden);
  Tensor dx32 = dx, dtable32 = GetParam().table ? Tensor(dtable) : Tensor(kVocab * kHidden);
  Tensor dpositions32 = GetParam().positions ? Tensor(dpositions) : Tensor(kSeq * kHidden);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < kHidden; ++i) {
      dtable[ids[t] * kHidden + i] += dx[t * kHidden + i];
      dpositions[t % kSeq * kHidden + i] += dx[t * kHidden + i];
    }
  }
  const EmbeddingBackward op{kTokens, kSeq, kVocab, kHidden, true, GetParam().table, GetParam().positions};
  ASSERT_EQ(Launch(op, {RefOf(ids), dx32.ref()}, {dtable32.ref(), dpositions32.ref()}), "");
  EXPECT_LT(RelativeError(dtable32, dtable), 1e-6);
  EXPECT_LT(RelativeError(dpositions32, dpositions), 1e-6);
}

TEST(EmbeddingKernel, RefusesATokenOutsideTheVocabulary) {
  std::vector<int32_t> ids = {0, 7};
  Tensor table(kVocab * kHidden), x(2 * kHidden);
  const std::string error =
      Launch(EmbeddingForward{2, 2, kVocab, kHidden, false}, {RefOf(ids), table.ref()}, {x.ref()});
  EXPECT_NE(error.find("token id 7 at position 1"), std::string::npos) << error;
}

}  // namespace
}  // namespace windtunnel
