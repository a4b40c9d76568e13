#include "runtime/cpu/elementwise.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::BFloat16;
using test::Float16;
using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::TensorOf;
using test::TypeOf;
using test::Values;
using test::ValuesOf;

// Three experts' rows. Each expert has its own column sums and its own bias.
TEST(ColumnSumKernel, KeepsExpertsApart) {
  constexpr int64_t kExperts = 3, kRows = 10, kColumns = 7;
  const Values in = RandomValues(1, kExperts * kRows * kColumns);
  const Values biases = RandomValues(2, kExperts * kColumns);
  Values sums(kExperts * kColumns, 0.0), added = in;
  for (int64_t i = 0; i < kExperts * kRows * kColumns; ++i) {
    const int64_t of_bias = i / (kRows * kColumns) * kColumns + i % kColumns;
    sums[of_bias] += in[i];
    added[i] += biases[of_bias];
  }
  Tensor in32 = in, biases32 = biases, out(kExperts * kColumns);
  ASSERT_EQ(Launch(ColumnSum{kRows, kColumns, false, DType::kFloat32, kExperts}, {in32.ref()}, {out.ref()}),
            "");
  EXPECT_LT(RelativeError(out, sums), 1e-6);
  ASSERT_EQ(
      Launch(AddBias{kRows, kColumns, DType::kFloat32, kExperts}, {in32.ref(), biases32.ref()}, {in32.ref()}),
      "");
  EXPECT_LT(RelativeError(in32, added), 1e-6);
}

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

template <typename From, typename To>
void ExpectConvertedWithOneRounding() {
  const Values values = RandomValues(1, 101), before = RandomValues(2, 101);
  TensorOf<From> in = values;
  TensorOf<To> out(101), sum = before;
  const Values exact = ValuesOf(in), start = ValuesOf(sum);
  const Copy op{.elements = 101, .from = TypeOf<From>(), .to = TypeOf<To>(), .scale = 0.25};
  ASSERT_EQ(Launch(op, {in.ref()}, {out.ref()}), "");
  Copy accumulating = op;
  accumulating.accumulate = true;
  ASSERT_EQ(Launch(accumulating, {in.ref()}, {sum.ref()}), "");
  for (size_t i = 0; i < 101; ++i) {
    EXPECT_EQ(cpu::ToFloat(out[i]), cpu::ToFloat(cpu::FromFloat<To>(static_cast<float>(0.25 * exact[i]))));
    const double sum_exact = start[i] + 0.25 * exact[i];
    EXPECT_EQ(cpu::ToFloat(sum[i]), cpu::ToFloat(cpu::FromFloat<To>(static_cast<float>(sum_exact))))
        << sum_exact;
  }
}

TEST(CopyKernel, ConvertsAndAccumulatesWithOneRoundingBetweenAnyTwoTypes) {
  ExpectConvertedWithOneRounding<float, float>();
  ExpectConvertedWithOneRounding<float, BFloat16>();
  ExpectConvertedWithOneRounding<float, Float16>();
  ExpectConvertedWithOneRounding<BFloat16, float>();
  ExpectConvertedWithOneRounding<BFloat16, BFloat16>();
  ExpectConvertedWithOneRounding<BFloat16, Float16>();
  ExpectConvertedWithOneRounding<Float16, float>();
  ExpectConvertedWithOneRounding<Float16, BFloat16>();
  ExpectConvertedWithOneRounding<Float16, Float16>();
}

TEST(CopyKernel, DoesNotMindThatASideIsInHostMemory) {
  for (Copy::Crosses crosses : {Copy::Crosses::kToDevice, Copy::Crosses::kToHost}) {
    Tensor in = Values{1, 2, 3}, out(3);
    ASSERT_EQ(Launch(Copy{.elements = 3, .crosses = crosses}, {in.ref()}, {out.ref()}), "");
    EXPECT_EQ(out, in);
  }
}

TEST(CopyKernel, RefusesOtherTypesByName) {
  Tensor in(4), out(4);
  const std::string error = Launch(Copy{.elements = 4, .to = DType::kFloat8}, {in.ref()}, {out.ref()});
  EXPECT_NE(error.find("fp8"), std::string::npos) << error;
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
