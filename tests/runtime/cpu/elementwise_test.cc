#include "runtime/cpu/elementwise.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::Values;

TEST(ColumnSumKernel, AddsUpRowsOrAddsThemToWhatWasThere) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {7, 10}, {8, 100}, {21, 37}, {512, 256}}) {
    const Values in = RandomValues(1, rows * columns), before = RandomValues(2, columns);
    Values sums(static_cast<size_t>(columns)), sums_and_before = before;
    for (int64_t i = 0; i < rows * columns; ++i) {
      sums[i % columns] += in[i];
      sums_and_before[i % columns] += in[i];
    }
    Tensor in32 = in, out(columns), accumulated = before;
    ASSERT_EQ(Launch(ColumnSum{rows, columns, false}, {in32.ref()}, {out.ref()}), "");
    ASSERT_EQ(Launch(ColumnSum{rows, columns, true}, {in32.ref()}, {accumulated.ref()}), "");
    EXPECT_LT(RelativeError(out, sums), 1e-6);
    EXPECT_LT(RelativeError(accumulated, sums_and_before), 1e-6);
  }
}

TEST(CopyKernel, CopiesExactlyAndScales) {
  const Values in = RandomValues(1, 101);
  Tensor in32 = in, same(101), half(101);
  ASSERT_EQ(Launch(Copy{.elements = 101}, {in32.ref()}, {same.ref()}), "");
  ASSERT_EQ(Launch(Copy{.elements = 101, .scale = 0.5}, {in32.ref()}, {half.ref()}), "");
  for (size_t i = 0; i < 101; ++i) {
    EXPECT_EQ(same[i], in32[i]);
    EXPECT_EQ(half[i], in32[i] * 0.5f);
  }
}

TEST(CopyKernel, RefusesToConvert) {
  Tensor in(4), out(4);
  const std::string error = Launch(Copy{.elements = 4, .to = DType::kFloat16}, {in.ref()}, {out.ref()});
  EXPECT_NE(error.find("fp16"), std::string::npos) << error;
}

TEST(ScaleKernel, MultipliesInPlaceWhatItIsAskedToOnly) {
  Tensor x = Values{1, 2, 3, 4};
  ASSERT_EQ(Launch(Scale{.elements = 3, .scale = -2.0}, {x.ref()}, {x.ref()}), "");
  EXPECT_EQ(x, (std::vector<float>{-2, -4, -6, 4}));
}

TEST(FillKernel, WritesTheValue) {
  for (double value : {0.0, -1.5}) {
    Tensor x(37);
    ASSERT_EQ(Launch(Fill{.elements = 37, .value = value}, {}, {x.ref()}), "");
    for (float element : x) EXPECT_EQ(element, static_cast<float>(value));
  }
}

}  // namespace
}  // namespace windtunnel
