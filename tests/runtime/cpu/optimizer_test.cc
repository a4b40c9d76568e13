#include "runtime/cpu/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/packed.h"
#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::Tensor;
using test::Values;

struct OptimizerCase {
  OptimizerKind kind;
  double momentum, weight_decay;
  int states;
};

OptimizerSpec SpecOf(const OptimizerCase& of) {
  OptimizerSpec spec;
  spec.kind = of.kind;
  spec.lr = 0.01;
  spec.momentum = of.momentum;
  spec.weight_decay = of.weight_decay;
  return spec;
}

class OptimizerKernel : public testing::TestWithParam<OptimizerCase> {};
INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerKernel,
                         testing::Values(OptimizerCase{OptimizerKind::kSgd, 0.0, 0.0, 0},
                                         OptimizerCase{OptimizerKind::kSgd, 0.0, 0.1, 0},
                                         OptimizerCase{OptimizerKind::kSgd, 0.9, 0.1, 1},
                                         OptimizerCase{OptimizerKind::kAdam, 0.0, 0.1, 2},
                                         OptimizerCase{OptimizerKind::kAdamW, 0.0, 0.0, 2},
                                         OptimizerCase{OptimizerKind::kAdamW, 0.0, 0.1, 2}));

// Parameters of different sizes in one operator, over several steps.
TEST_P(OptimizerKernel, FollowsTheReferenceOverFiveSteps) {
  const OptimizerSpec spec = SpecOf(GetParam());
  const std::vector<int64_t> sizes = {1, 37, 256};
  const size_t tensors = sizes.size();
  std::vector<Values> p, m, v;
  std::vector<Tensor> p32, m32, v32;
  for (size_t i = 0; i < tensors; ++i) {
    p.push_back(RandomValues(i, sizes[i]));
    m.emplace_back(sizes[i]);
    v.emplace_back(sizes[i]);
    p32.emplace_back(p[i]);
    m32.emplace_back(m[i]);
    v32.emplace_back(v[i]);
  }
  for (int64_t step = 0; step < 5; ++step) {
    std::vector<Tensor> gradients;
    std::vector<TensorRef> reads, writes;
    for (size_t i = 0; i < tensors; ++i) {
      const Values gradient = RandomValues(100 * step + i, sizes[i]);
      gradients.emplace_back(gradient);
      reference::OptimizerUpdate(spec, step, gradient, p[i], m[i], v[i]);
    }
    for (Tensor& gradient : gradients) reads.push_back(gradient.ref());
    for (Tensor& parameter : p32) writes.push_back(parameter.ref());
    for (Tensor& state : m32)
      if (GetParam().states > 0) writes.push_back(state.ref());
    for (Tensor& state : v32)
      if (GetParam().states > 1) writes.push_back(state.ref());
    const OptimizerUpdate op{spec, 294, 3, GetParam().states};
    ASSERT_EQ(Launch(op, reads, writes, KernelContext{.step = step}), "");
  }
  for (size_t i = 0; i < tensors; ++i) {
    EXPECT_LT(RelativeError(p32[i], p[i]), 1e-6);
    EXPECT_LT(RelativeError(m32[i], m[i]), 1e-6);
    EXPECT_LT(RelativeError(v32[i], v[i]), 1e-6);
  }
}

// The update is that of fp32 moments which begin as the same numbers; only what is kept of them is rounded.
TEST_P(OptimizerKernel, RoundsMomentsInBf16AfterAnUpdateInFp32) {
  OptimizerSpec spec = SpecOf(GetParam());
  constexpr int64_t kElements = 333;
  Values squares = RandomValues(3, kElements);
  for (double& value : squares) value *= value;
  using Narrow = test::TensorOf<cpu::BFloat16>;
  Tensor gradient = RandomValues(0, kElements), p = RandomValues(1, kElements), p32 = p;
  Narrow m = RandomValues(2, kElements), v = squares;
  Tensor m32 = test::ValuesOf(m), v32 = test::ValuesOf(v);
  const auto run = [&](MomentsType moments, std::vector<TensorRef> writes) {
    spec.moments = moments;
    writes.resize(static_cast<size_t>(1 + GetParam().states));
    const OptimizerUpdate op{spec, kElements, 1, GetParam().states};
    ASSERT_EQ(Launch(op, {gradient.ref()}, writes, KernelContext{.step = 7}), "");
  };
  run(MomentsType::kBf16, {p.ref(), m.ref(), v.ref()});
  run(MomentsType::kFp32, {p32.ref(), m32.ref(), v32.ref()});
  EXPECT_EQ(p, p32);
  EXPECT_EQ(m, Narrow(test::ValuesOf(m32)));
  EXPECT_EQ(v, Narrow(test::ValuesOf(v32)));
}

