// The ranks' parts of attention, put together, are attention over the whole sequences.
#include "runtime/cpu/context_attention.h"

#include <gtest/gtest.h>

#include <tuple>

#include "runtime/cpu/attention.h"
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

constexpr int kRanks = 3;

// The parameters: whether keys come all at once, the share of dropped probabilities, the window, and whether
// attention is causal.
class ContextAttentionKernel : public testing::TestWithParam<std::tuple<bool, double, int64_t, bool>> {
 protected:
  const bool all_at_once = std::get<0>(GetParam());
  const DropoutSite site = DropoutSiteOf(std::get<1>(GetParam()), "probabilities", /*micro_batch=*/1);
  const AttentionShape whole{.batch = 2,
                             .seq = 6 * 70,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 8,
                             .window = std::get<2>(GetParam()),
                             .causal = std::get<3>(GetParam()),
                             .factor = [this](int64_t b, int64_t head, int64_t query, int64_t key) {
                               const int64_t place = ((2 + b) * 4 + head) * 420 + query;
                               return FactorAt(place * 420 + key);
                             }};
  const int64_t seq = whole.seq / kRanks, tokens = whole.batch * seq;
  const int64_t packed = 8 * 8, merged = 4 * 8, keys = 2 * 2 * 8;
  const TokenSplit split{kRanks, true};
  const Values qkv = RandomValues(1, whole.qkv_elements());
  const Values dout = RandomValues(2, whole.out_elements());
  Tensor workspace = Tensor(AttentionWorkspaceElements(whole.seq, true));

  static KernelContext ContextOf(int rank) { return {.seed = 3, .context = {rank, kRanks}, .batch_step = 4}; }
  double FactorAt(int64_t index) const {
    return !site.drops() ? 1.0 : DropoutMask(site, ContextOf(0)).Keeps(index) ? 1 / (1 - site.share) : 0.0;
  }

  // Elements [first, first + count) of the rows of the rank's tokens; rows have `columns` elements.
  Values PartOf(const Values& of_all, int rank, int64_t columns, int64_t first, int64_t count) const {
    Values part;
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t row = token / seq * whole.seq + WholePosition(split, rank, seq, token % seq);
      part.insert(part.end(), of_all.begin() + row * columns + first,
                  of_all.begin() + row * columns + first + count);
    }
    return part;
  }
  Values KeysOf(int rank) const { return PartOf(qkv, rank, packed, merged, keys); }
  Values AllKeys() const {
    Values all;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Values part = KeysOf(rank);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  struct Share {
    Tensor out, sums;
  };
  Share Forward(int rank) {
    Tensor own = PartOf(qkv, rank, packed, 0, packed);
    Share share{Tensor(tokens * merged), Tensor(tokens * 4)};
    const int steps = all_at_once ? 1 : kRanks;
    for (int step = 0; step < steps; ++step) {
      Tensor kv = all_at_once ? AllKeys() : KeysOf((rank - step + kRanks) % kRanks);
      Share block{Tensor(tokens * merged), Tensor(tokens * 4)};
      EXPECT_EQ(Launch(ContextAttentionForward{whole.batch, seq, 4, 2, 8, kRanks, all_at_once ? kRanks : 1,
                                               step, DType::kFloat32, site, whole.window, whole.causal},
                       {own.ref(), kv.ref()}, {block.out.ref(), block.sums.ref(), workspace.ref()},
                       ContextOf(rank)),
                "");
      if (step == 0) {
        share = block;
        continue;
      }
      EXPECT_EQ(Launch(MergeAttention{whole.batch, seq, 4, 8}, {block.out.ref(), block.sums.ref()},
                       {share.out.ref(), share.sums.ref()}),
                "");
    }
    return share;
  }
};

INSTANTIATE_TEST_SUITE_P(OneBlockOrAll, ContextAttentionKernel,
                         testing::Combine(testing::Bool(), testing::Values(0.0, 0.25), testing::Values(0),
                                          testing::Bool()));
// Chunks have 70 tokens: windows within one, and of several.
INSTANTIATE_TEST_SUITE_P(Windows, ContextAttentionKernel,
                         testing::Combine(testing::Values(true), testing::Values(0.0, 0.25),
                                          testing::Values(3, 50, 71, 180), testing::Values(true)));

