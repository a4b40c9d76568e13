// Heads are joined from latents and split again. Attention with values narrower than its heads is attention
// with those values padded by zeros.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/op.h"
#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::Values;

double Dot(const Tensor& a, const Tensor& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(LatentHeads, LieAsAttentionTakesThem) {
  // One token at position 0, where RoPE rotates by no angle. Two heads of three plain and two rotated
  // columns, and values of two columns.
  const JoinLatentHeads join{.batch = 1, .seq = 1, .heads = 2, .head_dim = 5, .rope_dim = 2, .value_dim = 2};
  Tensor q = Values{0, 1, 2, 3, 4, 10, 11, 12, 13, 14}, key = Values{90, 91};
  Tensor kv = Values{20, 21, 22, 30, 31, 40, 41, 42, 50, 51}, qkv(24);
  ASSERT_EQ(Launch(join, {q.ref(), kv.ref(), key.ref()}, {qkv.ref()}), "");
  EXPECT_EQ(test::ValuesOf(qkv), (Values{0,  1,  2,  3,  4,  10, 11, 12, 13, 14, 20, 21,
                                         22, 90, 91, 40, 41, 42, 90, 91, 30, 31, 50, 51}));
}

// Joining is linear: <dqkv, J x> = <J^T dqkv, x>.
TEST(LatentHeads, BackwardIsTheTranspose) {
  const JoinLatentHeads join{
      .batch = 2, .seq = 7, .heads = 3, .head_dim = 10, .rope_dim = 4, .value_dim = 5, .context = {2, true}};
  JoinLatentHeads apart = join;
  apart.backward = true;
  Tensor q = RandomValues(1, 14 * 30), kv = RandomValues(2, 14 * 33), key = RandomValues(3, 14 * 4);
  Tensor dqkv = RandomValues(4, 14 * 75), qkv(14 * 75), dq(14 * 30), dkv(14 * 33), dkey(14 * 4);
  ASSERT_EQ(Launch(join, {q.ref(), kv.ref(), key.ref()}, {qkv.ref()}), "");
  ASSERT_EQ(Launch(apart, {dqkv.ref()}, {dq.ref(), dkv.ref(), dkey.ref()}), "");
  EXPECT_NEAR(Dot(dqkv, qkv), Dot(dq, q) + Dot(dkv, kv) + Dot(dkey, key), 1e-3);
}

// Takes rows of `columns` elements, of which the last `values` * `heads` are the heads' values, and pads each
// head's values to `head_dim`.
Values Padded(const Values& rows, int64_t columns, int64_t heads, int64_t values, int64_t head_dim) {
  Values padded;
  for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(columns)) {
    const auto first = rows.begin() + static_cast<int64_t>(row), of_values = first + columns - heads * values;
    padded.insert(padded.end(), first, of_values);
    for (int64_t head = 0; head < heads; ++head) {
      padded.insert(padded.end(), of_values + head * values, of_values + (head + 1) * values);
      padded.insert(padded.end(), static_cast<size_t>(head_dim - values), 0.0);
    }
  }
  return padded;
}

class NarrowValues : public testing::TestWithParam<AttentionKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, NarrowValues, testing::Values(AttentionKind::kFlash, AttentionKind::kEager),
                         [](const auto& kind) {
                           return kind.param == AttentionKind::kFlash ? "Flash" : "Eager";
                         });

TEST_P(NarrowValues, AreValuesPaddedByZeros) {
  constexpr int64_t kBatch = 2, kSeq = 70, kHeads = 4, kKvHeads = 2, kDim = 12, kValues = 6;
  constexpr int64_t kTokens = kBatch * kSeq, kPacked = (kHeads + kKvHeads) * kDim + kKvHeads * kValues,
                    kWide = (kHeads + 2 * kKvHeads) * kDim;
  const int64_t saved_elements = kBatch * kHeads * kSeq * (GetParam() == AttentionKind::kEager ? kSeq : 1);
  const Values qkv_values = RandomValues(1, kTokens * kPacked),
               dout_values = RandomValues(2, kTokens * kHeads * kValues);
  Tensor workspace(AttentionWorkspaceElements(kSeq, true));
  struct Results {
    Values out, dqkv;
  };
  const auto run = [&](Tensor qkv, Tensor dout, int64_t value_dim) {
    const int64_t of_out = kTokens * kHeads * (value_dim > 0 ? value_dim : kDim);
    Tensor out(of_out), saved(saved_elements), dqkv(static_cast<int64_t>(qkv.size()));
    AttentionForward forward{kBatch, kSeq, kHeads, kKvHeads, kDim, GetParam()};
    AttentionBackward backward{kBatch, kSeq, kHeads, kKvHeads, kDim, GetParam()};
    forward.value_dim = backward.value_dim = value_dim;
    EXPECT_EQ(Launch(forward, {qkv.ref()}, {out.ref(), saved.ref(), workspace.ref()}), "");
    EXPECT_EQ(
        Launch(backward, {dout.ref(), qkv.ref(), out.ref(), saved.ref()}, {dqkv.ref(), workspace.ref()}), "");
    return Results{test::ValuesOf(out), test::ValuesOf(dqkv)};
  };
  const Results narrow = run(qkv_values, dout_values, kValues);
  const Results wide = run(Padded(qkv_values, kPacked, kKvHeads, kValues, kDim),
                           Padded(dout_values, kHeads * kValues, kHeads, kValues, kDim), 0);
  EXPECT_LT(RelativeError(Tensor(Padded(narrow.out, kHeads * kValues, kHeads, kValues, kDim)), wide.out),
            1e-6);
  EXPECT_LT(RelativeError(Tensor(Padded(narrow.dqkv, kPacked, kKvHeads, kValues, kDim)), wide.dqkv), 1e-6);
  static_assert(kWide == kPacked + kKvHeads * (kDim - kValues));
}

}  // namespace
}  // namespace windtunnel