// The update is that of fp32 moments which begin as the same numbers, and what is kept of them is packed.
TEST(OptimizerIn8Bits, PacksMomentsAfterAnUpdateInFp32) {
  constexpr int64_t kElements = 1000;
  OptimizerSpec spec{.kind = OptimizerKind::kAdamW, .lr = 0.01, .weight_decay = 0.1};
  using Bytes = std::vector<uint8_t>;
  const auto packed = [](DType dtype, const Values& numbers) {
    const std::vector<float> floats(numbers.begin(), numbers.end());
    Bytes bytes(static_cast<size_t>(ElementsFor(kElements, dtype) * SizeOf(dtype).count()));
    cpu::PackNumbers(dtype, floats, bytes.data());
    return bytes;
  };
  const auto unpacked = [](DType dtype, const Bytes& bytes) {
    std::vector<float> numbers(kElements);
    cpu::UnpackNumbers(dtype, bytes.data(), numbers);
    return Values(numbers.begin(), numbers.end());
  };
  Values squares = RandomValues(3, kElements);
  for (double& value : squares) value *= value;
  Bytes m = packed(DType::kDynamic8, RandomValues(2, kElements)),
        v = packed(DType::kDynamic8Unsigned, squares);
  Tensor gradient = RandomValues(0, kElements), p = RandomValues(1, kElements), p32 = p;
  Tensor m32 = unpacked(DType::kDynamic8, m), v32 = unpacked(DType::kDynamic8Unsigned, v);
  const OptimizerUpdate exact{spec, kElements, 1, 2};
  ASSERT_EQ(Launch(exact, {gradient.ref()}, {p32.ref(), m32.ref(), v32.ref()}, KernelContext{.step = 7}), "");
  spec.moments = MomentsType::kInt8;
  const int64_t blocks = ElementsFor(kElements, DType::kDynamic8);
  const OptimizerUpdate narrow{spec, kElements, 1, 2};
  ASSERT_EQ(Launch(narrow, {gradient.ref()}, {p.ref(), {m.data(), blocks}, {v.data(), blocks}},
                   KernelContext{.step = 7}),
            "");
  EXPECT_EQ(p, p32);
  EXPECT_EQ(m, packed(DType::kDynamic8, test::ValuesOf(m32)));
  EXPECT_EQ(v, packed(DType::kDynamic8Unsigned, test::ValuesOf(v32)));
}

TEST(GradientNormKernel, IsTheNormOverAllTensors) {
  // 3^2 + 4^2 + 12^2 = 13^2.
  Tensor a = Values{3, 4}, b = Values{12}, norm(1);
  ASSERT_EQ(Launch(GradientNorm{3, 2}, {a.ref(), b.ref()}, {norm.ref()}), "");
  EXPECT_EQ(norm[0], 13.0f);
}

TEST(GradientNormKernel, KeepsItsPrecisionOverManyElements) {
  const int64_t n = 1'000'000;
  Tensor x = Values(n, 0.1), norm(1);
  ASSERT_EQ(Launch(GradientNorm{n, 1}, {x.ref()}, {norm.ref()}), "");
  EXPECT_NEAR(norm[0], 100.0, 1e-5);  // sqrt(1e6 * 0.01); 0.1f is 0.1 + 1.5e-9
}

TEST(GradientNormKernel, SquaredSumsOverRanksAreRootedAfterwards) {
  Tensor here = Values{3, 4}, there = Values{12}, sum(1), other(1);
  ASSERT_EQ(Launch(GradientNorm{.elements = 2, .tensors = 1, .squared = true}, {here.ref()}, {sum.ref()}),
            "");
  ASSERT_EQ(Launch(GradientNorm{.elements = 1, .tensors = 1, .squared = true}, {there.ref()}, {other.ref()}),
            "");
  EXPECT_EQ(sum[0], 25.0f);
  sum[0] += other[0];
  ASSERT_EQ(Launch(SquareRoot{}, {sum.ref()}, {sum.ref()}), "");
  EXPECT_EQ(sum[0], 13.0f);
}

TEST(ClipGradientsKernel, ScalesToTheLargestNormAllowed) {
  Tensor a = Values{3, 4}, b = Values{12}, norm = Values{13};
  ASSERT_EQ(Launch(ClipGradients{3, 2, /*max_norm=*/1.3}, {norm.ref()}, {a.ref(), b.ref()}), "");
  EXPECT_NEAR(a[0], 0.3, 1e-6);
  EXPECT_NEAR(a[1], 0.4, 1e-6);
  EXPECT_NEAR(b[0], 1.2, 1e-6);
}

