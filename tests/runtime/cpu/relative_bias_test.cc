// Biases of scores by distance: which bucket a distance has, what attention makes of biases, and their
// gradients.
#include <gtest/gtest.h>

#include <numeric>

#include "plan/op.h"
#include "plan/relative_buckets.h"
#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using reference::AttentionShape;
using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::Values;

// T5Attention._relative_position_bucket of transformers, for 32 buckets and a distance of 128.
TEST(RelativeBuckets, AreThoseOfT5) {
  const RelativeBuckets both(true), before(false);
  EXPECT_EQ(before.At(0), 0);
  EXPECT_EQ(before.At(-15), 15);
  EXPECT_EQ(before.At(-16), 16);
  EXPECT_EQ(before.At(-18), 16);
  EXPECT_EQ(before.At(-19), 17);
  EXPECT_EQ(before.At(-112), 30);
  EXPECT_EQ(before.At(-113), 31);
  EXPECT_EQ(before.At(-5000), 31);
  EXPECT_EQ(before.At(3), 0);  // not seen
  EXPECT_EQ(both.At(0), 0);
  EXPECT_EQ(both.At(-8), 8);
  EXPECT_EQ(both.At(-11), 8);
  EXPECT_EQ(both.At(-12), 9);
  EXPECT_EQ(both.At(-1000), 15);
  EXPECT_EQ(both.At(1), 17);
  EXPECT_EQ(both.At(8), 24);
  EXPECT_EQ(both.At(91), 31);
  EXPECT_EQ(both.At(90), 30);
}

class RelativeBiasKernel : public testing::TestWithParam<std::tuple<int64_t, bool>> {
 protected:
  static constexpr int64_t kHeads = 3, kBatch = 2, kBuckets = RelativeBuckets::kCount;
  const int64_t seq = std::get<0>(GetParam());
  const bool causal = std::get<1>(GetParam());
  const RelativeBuckets buckets = RelativeBuckets(!causal);
};
INSTANTIATE_TEST_SUITE_P(Sequences, RelativeBiasKernel,
                         testing::Combine(testing::Values(1, 2, 17, 140), testing::Bool()));

TEST_P(RelativeBiasKernel, HasTheTablesValueOfEachDistance) {
  Tensor table = RandomValues(1, kHeads * kBuckets), bias(kHeads * seq * seq);
  ASSERT_EQ(Launch(RelativeBias{kHeads, seq, causal}, {table.ref()}, {bias.ref()}), "");
  for (int64_t head = 0; head < kHeads; ++head)
    for (int64_t query = 0; query < seq; ++query)
      for (int64_t key = 0; key < seq; ++key)
        ASSERT_EQ(bias[(head * seq + query) * seq + key], table[head * kBuckets + buckets.At(key - query)]);
}

// Each gradient of a score that a query sees goes to the bias that was added to it.
TEST_P(RelativeBiasKernel, BackwardSumsByBucket) {
  const int64_t square = kHeads * seq * seq;
  const Values dscores = RandomValues(2, kBatch * square);
  Values expected(kHeads * kBuckets);
  for (int64_t i = 0; i < kBatch * square; ++i) {
    const int64_t key = i % seq, query = i / seq % seq, head = i / (seq * seq) % kHeads;
    if (key <= query || !causal) expected[head * kBuckets + buckets.At(key - query)] += dscores[i];
  }
  Tensor dscores32 = dscores, dtable(kHeads * kBuckets);
  RelativeBiasBackward op{kBatch, kHeads, seq, causal};
  ASSERT_EQ(Launch(op, {dscores32.ref()}, {dtable.ref()}), "");
  EXPECT_LT(RelativeError(dtable, expected), 1e-5);
  op.accumulate = true;
  ASSERT_EQ(Launch(op, {dscores32.ref()}, {dtable.ref()}), "");
  for (double& value : expected) value *= 2;
  EXPECT_LT(RelativeError(dtable, expected), 1e-5);
}

TEST_P(RelativeBiasKernel, AttentionAddsBiasesToScores) {
  AttentionShape s{.batch = kBatch, .seq = seq, .heads = kHeads, .kv_heads = kHeads, .head_dim = 8};
  s.causal = causal;
  const Values biases = RandomValues(3, kHeads * seq * seq), qkv = RandomValues(1, s.qkv_elements());
  s.bias = [&](int64_t head, int64_t query, int64_t key) { return biases[(head * seq + query) * seq + key]; };
  const reference::AttentionResult expected = reference::Attention(s, qkv);
  AttentionForward op{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, AttentionKind::kEager};
  op.causal = causal;
  op.biased = true;
  const int64_t squares = kBatch * kHeads * seq * seq;
  Tensor bias = biases, qkv32 = qkv, out(s.out_elements()), probabilities(squares);
  Tensor workspace(AttentionWorkspaceElements(seq, true));
  ASSERT_EQ(Launch(op, {qkv32.ref(), bias.ref()}, {out.ref(), probabilities.ref(), workspace.ref()}), "");
  EXPECT_LT(RelativeError(out, expected.out), 2e-6);
  EXPECT_LT(RelativeError(probabilities, expected.probabilities), 2e-6);

  AttentionBackward backward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, AttentionKind::kEager};
  backward.causal = causal;
  backward.biased = true;
  const Values dout = RandomValues(2, s.out_elements());
  Tensor dout32 = dout, dqkv(s.qkv_elements()), dscores(squares);
  ASSERT_EQ(Launch(backward, {dout32.ref(), qkv32.ref(), out.ref(), probabilities.ref()},
                   {dqkv.ref(), dscores.ref(), workspace.ref()}),
            "");
  Values of_scores;
  const Values gradients = reference::AttentionBackward(s, dout, qkv, &of_scores);
  EXPECT_LT(RelativeError(dqkv, gradients), 5e-6);
  if (seq > 1) {
    EXPECT_LT(RelativeError(dscores, of_scores), 5e-6);
  }
}

}  // namespace
}  // namespace windtunnel
