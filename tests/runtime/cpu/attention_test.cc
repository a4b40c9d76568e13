#include "runtime/cpu/attention.h"

#include <gtest/gtest.h>

#include "runtime/dropout_mask.h"
#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using reference::AttentionShape;
using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::Values;

struct AttentionCase {
  AttentionKind kind;
  AttentionShape shape;
};

class AttentionKernel : public testing::TestWithParam<AttentionCase> {
 protected:
  const AttentionShape s = GetParam().shape;
  const AttentionKind kind = GetParam().kind;
  const Values qkv = RandomValues(1, s.qkv_elements());
  const reference::AttentionResult expected = reference::Attention(s, qkv);

  Tensor qkv32 = qkv;
  Tensor out = Tensor(s.out_elements());
  Tensor saved = Tensor(s.batch * s.heads * s.seq * (kind == AttentionKind::kEager ? s.seq : 1));
  Tensor workspace = Tensor(AttentionWorkspaceElements(s.seq, /*backward=*/true));

  std::string Forward() {
    AttentionForward op{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind};
    op.window = s.window;
    op.causal = s.causal;
    return Launch(op, {qkv32.ref()}, {out.ref(), saved.ref(), workspace.ref()});
  }
};

std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases;
  for (AttentionKind kind : {AttentionKind::kFlash, AttentionKind::kEager}) {
    for (const AttentionShape& shape : {
             AttentionShape{
                 .batch = 2, .seq = 2 * kAttentionBlock, .heads = 2, .kv_heads = 2, .head_dim = 16},
             AttentionShape{.batch = 1, .seq = kAttentionBlock + 5, .heads = 4, .kv_heads = 2, .head_dim = 8},
             AttentionShape{.batch = 2, .seq = 17, .heads = 6, .kv_heads = 1, .head_dim = 5},
             AttentionShape{.batch = 1, .seq = 1, .heads = 3, .kv_heads = 3, .head_dim = 4},
             AttentionShape{
                 .batch = 1, .seq = 3 * kAttentionBlock - 1, .heads = 1, .kv_heads = 1, .head_dim = 32},
             // Windows of less than a block, of one exactly, of more, and of one token.
             AttentionShape{.batch = 2,
             .seq = 3 * kAttentionBlock - 1,
             .heads = 4,
             .kv_heads = 2,
             .head_dim = 8,
             .window = 20},
             AttentionShape{.batch = 1,
             .seq = 4 * kAttentionBlock,
             .heads = 1,
             .kv_heads = 1,
             .head_dim = 16,
             .window = kAttentionBlock},
             AttentionShape{.batch = 1,
             .seq = 3 * kAttentionBlock + 7,
             .heads = 2,
             .kv_heads = 1,
             .head_dim = 8,
             .window = kAttentionBlock + 33},
             AttentionShape{.batch = 1, .seq = 70, .heads = 2, .kv_heads = 2, .head_dim = 8, .window = 1},
             AttentionShape{.batch = 2,
             .seq = 2 * kAttentionBlock + 11,
             .heads = 4,
             .kv_heads = 2,
             .head_dim = 8,
             .causal = false},
             AttentionShape{.batch = 1, .seq = 19, .heads = 3, .kv_heads = 1, .head_dim = 5, .causal = false},
         }) {
      cases.push_back({kind, shape});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionKernel, testing::ValuesIn(Cases()));

TEST_P(AttentionKernel, ForwardMatchesTheReference) {
  ASSERT_EQ(Forward(), "");
  EXPECT_LT(RelativeError(out, expected.out), 2e-6);
  EXPECT_LT(
      RelativeError(saved, kind == AttentionKind::kEager ? expected.probabilities : expected.log_sum_exp),
      2e-6);
}

TEST_P(AttentionKernel, BackwardMatchesTheReference) {
  ASSERT_EQ(Forward(), "");
  const Values dout = RandomValues(2, s.out_elements());
  Tensor dout32 = dout, dqkv(s.qkv_elements());
  AttentionBackward op{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind};
  op.window = s.window;
  op.causal = s.causal;
  ASSERT_EQ(Launch(op, {dout32.ref(), qkv32.ref(), out.ref(), saved.ref()}, {dqkv.ref(), workspace.ref()}),
            "");
  EXPECT_LT(RelativeError(dqkv, reference::AttentionBackward(s, dout, qkv)), 5e-6);
}

TEST_P(AttentionKernel, EagerProbabilitiesOfWhatIsNotSeenAreZero) {
  if (kind != AttentionKind::kEager) GTEST_SKIP() << "flash keeps no probabilities";
  ASSERT_EQ(Forward(), "");
  for (int64_t row = 0; row < s.batch * s.heads * s.seq; ++row) {
    const int64_t query = row % s.seq;
    for (int64_t key = s.EndOfKeys(query); key < s.seq; ++key) ASSERT_EQ(saved[row * s.seq + key], 0.0f);
    for (int64_t key = 0; key < s.FirstKey(query); ++key) ASSERT_EQ(saved[row * s.seq + key], 0.0f);
  }
}

// The rank's heads are the second half of the tensor rank's, which are the last third of the whole model's.
TEST_P(AttentionKernel, DropsTheProbabilitiesThatTheMaskDrops) {
  const DropoutSite site = DropoutSiteOf(0.3, "layers.0.attention.probabilities", /*micro_batch=*/2);
  const KernelContext context{
      .seed = 5, .tensor = {2, 3}, .context = {1, 2}, .replica = {.rank = 1, .ranks = 4}, .batch_step = 7};
  const DropoutMask mask(site, context);
  AttentionShape dropped = s;
  dropped.factor = [&](int64_t b, int64_t head, int64_t query, int64_t key) {
    const int64_t sample = (2 * s.batch + b) * 4 + 1, whole_head = 5 * s.heads + head;
    const int64_t index = ((sample * 6 * s.heads + whole_head) * s.seq + query) * s.seq + key;
    return mask.Keeps(index) ? 1 / 0.7 : 0.0;
  };
  AttentionForward op{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind};
  op.window = s.window;
  op.causal = s.causal;
  op.dropout = site;
  op.head_parts = 2;
  ASSERT_EQ(Launch(op, {qkv32.ref()}, {out.ref(), saved.ref(), workspace.ref()}, context), "");
  EXPECT_LT(RelativeError(out, reference::Attention(dropped, qkv).out), 2e-6);
  EXPECT_LT(
      RelativeError(saved, kind == AttentionKind::kEager ? expected.probabilities : expected.log_sum_exp),
      2e-6);

  const Values dout = RandomValues(2, s.out_elements());
  Tensor dout32 = dout, dqkv(s.qkv_elements());
  AttentionBackward backward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind};
  backward.window = s.window;
  backward.causal = s.causal;
  backward.dropout = site;
  backward.head_parts = 2;
  ASSERT_EQ(Launch(backward, {dout32.ref(), qkv32.ref(), out.ref(), saved.ref()},
                   {dqkv.ref(), workspace.ref()}, context),
            "");
  EXPECT_LT(RelativeError(dqkv, reference::AttentionBackward(dropped, dout, qkv)), 5e-6);
}