TEST(ClipGradientsKernel, LeavesSmallGradientsAlone) {
  Tensor a = Values{3, 4}, norm = Values{5};
  ASSERT_EQ(Launch(ClipGradients{2, 1, /*max_norm=*/6.0}, {norm.ref()}, {a.ref()}), "");
  EXPECT_EQ(a, (std::vector<float>{3, 4}));
}

TEST(UnscaleGradientsKernel, DividesByTheScaleAndFindsNothingAmongFiniteGradients) {
  Tensor a = Values{3, -4}, b = Values{65504 * 1024.0}, scale = Values{1024, 7, 1}, found = Values{1};
  ASSERT_EQ(Launch(UnscaleGradients{3, 2}, {scale.ref()}, {found.ref(), a.ref(), b.ref()}), "");
  EXPECT_EQ(found[0], 0.0f);
  EXPECT_EQ(a[1], -4.0f / 1024);
  EXPECT_EQ(b[0], 65504.0f);
}

TEST(UnscaleGradientsKernel, FindsOneElementThatIsInfiniteOrNoNumber) {
  for (double bad : {double{INFINITY}, -double{INFINITY}, std::nan("")}) {
    for (int64_t place : {0, 500, 999}) {
      Values values(1000, 1e30);
      values[place] = bad;
      Tensor a = Values{1}, b = values, scale = Values{2, 0, 0}, found(1);
      ASSERT_EQ(Launch(UnscaleGradients{1001, 2}, {scale.ref()}, {found.ref(), a.ref(), b.ref()}), "");
      EXPECT_EQ(found[0], 1.0f) << bad << " at " << place;
    }
  }
}

// torch.amp.GradScaler's rule, with a growth interval of three steps.
TEST(UpdateLossScaleKernel, HalvesAfterAnOverflowAndDoublesAfterAnIntervalWithout) {
  Tensor numbers = Values{1024, 0, 0};
  const UpdateLossScale op{.growth_interval = 3};
  std::vector<float> scales;
  for (double overflowed : {0, 0, 1, 0, 0, 0, 0, 1}) {
    Tensor found = Values{overflowed};
    ASSERT_EQ(Launch(op, {found.ref()}, {numbers.ref()}), "");
    scales.push_back(numbers[0]);
  }
  EXPECT_EQ(scales, (std::vector<float>{1024, 1024, 512, 512, 512, 1024, 1024, 512}));
  EXPECT_EQ(numbers[1], 0.0f);
  EXPECT_EQ(numbers[2], 2.0f);
}

TEST(UpdateLossScaleKernel, AStaticScaleOnlyCountsWhatWasSkipped) {
  Tensor numbers = Values{1024, 0, 0}, found = Values{1};
  ASSERT_EQ(Launch(UpdateLossScale{.dynamic = false}, {found.ref()}, {numbers.ref()}), "");
  EXPECT_EQ(numbers[0], 1024.0f);
  EXPECT_EQ(numbers[2], 1.0f);
}

TEST(UpdateLossScaleKernel, NeverGrowsToInfinity) {
  Tensor numbers = Values{1.0e38 * 3, 0, 0}, found = Values{0};
  ASSERT_EQ(Launch(UpdateLossScale{.growth_interval = 1}, {found.ref()}, {numbers.ref()}), "");
  EXPECT_EQ(numbers[0], 3.0e38f);
}

// A step that overflows is skipped: neither parameters nor moments change. A later step counts as if the
// skipped ones had not been: step 8 after three skipped steps counts as step 5.
TEST(GuardedOptimizerKernel, SkipsOverflowsAndDoesNotCountThem) {
  const OptimizerSpec adam{.kind = OptimizerKind::kAdam, .lr = 0.01};
  const auto update = [&](bool guarded, double found, double skipped, int64_t step) {
    Tensor gradient = Values{0.5, -2}, p = Values{1, 2}, m = Values{0.1, 0.2}, v = Values{0.3, 0.4};
    Tensor found_inf = Values{found}, numbers = Values{1024, 0, skipped};
    OptimizerUpdate op{adam, 2, 1, 2, guarded};
    std::vector<TensorRef> reads = {gradient.ref()};
    if (guarded) reads.insert(reads.end(), {found_inf.ref(), numbers.ref()});
    EXPECT_EQ(Launch(op, reads, {p.ref(), m.ref(), v.ref()}, KernelContext{.step = step}), "");
    return std::vector<float>{p[0], p[1], m[0], m[1], v[0], v[1]};
  };
  EXPECT_EQ(update(true, 1, 0, 5), (std::vector<float>{1, 2, 0.1f, 0.2f, 0.3f, 0.4f}));
  EXPECT_EQ(update(true, 0, 0, 5), update(false, 0, 0, 5));
  EXPECT_EQ(update(true, 0, 3, 8), update(false, 0, 0, 5));
}

}  // namespace
}  // namespace windtunnel
