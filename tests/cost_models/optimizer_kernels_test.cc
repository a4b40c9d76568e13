// The kernels of frameworks' optimizers, checked against numbers worked by hand.
#include <gtest/gtest.h>

#include "tests/cost_models/framework_times.h"

namespace windtunnel {
namespace {

// Per parameter: the norm reads four bytes, Adam moves seven times four, and two bytes become zero.
TEST(OptimizerKernels, MegatronsOptimizerMovesMoreThanAdam) {
  const OptimizerUpdate update{
      .spec = {.kind = OptimizerKind::kAdam}, .elements = 1'000'000'000, .tensors = 1, .state_tensors = 2};
  EXPECT_NEAR(DeviceMicroseconds(update, "megatron"), 34e9 / 1794.3e3, 40);
}

// Fused Adam reads four fp32 values and writes three: 28 bytes a parameter, instead of 80 in six passes over
// lists of tensors.
TEST(OptimizerKernels, PytorchsFusedAdamIsOnePass) {
  OptimizerUpdate update{
      .spec = {.kind = OptimizerKind::kAdamW, .weight_decay = 0.01}, .elements = 1 << 24, .tensors = 8};
  const double foreach = DeviceMicroseconds(update, "pytorch");
  update.spec.fused = true;
  EXPECT_NEAR(DeviceMicroseconds(update, "pytorch"), 1.115 * 28 * 16.777216e6 / 1.794e6 + 3, 1);
  EXPECT_NEAR(foreach - 8 * 3, 80 * 16.777216e6 / 1.794e6, 1) << "and eight starts";
  EXPECT_EQ(DeviceMicroseconds(update, "pytorch_compile"), DeviceMicroseconds(update, "pytorch"));
}

// Three passes over fp32 or half as wide values, and four bytes of moments, one kernel for each tensor. Whether
// it is called fused, and what decays, changes nothing.
TEST(OptimizerKernels, MomentsIn8BitsAreOnePassForEachTensor) {
  OptimizerUpdate update{.spec = {.kind = OptimizerKind::kAdamW, .moments = MomentsType::kInt8},
                         .elements = 1'000'000'000,
                         .tensors = 8,
                         .state_tensors = 2,
                         .one_by_one = true};
  constexpr double kBillionBytes = 1e9 / 1794.3e3;
  EXPECT_NEAR(DeviceMicroseconds(update, "pytorch"), 1.115 * 16 * kBillionBytes + 8 * 3, 60);
  const double in_fp32 = DeviceMicroseconds(update, "pytorch");
  update.spec.weight_decay = 0.1;
  update.spec.fused = true;
  EXPECT_EQ(DeviceMicroseconds(update, "pytorch"), in_fp32);
  EXPECT_EQ(DeviceMicroseconds(update, "pytorch_compile"), in_fp32);
  update.dtype = DType::kBFloat16;
  EXPECT_NEAR(DeviceMicroseconds(update, "pytorch"), 1.115 * 10 * kBillionBytes + 8 * 3, 60);
  update.dtype = DType::kFloat32;
  OptimizerUpdate of_small_tensors = update;  // in fp32, by a kernel for each, too
  of_small_tensors.spec.moments = MomentsType::kFp32;
  EXPECT_NEAR(DeviceMicroseconds(of_small_tensors, "pytorch"), 1.115 * 28 * kBillionBytes + 8 * 3, 60);
  EXPECT_NEAR(DeviceMicroseconds(update, "windtunnel"), 16.06 * kBillionBytes + 3, 60) << "with scales";
}

// torch.optim skips operations without effect. A pass over 16.8 million parameters takes 37.4 us; each kernel
// has a start.
TEST(OptimizerKernels, OptimizersPayForWhatTheyAreAskedFor) {
  const auto microseconds = [](OptimizerSpec spec, const char* framework) {
    return DeviceMicroseconds(OptimizerUpdate{.spec = spec, .elements = 1 << 24, .tensors = 8}, framework);
  };
  constexpr double kPass = 4 * 16.777216e6 / 1.794e6;
  const OptimizerSpec adamw{.kind = OptimizerKind::kAdamW}, adam{.kind = OptimizerKind::kAdam},
      sgd{.kind = OptimizerKind::kSgd};
  const auto with_decay = [](OptimizerSpec spec) { return spec.weight_decay = 0.1, spec; };
  const auto with_momentum = [](OptimizerSpec spec) { return spec.momentum = 0.9, spec; };
  for (const char* framework : {"pytorch", "pytorch_compile"}) {
    EXPECT_NEAR(microseconds(with_decay(adamw), framework) - microseconds(adamw, framework), 2 * kPass + 3,
                0.5);
    EXPECT_NEAR(microseconds(with_decay(adam), framework) - microseconds(adam, framework), 3 * kPass + 3,
                0.5);
    EXPECT_NEAR(microseconds(with_momentum(sgd), framework) - microseconds(sgd, framework), 5 * kPass + 6,
                0.5);
    const OptimizerSpec fused{.kind = OptimizerKind::kSgd, .fused = true};
    EXPECT_NEAR(microseconds(with_momentum(fused), framework) - microseconds(fused, framework), 2 * kPass,
                0.5);
  }
  const auto with_narrow_moments = [](OptimizerSpec spec) { return spec.moments = MomentsType::kBf16, spec; };
  for (const char* framework : {"megatron", "megatron_core", "deepspeed"}) {
    EXPECT_NEAR(microseconds(with_momentum(sgd), framework) - microseconds(sgd, framework), 2 * kPass, 0.5);
    EXPECT_NEAR(microseconds(adamw, framework) - microseconds(with_narrow_moments(adamw), framework),
                2 * kPass, 0.5)
        << "two moments that are read and written in half as many bytes";
    EXPECT_NEAR(microseconds(with_momentum(sgd), framework) -
                    microseconds(with_narrow_moments(with_momentum(sgd)), framework),
                kPass, 0.5);
  }
}

// For a billion parameters, SGD's update moves 12 B each, momentum 20 B more and decay 12 B more. A single
// kernel moves only what it must.
TEST(OptimizerKernels, HostsGoThroughMemoryForEveryOperatorOfAnOptimizer) {
  const auto bytes = [](const OptimizerSpec& spec, const char* framework, int states) {
    const OptimizerUpdate update{
        .spec = spec, .elements = 1'000'000'000, .tensors = 1, .state_tensors = states};
    return static_cast<double>(HostTraffic(update, Known(framework)).count()) / 1e9;
  };
  OptimizerSpec sgd{.kind = OptimizerKind::kSgd};
  EXPECT_EQ(bytes(sgd, "pytorch", 0), 12);
  sgd.momentum = 0.9;
  EXPECT_EQ(bytes(sgd, "pytorch", 1), 32);
  EXPECT_EQ(bytes(sgd, "deepspeed", 1), 20);
  sgd.weight_decay = 0.1;
  EXPECT_EQ(bytes(sgd, "pytorch", 1), 44);
  sgd.fused = true;
  EXPECT_EQ(bytes(sgd, "pytorch", 1), 20);
  EXPECT_EQ(bytes({.kind = OptimizerKind::kAdamW}, "deepspeed", 2), 28);
  EXPECT_EQ(bytes({.kind = OptimizerKind::kAdamW, .moments = MomentsType::kBf16}, "deepspeed", 2), 20);
}

// Per parameter, in PyTorch: twelve bytes for the momentum and twelve for Nesterov's sum, six to round, two
// for the norm, four for the division, by six kernels; then eight to decay, and ten to update. In one kernel
// each, Windtunnel's read and write fourteen and ten bytes, beside the norm's and the division's four.
TEST(OptimizerKernels, MuonMovesWhatTorchsCodeSays) {
  const double billion_bytes = 1e9 / 1794.3e3;  // in us, on an A100
  const OptimizerSpec spec{.kind = OptimizerKind::kMuon, .weight_decay = 0.1, .momentum = 0.95};
  const MuonDirection direction{spec, 1'000'000'000};
  const MuonUpdate update{spec, 1'000'000'000};
  for (const char* framework : {"pytorch", "pytorch_compile"}) {
    EXPECT_NEAR(DeviceMicroseconds(direction, framework), 36 * billion_bytes + 6 * 3, 40);
    EXPECT_NEAR(DeviceMicroseconds(update, framework), 18 * billion_bytes + 2 * 3, 20);
  }
  EXPECT_NEAR(DeviceMicroseconds(direction, "windtunnel"), 18 * billion_bytes + 3 * 3, 20);
  EXPECT_NEAR(DeviceMicroseconds(update, "windtunnel"), 10 * billion_bytes + 3, 20);
}

// Megatron sums a weight's gradient into a buffer after the product, which has the layout of x' x; the
// optimizer's product of that layout is no such gradient. Nor does autograd issue it.
TEST(OptimizerKernels, ProductsOfTheOptimizerAreNotThoseOfBackward) {
  Gemm gradient{4096, 4096, 4096, /*transpose_a=*/true};
  gradient.dtype = DType::kBFloat16;
  Gemm gram = gradient;
  gram.of_optimizer = true;
  EXPECT_GT(DeviceMicroseconds(gradient, "megatron"), DeviceMicroseconds(gram, "megatron") + 40);
  EXPECT_GT(HostMicroseconds(gradient, "pytorch"), HostMicroseconds(gram, "pytorch") + 5);
}

// torch.linalg.qr: published times of [4096,4], [8192,8], [128,32] and [512,64].
TEST(OptimizerKernels, PytorchsQrTakesWhatItsColumnsSay) {
  struct Qr {
    int64_t rows, columns;
    double us;
  };
  for (const Qr& qr : {Qr{4096, 4, 74}, Qr{8192, 8, 112}, Qr{128, 32, 179}, Qr{512, 64, 259}})
    EXPECT_NEAR(DeviceMicroseconds(Orthonormalize{qr.rows, qr.columns}, "pytorch"), qr.us, 0.15 * qr.us)
        << qr.columns;
  EXPECT_GT(HostMicroseconds(Orthonormalize{4096, 4}, "pytorch"), 100);
}

// One column: its norm, and a quotient. Each further one: four kernels more, that take what lies along it out.
TEST(OptimizerKernels, PytorchTakesGramSchmidtForUpToTwoColumnsAndFor16Bits) {
  const auto kernels = [](const Orthonormalize& o) { return DeviceMicroseconds(o, "pytorch") / 3; };
  EXPECT_NEAR(kernels({1, 1}), 2, 0.01);
  EXPECT_NEAR(kernels({2, 2}), 8, 0.01);
  EXPECT_NEAR(kernels({4, 4, DType::kBFloat16}), 20, 0.01);
}

}  // namespace
}  // namespace windtunnel
