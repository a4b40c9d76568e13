#include "runtime/cpu/rope.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::Values;

const reference::AttentionShape kShape{.batch = 2, .seq = 19, .heads = 4, .kv_heads = 2, .head_dim = 10};

TEST(RopeKernel, MatchesTheReferenceForwardAndBackward) {
  const Values qkv = RandomValues(1, kShape.qkv_elements());
  Tensor forward = qkv, backward = qkv;
  const auto op = [](bool is_backward) {
    return Rope{kShape.batch, kShape.seq, kShape.heads, kShape.kv_heads, kShape.head_dim, is_backward};
  };
  ASSERT_EQ(Launch(op(false), {forward.ref()}, {forward.ref()}), "");
  ASSERT_EQ(Launch(op(true), {backward.ref()}, {backward.ref()}), "");
  EXPECT_LT(RelativeError(forward, reference::Rope(kShape, qkv)), 1e-6);
  EXPECT_LT(RelativeError(backward, reference::RopeBackward(kShape, qkv)), 1e-6);
}

TEST(RopeKernel, RefusesAnOddHeadDimension) {
  Tensor qkv(3 * 5);
  EXPECT_NE(Launch(Rope{1, 1, 1, 1, 5, false}, {qkv.ref()}, {qkv.ref()}).find("head_dim is 5"),
            std::string::npos);
}

}  // namespace
}  // namespace windtunnel
