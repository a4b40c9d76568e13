#include "runtime/cpu/gemm.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "runtime/cpu/gemm_operator.h"
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
using test::Values;

// The result that Gemm promises, computed with the reference.
Values Expected(const Gemm& op, const Values& a, const Values& b, const Values& bias, const Values& c) {
  Values result = reference::Gemm(op.m, op.n, op.k, op.transpose_a, op.transpose_b, a, b);
  for (int64_t i = 0; i < op.m * op.n; ++i) {
    result[i] *= op.alpha;
    if (op.bias) result[i] += bias[i % op.n];
    if (op.accumulate) result[i] += op.beta * c[i];
  }
  return result;
}

double ErrorOf(const Gemm& op) {
  const Values a = RandomValues(1, op.m * op.k), b = RandomValues(2, op.k * op.n);
  const Values bias = RandomValues(3, op.n), c = RandomValues(4, op.m * op.n);
  Tensor a32 = a, b32 = b, bias32 = bias, c32 = op.accumulate ? Tensor(c) : Tensor(op.m * op.n);
  std::vector<TensorRef> reads = {a32.ref(), b32.ref()};
  if (op.bias) reads.push_back(bias32.ref());
  EXPECT_EQ(Launch(op, reads, {c32.ref()}), "");
  return RelativeError(c32, Expected(op, a, b, bias, c));
}

RC_GTEST_PROP(GemmKernel, MatchesTheReferenceForAnyShapeAndFlags, ()) {
  Gemm op;
  op.m = *rc::gen::inRange<int64_t>(1, 90);
  op.n = *rc::gen::inRange<int64_t>(1, 90);
  op.k = *rc::gen::inRange<int64_t>(1, 90);
  op.transpose_a = *rc::gen::arbitrary<bool>();
  op.transpose_b = *rc::gen::arbitrary<bool>();
  op.bias = *rc::gen::arbitrary<bool>();
  op.accumulate = *rc::gen::arbitrary<bool>();
  if (!op.bias) {
    op.alpha = *rc::gen::element(1.0f, 2.0315f);
    op.beta = *rc::gen::element(1.0f, -4.7750f);
  }
  RC_ASSERT(ErrorOf(op) < 1e-6);
}

// One shape of each class that GemmEngine::Choose tells apart, with every flag.
TEST(GemmKernel, MatchesTheReferenceInEveryClassOfShape) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{20, 100, 10}, {64, 64, 64}, {130, 128, 96}, {8, 1024, 130}}) {
    for (int flags = 0; flags < 16; ++flags) {
      const Gemm op{m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0};
      EXPECT_LT(ErrorOf(op), 1e-6) << CostKey(op);
    }
  }
}

TEST(GemmKernel, MatchesTheReferenceWithALargeSecondOperand) {
  const Gemm op{18, 1600, 1000, false, false, /*bias=*/true, /*accumulate=*/true};
  EXPECT_LT(ErrorOf(op), 1e-6);
}

TEST(GemmEngine, EveryLibraryGivesTheSameProductOfStridedOperands) {
  // A 5 x 7 corner of a 5 x 20 matrix, times the transpose of a 6 x 7 corner of a 6 x 9, into a corner of 5
  // x 11.
  cpu::GemmProblem problem{5, 6, 7, false, true, 20, 9, 11};
  problem.bias = true;
  const Values a = RandomValues(1, 100), b = RandomValues(2, 54), bias = RandomValues(3, 6);
  const Tensor a32 = a, b32 = b, bias32 = bias;
  cpu::GemmEngine engine;
  for (cpu::GemmLibrary library :
       {cpu::GemmLibrary::kOneDnnMatmul, cpu::GemmLibrary::kOneDnnSgemm, cpu::GemmLibrary::kOpenBlas}) {
    Tensor c32 = Values(55, 42.0);
    ASSERT_TRUE(engine.RunWith(library, problem, a32.data(), b32.data(), bias32.data(), c32.data()));
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t j = 0; j < 11; ++j) {
        double expected = j < 6 ? bias[j] : 42.0;  // beyond the corner nothing is touched
        for (int64_t l = 0; l < 7 && j < 6; ++l) expected += a[i * 20 + l] * b[j * 9 + l];
        EXPECT_NEAR(c32[i * 11 + j], expected, 1e-5) << Name(library);
      }
    }
  }
}

// The path of bf16 on processors without AVX-512 BF16, and of fp16 everywhere. The product spans several
// blocks in each direction and is a corner of a wider matrix.
template <typename T>
void ExpectTheProductInBlocks(double tolerance) {
  constexpr int64_t kRows = 260, kColumns = 520, kDepth = 600, kBeyond = 7;
  for (int flags : {0, 5, 10, 15}) {  // every flag set and not, with each transposition and without
    cpu::GemmProblem problem =
        cpu::GemmProblem::Dense(kRows, kColumns, kDepth, (flags & 1) != 0, (flags & 2) != 0);
    problem.bias = (flags & 4) != 0;
    problem.accumulate = (flags & 8) != 0;
    problem.ldc += kBeyond;
    const Values a = test::RoundedTo<T>(RandomValues(1, kRows * kDepth)),
                 b = test::RoundedTo<T>(RandomValues(2, kDepth * kColumns)),
                 bias = test::RoundedTo<T>(RandomValues(3, kColumns)),
                 c = test::RoundedTo<T>(RandomValues(4, kRows * problem.ldc));
    TensorOf<T> a16 = a, b16 = b, bias16 = bias, c16 = c;
    cpu::GemmEngine engine;
    cpu::Scratch scratch;
    ASSERT_TRUE(
        cpu::MultiplyInBlocks(engine, scratch, problem, a16.data(), b16.data(), bias16.data(), c16.data()));
    const Values product =
        reference::Gemm(kRows, kColumns, kDepth, problem.transpose_a, problem.transpose_b, a, b);
    Values expected = c;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        double& element = expected[i * problem.ldc + j];
        element =
            product[i * kColumns + j] + (problem.accumulate ? element : 0.0) + (problem.bias ? bias[j] : 0.0);
      }
      for (int64_t j = kColumns; j < problem.ldc; ++j)  // beyond the corner nothing is touched
        ASSERT_EQ(cpu::ToFloat(c16[i * problem.ldc + j]), c[i * problem.ldc + j]);
    }
    EXPECT_LT(RelativeError(c16, expected), tolerance) << flags;
  }
}

TEST(GemmInBlocks, MatchesTheReferenceOverSeveralBlocks) {
  ExpectTheProductInBlocks<BFloat16>(0x1p-8);
  ExpectTheProductInBlocks<Float16>(0x1p-11);
}

TEST(GemmEngine, ChoosesBySizeOnly) {
  const cpu::GemmEngine engine;
  const cpu::GemmProblem tiny = cpu::GemmProblem::Dense(20, 100, 10, false, true);
  EXPECT_EQ(engine.Choose(tiny), cpu::GemmLibrary::kOpenBlas);
#if defined(__x86_64__)
  const cpu::GemmProblem large = cpu::GemmProblem::Dense(512, 768, 256, false, true);
  EXPECT_NE(engine.Choose(large), cpu::GemmLibrary::kOpenBlas);
#endif
}

TEST(GemmKernel, RefusesOtherTypesByName) {
  Gemm op{4, 4, 4};
  op.dtype = DType::kFloat8;
  Tensor x(16);
  EXPECT_NE(Launch(op, {x.ref(), x.ref()}, {x.ref()}).find("fp8"), std::string::npos);
}

}  // namespace
}  // namespace windtunnel
