#include "runtime/cpu/orthonormalize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::BFloat16;
using test::Launch;
using test::RandomValues;
using test::RoundedTo;
using test::Tensor;
using test::TensorOf;
using test::Values;
using test::ValuesOf;

Values Orthonormalized(Values x, int64_t rows, int64_t columns) {
  Tensor tensor = x;
  EXPECT_EQ(Launch(Orthonormalize{rows, columns}, {tensor.ref()}, {tensor.ref()}), "");
  return ValuesOf(tensor);
}

double Dot(const Values& x, int64_t columns, int64_t a, int64_t b) {
  double sum = 0;
  for (size_t row = 0; row < x.size(); row += columns) sum += x[row + a] * x[row + b];
  return sum;
}

void ExpectOrthonormal(const Values& x, int64_t columns, double tolerance) {
  for (int64_t a = 0; a < columns; ++a)
    for (int64_t b = 0; b <= a; ++b)
      EXPECT_NEAR(Dot(x, columns, a, b), a == b ? 1 : 0, tolerance) << "columns " << a << " and " << b;
}

// What is left of column `column` of `of` without its parts along the orthonormal columns [0, columns) of x.
double OutsideOf(const Values& x, const Values& of, int64_t columns, int64_t column) {
  double left = 0;
  Values parts(columns);
  for (size_t row = 0; row < x.size(); row += columns)
    for (int64_t a = 0; a < columns; ++a) parts[a] += x[row + a] * of[row + column];
  for (size_t row = 0; row < x.size(); row += columns) {
    double rest = of[row + column];
    for (int64_t a = 0; a < columns; ++a) rest -= parts[a] * x[row + a];
    left += rest * rest;
  }
  return std::sqrt(left / Dot(of, columns, column, column));
}

TEST(Orthonormalize, ColumnsSpanWhatTheySpanned) {
  constexpr int64_t kRows = 77, kColumns = 5;
  const Values before = RandomValues(1, kRows * kColumns, 3.0);
  const Values x = Orthonormalized(before, kRows, kColumns);
  ExpectOrthonormal(x, kColumns, 1e-6);
  for (int64_t column = 0; column < kColumns; ++column)
    EXPECT_LT(OutsideOf(x, before, kColumns, column), 1e-6) << column;
  EXPECT_NEAR(x[0] / x[kColumns], before[0] / before[kColumns], 1e-5) << "the first is only divided";
}

// As after a step whose gradients hardly differ: one pass of Gram-Schmidt would leave products of 1e-3.
TEST(Orthonormalize, ColumnsThatHardlyDiffer) {
  constexpr int64_t kRows = 200, kColumns = 4;
  const Values common = RandomValues(1, kRows), own = RandomValues(2, kRows * kColumns);
  Values x;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < kColumns; ++column)
      x.push_back(common[row] + 1e-3 * own[row * kColumns + column]);
  ExpectOrthonormal(Orthonormalized(x, kRows, kColumns), kColumns, 1e-5);
}

// A gradient of fewer directions: otherwise the column would be rounding errors, or stay zero from then on.
TEST(Orthonormalize, DependentColumnsBecomeOthers) {
  constexpr int64_t kRows = 64, kColumns = 3;
  const Values of_one = RandomValues(1, kRows);
  Values x;
  for (int64_t row = 0; row < kRows; ++row)
    for (const double factor : {1.0, -2.0, 0.0}) x.push_back(factor * of_one[row]);
  ExpectOrthonormal(Orthonormalized(x, kRows, kColumns), kColumns, 1e-6);
  ExpectOrthonormal(Orthonormalized(Values(kRows * kColumns, 0.0), kRows, kColumns), kColumns, 1e-6);
}

// Errors that no gradient adds to any more shrink until their reciprocal is infinite.
TEST(Orthonormalize, ColumnsOfNextToNothingBecomeOthers) {
  constexpr int64_t kRows = 40, kColumns = 2;
  for (const double size : {1e-37, 1e-39, 1e-42})
    ExpectOrthonormal(Orthonormalized(RandomValues(1, kRows * kColumns, size), kRows, kColumns), kColumns,
                      1e-4);
}

TEST(Orthonormalize, NoMoreColumnsThanRowsAreLeft) {
  const Values x = Orthonormalized({3.0, 1.0}, 1, 2);
  EXPECT_EQ(x[0], 1);
  EXPECT_EQ(x[1], 0);
}

TEST(Orthonormalize, WhatIsNotANumberStaysSo) {
  Values x = RandomValues(1, 40);
  x[6] = std::numeric_limits<double>::infinity();
  const Values after = Orthonormalized(x, 20, 2);
  EXPECT_TRUE(std::isnan(after[0]) || std::isnan(after[6]));
}

TEST(Orthonormalize, OfBf16IsRoundedOnce) {
  constexpr int64_t kRows = 50, kColumns = 3;
  const Values before = RoundedTo<BFloat16>(RandomValues(1, kRows * kColumns));
  TensorOf<BFloat16> x = before;
  ASSERT_EQ(Launch(Orthonormalize{kRows, kColumns, DType::kBFloat16}, {x.ref()}, {x.ref()}), "");
  const Values exact = Orthonormalized(before, kRows, kColumns);
  EXPECT_EQ(ValuesOf(x), RoundedTo<BFloat16>(exact));
}

}  // namespace
}  // namespace windtunnel
