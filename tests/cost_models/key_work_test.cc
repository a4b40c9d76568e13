#include "cost_models/key_work.h"

#include <gtest/gtest.h>

#include "plan/op.h"

namespace windtunnel {
namespace {

TEST(KeyWork, OfAProductIsItsFlopsAndItsOperands) {
  const Gemm gemm{.m = 256, .n = 1024, .k = 512, .dtype = DType::kBFloat16};
  const KeyWork work(CostKey(gemm));
  EXPECT_EQ(work.dtype, DType::kBFloat16);
  EXPECT_DOUBLE_EQ(work.flops.count(), FlopsOf(gemm).count());
  EXPECT_EQ(work.traffic, TrafficOf(gemm));
}

TEST(KeyWork, OfACopyIsWhatItReadsAndWrites) {
  const Copy copy{.elements = 1000, .from = DType::kFloat32, .to = DType::kBFloat16};
  EXPECT_EQ(KeyWork(CostKey(copy)).traffic, Bytes(6000));
  EXPECT_EQ(KeyWork(CostKey(copy)).flops, Flops());
}

// Read at least once: 4 x 8 values of two bytes.
TEST(KeyWork, OfRowsAndColumnsIsAtLeastOnePass) {
  EXPECT_EQ(KeyWork("column_sum rows=4 columns=8 bf16").traffic, Bytes(64));
  EXPECT_EQ(KeyWork("column_sum rows=4 columns=8").traffic, Bytes(128));
}

TEST(KeyWork, WhatIsNotUnderstoodHasNone) {
  for (const char* key : {"", "square_root", "gemm", "gemm fp32 nn m=x n=1 k=1", "new_kernel n=1000",
                          "copy n=", "=", "n=-3", "rows=99999999999999999999 columns=2"}) {
    EXPECT_EQ(KeyWork(key).flops, Flops()) << key;
    EXPECT_EQ(KeyWork(key).traffic, Bytes()) << key;
  }
  // Beyond 2^63 bytes.
  EXPECT_EQ(KeyWork("copy fp32 fp32 n=9223372036854775807").traffic, Bytes());
}

TEST(KeyWork, KernelsAreComparedWithinOneKindOnly) {
  const KeyWork small("gemm fp32 nn m=2 n=3 k=4"), large("gemm fp32 nn m=2 n=3 k=5");
  EXPECT_TRUE(small.IsSmallerThan(large));
  EXPECT_FALSE(large.IsSmallerThan(small));
  EXPECT_FALSE(small.IsSmallerThan(small));
  EXPECT_FALSE(small.IsSmallerThan(KeyWork("gemm bf16 nn m=2 n=3 k=5")));
  EXPECT_FALSE(small.IsSmallerThan(KeyWork("gemm fp32 nt m=2 n=3 k=5")));
  EXPECT_FALSE(small.IsSmallerThan(KeyWork("gemm fp32 nn m=1 n=3 k=500")));
  EXPECT_FALSE(KeyWork("a n=1").IsSmallerThan(KeyWork("a m=2")));
}

}  // namespace
}  // namespace windtunnel
