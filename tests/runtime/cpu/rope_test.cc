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

// Heads of 10 columns of which 6 are rotated: these are as heads of 6, and the other 4 are left alone.
TEST(RopeKernel, RotatesTheFirstColumnsOnly) {
  constexpr int64_t kRotated = 6;
  const int64_t heads = kShape.batch * kShape.seq * (kShape.heads + 2 * kShape.kv_heads);
  reference::AttentionShape narrow = kShape;
  narrow.head_dim = kRotated;
  const Values qkv = RandomValues(1, kShape.qkv_elements());
  Values first;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t column = 0; column < kRotated; ++column)
      first.push_back(qkv[static_cast<size_t>(head * kShape.head_dim + column)]);
  for (const bool backward : {false, true}) {
    Tensor rotated = qkv;
    Rope op{kShape.batch, kShape.seq, kShape.heads, kShape.kv_heads, kShape.head_dim, backward};
    op.rotated = kRotated;
    ASSERT_EQ(Launch(op, {rotated.ref()}, {rotated.ref()}), "");
    const Values expected =
        backward ? reference::RopeBackward(narrow, first) : reference::Rope(narrow, first);
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t column = 0; column < kShape.head_dim; ++column) {
        const auto at = static_cast<size_t>(head * kShape.head_dim + column);
        const double is =
            column < kRotated ? expected[static_cast<size_t>(head * kRotated + column)] : qkv[at];
        EXPECT_NEAR(rotated[at], is, 1e-5) << head << ", " << column;
      }
    }
  }
}

TEST(RopeKernel, RefusesAnOddNumberOfColumns) {
  Tensor qkv(3 * 5);
  EXPECT_NE(Launch(Rope{1, 1, 1, 1, 5, false}, {qkv.ref()}, {qkv.ref()}).find("5 columns of a head"),
            std::string::npos);
}

}  // namespace
}  // namespace windtunnel
