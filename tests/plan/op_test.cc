#include "plan/op.h"

#include <gtest/gtest.h>

#include <array>

namespace windtunnel {
namespace {

// Profiles are keyed by these texts: a change makes every profile unusable.
TEST(CostKey, NamesTheKindTheTypeAndTheShape) {
  EXPECT_EQ(CostKey(Gemm{.m = 512, .n = 768, .k = 256, .transpose_b = true, .bias = true}),
            "gemm fp32 nt m=512 n=768 k=256 bias");
  EXPECT_EQ(CostKey(NormBackward{.rows = 8, .columns = 4, .residual = true, .accumulate = true}),
            "norm_backward layernorm rows=8 columns=4 bias residual accumulate");
  EXPECT_EQ(CostKey(NormBackward{.rows = 8, .columns = 4, .frozen = true}),
            "norm_backward layernorm rows=8 columns=4 bias frozen");
  EXPECT_EQ(CostKey(AttentionForward{.batch = 2, .seq = 16, .heads = 4, .kv_heads = 2, .head_dim = 8}),
            "attention_forward flash fp32 b=2 s=16 h=4 kv=2 d=8");
  EXPECT_EQ(
      CostKey(AttentionForward{
          .batch = 2, .seq = 16, .heads = 4, .kv_heads = 2, .head_dim = 8, .causal = false, .key_seq = 24}),
      "attention_forward flash fp32 b=2 s=16 keys=24 h=4 kv=2 d=8 bidirectional");
  EXPECT_EQ(CostKey(RelativeBias{.heads = 4, .seq = 16, .causal = false}),
            "relative_bias fp32 s=16 h=4 bidirectional");
  EXPECT_EQ(CostKey(RelativeBiasBackward{.batch = 2, .heads = 4, .seq = 16, .accumulate = true}),
            "relative_bias_backward fp32 b=2 s=16 h=4 accumulate");
  const StateSpaceShape state_space{2, 16, 4, 2, 8, 5, 3, 8, DType::kBFloat16};
  EXPECT_EQ(CostKey(StateSpaceForward{state_space}),
            "state_space_forward bf16 b=2 s=16 h=4 g=2 d=8 n=5 conv=3 chunk=8");
  EXPECT_EQ(CostKey(StateSpaceBackward{state_space}),
            "state_space_backward bf16 b=2 s=16 h=4 g=2 d=8 n=5 conv=3 chunk=8");
  const DeltaNetShape net{2, 16, 2, 4, 8, 5, 3, DType::kBFloat16};
  EXPECT_EQ(CostKey(DeltaNetForward{net}), "delta_net_forward bf16 b=2 s=16 k=2x8 v=4x5 conv=3");
  EXPECT_EQ(CostKey(DeltaNetBackward{net}), "delta_net_backward bf16 b=2 s=16 k=2x8 v=4x5 conv=3");
  EXPECT_EQ(CostKey(GateForward{8, 4, true, DType::kBFloat16}), "gate_forward rows=8 columns=4 by_row bf16");
  EXPECT_EQ(CostKey(GateBackward{8, 4}), "gate_backward rows=8 columns=4");
  EXPECT_EQ(CostKey(Copy{.elements = 10, .scale = 0.5}), "copy fp32 fp32 n=10 scaled");
  EXPECT_EQ(CostKey(Collective{CollectiveKind::kAllReduce, DType::kFloat32, 256}),
            "all_reduce fp32 bytes=1024");
  EXPECT_EQ(CostKey(AddBias{.rows = 8, .columns = 4, .dtype = DType::kBFloat16}),
            "add_bias rows=8 columns=4 bf16");
  EXPECT_EQ(CostKey(Gemm{.m = 512, .n = 768, .k = 256, .streams = 3}),
            "gemm fp32 nn m=512 n=768 k=256 streams=3");
  EXPECT_EQ(CostKey(SumParts{.parts = 4, .elements = 10, .dtype = DType::kBFloat16}),
            "sum_parts bf16 parts=4 n=10");
  EXPECT_EQ(CostKey(VocabParallelMaximum{.rows = 8, .vocab = 4}),
            "vocab_parallel_maximum fp32 rows=8 vocab=4");
  EXPECT_EQ(CostKey(VocabParallelSums{.rows = 8, .vocab = 4}), "vocab_parallel_sums fp32 rows=8 vocab=4");
  EXPECT_EQ(CostKey(VocabParallelLoss{.rows = 8, .vocab = 4}), "vocab_parallel_loss fp32 rows=8 vocab=4");
  EXPECT_EQ(
      CostKey(EmbeddingForward{.tokens = 8, .seq = 4, .vocab = 16, .hidden = 2, .vocab_parallel = true}),
      "embedding_forward tokens=8 seq=4 vocab=16 hidden=2 vocab_parallel");
  EXPECT_EQ(CostKey(CopyTensors{.elements = 10, .tensors = 2}), "copy_tensors fp32 n=10 tensors=2");
  EXPECT_EQ(
      CostKey(Fp8Amax{.rows = 8, .columns = 4, .of = Fp8Amax::Of::kEachColumn, .dtype = DType::kBFloat16}),
      "fp8_amax bf16 rows=8 columns=4 by_column");
  EXPECT_EQ(CostKey(Fp8Amax{.rows = 8, .columns = 4, .of = Fp8Amax::Of::kEachRow}),
            "fp8_amax fp32 rows=8 columns=4 by_row");
  EXPECT_EQ(CostKey(Fp8Cast{.rows = 8, .columns = 4, .recipe = Fp8Recipe::kBlock, .transposed = true}),
            "fp8_cast fp32 block rows=8 columns=4 transposed");
  EXPECT_EQ(CostKey(Fp8Cast{.rows = 8, .columns = 4, .shared_by = 16}),
            "fp8_cast fp32 tensorwise rows=8 columns=4 shared_by=16");
  EXPECT_EQ(CostKey(Fp8Amax{.rows = 8, .columns = 4, .shared_by = 16}),
            "fp8_amax fp32 rows=8 columns=4 shared_by=16");
  EXPECT_EQ(CostKey(Fp8Cast{.rows = 8, .columns = 4, .transposed = true, .with_other = true}),
            "fp8_cast fp32 tensorwise rows=8 columns=4 transposed with_other");
  EXPECT_NE(CostKey(Fp8Cast{.rows = 8, .columns = 4, .groups = 2, .together = true}),
            CostKey(Fp8Cast{.rows = 8, .columns = 4, .groups = 2}));
  EXPECT_NE(CostKey(Fp8Amax{.rows = 8, .columns = 4, .groups = 2, .together = true}),
            CostKey(Fp8Amax{.rows = 8, .columns = 4, .groups = 2}));
  EXPECT_EQ(CostKey(HostWait{}), "");
}

// All pairs of a query and a key, and each query, key and value once.
TEST(Work, CrossAttentionSeesAllKeysOfTheOtherSequence) {
  AttentionForward a{.batch = 2, .seq = 16, .heads = 4, .kv_heads = 2, .head_dim = 8};
  a.causal = false;
  a.key_seq = 24;
  EXPECT_EQ(FlopsOf(a), Flops(2 * 4 * 16 * 24 * 2 * 2.0 * 8));
  EXPECT_EQ(TrafficOf(a), Bytes(4 * 2 * (2 * 16 * 32 + 24 * 2 * 16 + 4 * 16)));
  a.key_seq = 16;
  AttentionForward own = a;
  own.key_seq = 0;
  EXPECT_EQ(FlopsOf(a), FlopsOf(own));
}

TEST(TrafficOf, Fp8FactorsHaveAByteAndTheirProductTwo) {
  const Gemm gemm{.m = 2, .n = 3, .k = 4, .dtype = DType::kFloat8};
  EXPECT_EQ(TrafficOf(gemm), Bytes(2 * 4 + 4 * 3 + 2 * 2 * 3));
  EXPECT_EQ(TrafficOf(Fp8Cast{.rows = 2, .columns = 3, .dtype = DType::kBFloat16}), Bytes(6 * (2 + 1)));
  EXPECT_EQ(TrafficOf(Fp8Cast{.rows = 2, .columns = 3, .dtype = DType::kBFloat16, .shared_by = 3}), Bytes(6));
  EXPECT_EQ(TrafficOf(Fp8Amax{.rows = 2, .columns = 3, .dtype = DType::kBFloat16, .shared_by = 3}), Bytes(4));
}

// A scale takes a byte for 32 numbers (mxfp8) or for 16 numbers of four bits (nvfp4). The other form of a
// factor is written by the kernel that read x.
TEST(TrafficOf, ScaledBlocksHaveTheirScalesWithThem) {
  EXPECT_EQ(FactorBytes(Fp8Recipe::kTensorwise, 96), 96);
  EXPECT_EQ(FactorBytes(Fp8Recipe::kMxfp8, 96), 96 + 3);
  EXPECT_EQ(FactorBytes(Fp8Recipe::kNvfp4, 96), 48 + 6);
  for (const Fp8Recipe recipe :
       {Fp8Recipe::kTensorwise, Fp8Recipe::kBlock, Fp8Recipe::kMxfp8, Fp8Recipe::kNvfp4})
    for (const int64_t numbers : {32, 96, 4096})
      EXPECT_EQ(FactorNumbers(recipe, FactorBytes(recipe, numbers)), numbers);
  Fp8Cast cast{.rows = 2, .columns = 32, .recipe = Fp8Recipe::kMxfp8, .dtype = DType::kBFloat16};
  EXPECT_EQ(TrafficOf(cast), Bytes(64 * 2 + 66));
  cast.with_other = true;
  EXPECT_EQ(TrafficOf(cast), Bytes(66));
  const Gemm fp4{.m = 2, .n = 3, .k = 4, .dtype = DType::kFloat4x2};
  EXPECT_EQ(TrafficOf(fp4), Bytes((2 * 4 + 4 * 3) / 2 + 2 * 2 * 3));
}

// 8 tokens have two experts each. Those that arrive at one rank fill its 6 rows, and no more are read.
TEST(TrafficOf, ArrivedTokensAreCopiedToTheRowsThatThereAre) {
  const TokenRows own{.tokens = 8, .hidden = 4, .top_k = 2, .rows = 24, .dtype = DType::kBFloat16};
  EXPECT_EQ(TrafficOf(DispatchTokens{own}), Bytes(2 * 4 * (16 + 24)));
  TokenRows arrived = own;
  arrived.rows = 6;
  EXPECT_EQ(TrafficOf(DispatchTokens{arrived}), Bytes(2 * 4 * (6 + 6)));
  EXPECT_EQ(TrafficOf(CombineTokens{arrived, /*weighted=*/false}), Bytes(2 * 4 * (6 + 8)));
}

TEST(CostKey, LeavesOutWhatDoesNotChangeTheCost) {
  EXPECT_EQ(CostKey(Scale{7, 0.5}), CostKey(Scale{7, 0.25}));
  EXPECT_EQ(CostKey(CrossEntropy{.rows = 2, .vocab = 8, .gradient_scale = 0.5}),
            CostKey(CrossEntropy{.rows = 2, .vocab = 8}));
}

// A sequence of 4 with a window of 2 has the pairs (0,0), (1,0), (1,1), (2,1), (2,2), (3,2), (3,3): seven
// instead of ten.
TEST(FlopsOf, CountsPairsWithinAWindow) {
  AttentionForward all{.batch = 1, .seq = 4, .heads = 1, .kv_heads = 1, .head_dim = 8};
  AttentionForward near = all;
  near.window = 2;
  EXPECT_EQ(FlopsOf(near).count() / FlopsOf(all).count(), 0.7);
  EXPECT_EQ(CostKey(near), CostKey(all) + " w=2");
}

TEST(FlopsOf, CountsAllPairsIfAttentionIsNotCausal) {
  AttentionForward all{.batch = 1, .seq = 4, .heads = 1, .kv_heads = 1, .head_dim = 8};
  AttentionForward both = all;
  both.causal = false;
  EXPECT_EQ(FlopsOf(both).count() / FlopsOf(all).count(), 1.6);
  EXPECT_EQ(CostKey(both), CostKey(all) + " bidirectional");
  both.kind = AttentionKind::kEager;
  both.dtype = DType::kBFloat16;
  const Bytes in_16_bits = TrafficOf(both);
  both.fp32_softmax = true;  // 16 probabilities of 2 bytes more
  EXPECT_EQ(TrafficOf(both) - in_16_bits, Bytes(16 * 2));
  both.dtype = DType::kFloat32;
  // One rank's four queries with the keys of two.
  ContextAttentionForward part{.batch = 1, .seq = 4, .heads = 1, .kv_heads = 1, .head_dim = 8, .ranks = 2};
  part.blocks = 2;
  part.causal = false;
  EXPECT_EQ(FlopsOf(part).count(), 2 * FlopsOf(both).count());
}

// Two ranks have four chunks of four tokens, of which three tokens are seen: the first rank 9 + 12 pairs, as
// the sequence's first token sees itself alone, the second 24.
TEST(FlopsOf, CountsThePairsOfTheRankThatSeesMostWithinAWindow) {
  ContextAttentionForward attention{
      .batch = 1, .seq = 8, .heads = 1, .kv_heads = 1, .head_dim = 5, .ranks = 2};
  attention.blocks = 2;
  attention.window = 3;
  EXPECT_DOUBLE_EQ(FlopsOf(attention).count(), 2 * 2 * 5 * 24);
  attention.window = 100;  // longer than the sequence: as without
  const double windowed = FlopsOf(attention).count();
  attention.window = 0;
  EXPECT_DOUBLE_EQ(windowed, FlopsOf(attention).count());
}

TEST(FlopsOf, CountsAMultiplyAddAsTwo) {
  EXPECT_DOUBLE_EQ(FlopsOf(Gemm{.m = 2, .n = 3, .k = 4}).count(), 48);
  // Causal: 4 positions see 1 + 2 + 3 + 4 = 10 keys; two products of head_dim 8, one head: 2 * 2 * 10 * 8.
  EXPECT_DOUBLE_EQ(
      FlopsOf(AttentionForward{.batch = 1, .seq = 4, .heads = 1, .kv_heads = 1, .head_dim = 8}).count(), 320);
}

TEST(TensorPart, RunsFollowEachOtherInThePartAndAreApartInTheWhole) {
  // Two runs of 3 elements, 10 apart, then one of 4; rank 1's begin a run's length further on.
  const TensorPart part = {{0, 3, 2, 10}, {20, 4}};
  EXPECT_EQ(ElementsOf(part), 10);
  std::vector<std::array<int64_t, 3>> runs;
  const auto note = [&](int64_t local, int64_t whole, int64_t elements) {
    runs.push_back({local, whole, elements});
  };
  ForEachRun(part, /*position=*/1, 0, 10, note);
  EXPECT_EQ(runs, (std::vector<std::array<int64_t, 3>>{{0, 3, 3}, {3, 13, 3}, {6, 24, 4}}));
  runs.clear();
  ForEachRun(part, /*position=*/0, 2, 8, note);
  EXPECT_EQ(runs, (std::vector<std::array<int64_t, 3>>{{2, 2, 1}, {3, 10, 3}, {6, 20, 2}}));
}

TEST(TrafficOf, CountsWhatMustMoveAtLeast) {
  EXPECT_EQ(TrafficOf(Gemm{.m = 2, .n = 3, .k = 4}), Bytes(4 * (8 + 12 + 6)));
  EXPECT_EQ(TrafficOf(Copy{.elements = 10}), Bytes(80));
}

}  // namespace
}  // namespace windtunnel