class CrossAttentionKernel : public AttentionKernel {
 protected:
  // The columns [first, first + count) of the first `rows` rows of each sequence of packed projections.
  Values Part(const Values& packed, int64_t rows, int64_t first, int64_t count) const {
    Values part;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t row = 0; row < rows; ++row) {
        const auto begin = packed.begin() + (b * s.rows() + row) * s.packed() + first;
        part.insert(part.end(), begin, begin + count);
      }
    }
    return part;
  }
  const int64_t query_columns = s.heads * s.head_dim, key_columns = 2 * s.kv_heads * s.head_dim;
  Values QueriesOf(const Values& packed) const { return Part(packed, s.seq, 0, query_columns); }
  Values KeysOf(const Values& packed) const { return Part(packed, s.keys(), query_columns, key_columns); }

  Tensor queries = QueriesOf(qkv), keys = KeysOf(qkv);
  Tensor probabilities = Tensor(s.batch * s.heads * s.seq * (kind == AttentionKind::kEager ? s.keys() : 1));
  Tensor tiles = Tensor(AttentionWorkspaceElements(s.seq, s.keys(), /*backward=*/true));

  // Expects what the reference says for the shape `s` with dropout's factors.
  void ExpectReference(const AttentionShape& expected_shape, const DropoutSite& site,
                       const KernelContext& context = {}) {
    AttentionForward op{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind};
    op.key_seq = s.keys();
    op.causal = false;
    op.dropout = site;
    ASSERT_EQ(Launch(op, {queries.ref(), keys.ref()}, {out.ref(), probabilities.ref(), tiles.ref()}, context),
              "");
    EXPECT_LT(RelativeError(out, reference::Attention(expected_shape, qkv).out), 2e-6);
    EXPECT_LT(RelativeError(probabilities,
                            kind == AttentionKind::kEager ? expected.probabilities : expected.log_sum_exp),
              2e-6);
    const Values dout = RandomValues(2, s.out_elements());
    Tensor dout32 = dout, dqueries(s.batch * s.seq * query_columns), dkeys(s.batch * s.keys() * key_columns);
    AttentionBackward backward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, kind};
    backward.key_seq = s.keys();
    backward.causal = false;
    backward.dropout = site;
    ASSERT_EQ(Launch(backward, {dout32.ref(), queries.ref(), keys.ref(), out.ref(), probabilities.ref()},
                     {dqueries.ref(), dkeys.ref(), tiles.ref()}, context),
              "");
    const Values gradients = reference::AttentionBackward(expected_shape, dout, qkv);
    EXPECT_LT(RelativeError(dqueries, QueriesOf(gradients)), 5e-6);
    EXPECT_LT(RelativeError(dkeys, KeysOf(gradients)), 5e-6);
  }
};

