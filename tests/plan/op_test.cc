#include "plan/op.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

// Profiles are keyed by these texts: a change makes every profile unusable.
TEST(CostKey, NamesTheKindTheTypeAndTheShape) {
  EXPECT_EQ(CostKey(Gemm{.m = 512, .n = 768, .k = 256, .transpose_b = true, .bias = true}),
            "gemm fp32 nt m=512 n=768 k=256 bias");
  EXPECT_EQ(CostKey(NormBackward{.rows = 8, .columns = 4, .residual = true, .accumulate = true}),
            "norm_backward layernorm rows=8 columns=4 bias residual accumulate");
  EXPECT_EQ(CostKey(AttentionForward{.batch = 2, .seq = 16, .heads = 4, .kv_heads = 2, .head_dim = 8}),
            "attention_forward flash fp32 b=2 s=16 h=4 kv=2 d=8");
  EXPECT_EQ(CostKey(Copy{.elements = 10, .scale = 0.5}), "copy fp32 fp32 n=10 scaled");
  EXPECT_EQ(CostKey(Collective{CollectiveKind::kAllReduce, DType::kFloat32, 256}),
            "all_reduce fp32 bytes=1024");
  EXPECT_EQ(CostKey(Alloc{}), "");
}

TEST(CostKey, LeavesOutWhatDoesNotChangeTheCost) {
  EXPECT_EQ(CostKey(Scale{7, 0.5}), CostKey(Scale{7, 0.25}));
  EXPECT_EQ(CostKey(CrossEntropy{.rows = 2, .vocab = 8, .gradient_scale = 0.5}),
            CostKey(CrossEntropy{.rows = 2, .vocab = 8}));
}

TEST(FlopsOf, CountsAMultiplyAddAsTwo) {
  EXPECT_DOUBLE_EQ(FlopsOf(Gemm{.m = 2, .n = 3, .k = 4}).count(), 48);
  // Causal: 4 positions see 1 + 2 + 3 + 4 = 10 keys; two products of head_dim 8, one head: 2 * 2 * 10 * 8.
  EXPECT_DOUBLE_EQ(
      FlopsOf(AttentionForward{.batch = 1, .seq = 4, .heads = 1, .kv_heads = 1, .head_dim = 8}).count(), 320);
}

TEST(TrafficOf, CountsWhatMustMoveAtLeast) {
  EXPECT_EQ(TrafficOf(Gemm{.m = 2, .n = 3, .k = 4}), Bytes(4 * (8 + 12 + 6)));
  EXPECT_EQ(TrafficOf(Copy{.elements = 10}), Bytes(80));
}

}  // namespace
}  // namespace windtunnel