TEST_P(ContextAttentionKernel, ForwardIsTheRanksPart) {
  const reference::AttentionResult expected = reference::Attention(whole, qkv);
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_LT(RelativeError(Forward(rank).out, PartOf(expected.out, rank, merged, 0, merged)), 3e-6) << rank;
}

TEST_P(ContextAttentionKernel, BackwardAddsUpToTheGradients) {
  const Values expected = reference::AttentionBackward(whole, dout, qkv);
  std::vector<Values> dkeys(kRanks, Values(static_cast<size_t>(tokens * keys)));
  for (int rank = 0; rank < kRanks; ++rank) {
    Share share = Forward(rank);
    Tensor own = PartOf(qkv, rank, packed, 0, packed), own_dout = PartOf(dout, rank, merged, 0, merged);
    Tensor dqkv(tokens * packed);
    const int steps = all_at_once ? 1 : kRanks;
    for (int step = 0; step < steps; ++step) {
      const int from = (rank - step + kRanks) % kRanks;
      Tensor kv = all_at_once ? AllKeys() : KeysOf(from);
      Tensor dkv(static_cast<int64_t>(kv.size()));
      EXPECT_EQ(
          Launch(ContextAttentionBackward{whole.batch, seq, 4, 2, 8, kRanks, all_at_once ? kRanks : 1, step,
                                          step > 0, DType::kFloat32, site, whole.window, whole.causal},
                 {own_dout.ref(), own.ref(), kv.ref(), share.out.ref(), share.sums.ref()},
                 {dqkv.ref(), dkv.ref(), workspace.ref()}, ContextOf(rank)),
          "");
      for (size_t i = 0; i < dkv.size(); ++i) {
        const size_t size = static_cast<size_t>(tokens * keys);
        dkeys[all_at_once ? i / size : static_cast<size_t>(from)][i % size] += dkv[i];
      }
    }
    Tensor queries(tokens * merged);
    EXPECT_EQ(Launch(CopyColumns{tokens, merged, 0, packed, 0, merged}, {dqkv.ref()}, {queries.ref()}), "");
    EXPECT_LT(RelativeError(queries, PartOf(expected, rank, packed, 0, merged)), 5e-6) << rank;
  }
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_LT(RelativeError(Tensor(dkeys[rank]), PartOf(expected, rank, packed, merged, keys)), 5e-6) << rank;
}

// ---- copies into another order

TEST(Rearrange, SplitsColumnsAmongRanksAndJoinsThem) {
  // Two rows of columns [q0 q1 q2 q3 | k0 k1], for two ranks.
  Tensor x = Values{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15};
  Tensor y(12), back(12);
  EXPECT_EQ(Launch(SplitColumns{2, 2, {4, 2}}, {x.ref()}, {y.ref()}), "");
  EXPECT_EQ(test::ValuesOf(y), (Values{0, 1, 4, 10, 11, 14, 2, 3, 5, 12, 13, 15}));
  EXPECT_EQ(Launch(SplitColumns{2, 2, {4, 2}, true}, {y.ref()}, {back.ref()}), "");
  EXPECT_EQ(back, x);
}

TEST(Rearrange, SwapsBlocks) {
  Tensor x = Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, y(12);
  EXPECT_EQ(Launch(SwapBlocks{2, 3, 2}, {x.ref()}, {y.ref()}), "");
  EXPECT_EQ(test::ValuesOf(y), (Values{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
}

// Of two ranks and two sequences of four chunks: rank 0 has the first and the last of each, rank 1 the two
// between.
TEST(Rearrange, PutsChunksOfZigzagInOrder) {
  Tensor sequences = Values{0, 1, 2, 3, 10, 11, 12, 13}, ranks(8), back(8);
  SwapBlocks op{2, 2, 2};
  op.chunks = SwapBlocks::Chunks::kToZigzag;
  EXPECT_EQ(Launch(op, {sequences.ref()}, {ranks.ref()}), "");
  EXPECT_EQ(test::ValuesOf(ranks), (Values{0, 3, 10, 13, 1, 2, 11, 12}));
  op.chunks = SwapBlocks::Chunks::kFromZigzag;
  EXPECT_EQ(Launch(op, {ranks.ref()}, {back.ref()}), "");
  EXPECT_EQ(back, sequences);
}

}  // namespace
}  // namespace windtunnel