// More keys than queries, and fewer; of less than a tile, of whole tiles, and with a tail.
std::vector<AttentionCase> CrossCases() {
  std::vector<AttentionCase> cases;
  for (AttentionKind kind : {AttentionKind::kFlash, AttentionKind::kEager})
    for (const auto& [seq, key_seq] : {std::pair<int64_t, int64_t>{17, 40},
                                       {40, 17},
                                       {2 * kAttentionBlock, 3 * kAttentionBlock},
                                       {kAttentionBlock + 5, 7},
                                       {1, kAttentionBlock + 9},
                                       {12, 12}})
      cases.push_back({kind, AttentionShape{.batch = 2,
                                            .seq = seq,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .head_dim = 8,
                                            .causal = false,
                                            .key_seq = key_seq}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, CrossAttentionKernel, testing::ValuesIn(CrossCases()));

TEST_P(CrossAttentionKernel, MatchesTheReference) { ExpectReference(s, {}); }

TEST_P(CrossAttentionKernel, DropsTheProbabilitiesThatTheMaskDrops) {
  const DropoutSite site = DropoutSiteOf(0.3, "blocks.0.cross.probabilities", /*micro_batch=*/1);
  const KernelContext context{.seed = 5, .replica = {.rank = 1, .ranks = 2}, .batch_step = 7};
  const DropoutMask mask(site, context);
  AttentionShape dropped = s;
  dropped.factor = [&](int64_t b, int64_t head, int64_t query, int64_t key) {
    const int64_t sample = (s.batch + b) * 2 + 1;
    const int64_t index = ((sample * s.heads + head) * s.seq + query) * s.keys() + key;
    return mask.Keeps(index) ? 1 / 0.7 : 0.0;
  };
  ExpectReference(dropped, site, context);
}

TEST(AttentionKernel, FlashSurvivesScoresThatOverflowTheExponential) {
  const AttentionShape s{.batch = 1, .seq = 70, .heads = 1, .kv_heads = 1, .head_dim = 4};
  Tensor qkv = RandomValues(1, s.qkv_elements(), /*scale=*/50.0), out(s.out_elements()), saved(s.seq);
  Tensor workspace(AttentionWorkspaceElements(s.seq, false));
  ASSERT_EQ(Launch(AttentionForward{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, AttentionKind::kFlash},
                   {qkv.ref()}, {out.ref(), saved.ref(), workspace.ref()}),
            "");
  for (float value : out) EXPECT_TRUE(std::isfinite(value));
}

TEST(AttentionWorkspace, HoldsOneTileForwardAndTwoBackward) {
  EXPECT_EQ(AttentionWorkspaceElements(1024, false), kAttentionBlock * 1024);
  EXPECT_EQ(AttentionWorkspaceElements(1024, true), 2 * kAttentionBlock * 1024);
  EXPECT_EQ(AttentionWorkspaceElements(8, false), 64);  // a sequence shorter than a block
  EXPECT_EQ(AttentionWorkspaceElements(8, 100, false), 800);  // with keys of another
}

}  // namespace
}  // namespace windtunnel
