// The kernels that frameworks run for operators, checked against numbers worked by hand.
#include "cost_models/framework_kernels.h"
#include "cost_models/operator_shape.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tuple>

#include "tests/cost_models/framework_times.h"
#include "tests/cost_models/without_place.h"

namespace windtunnel {
namespace {

const NormForward kNorm{.rows = 2048, .columns = 4096, .residual = true, .dtype = DType::kBFloat16};

// A pass over 16.8 MB at 2,039 x 0.88 GB/s takes 9.35 us. The sum makes three passes. The norm makes two,
// which take as long as 3.3. Each of these two kernels has a start of 3 us.
TEST(FrameworkKernels, EagerPytorchMovesTheResidualSumAndTheNormApart) {
  EXPECT_NEAR(DeviceMicroseconds(kNorm, "pytorch"), 6.3 * 9.35 + 6, 0.1);
  // Windtunnel's is one kernel: both inputs in, the sum and the norm out.
  EXPECT_NEAR(DeviceMicroseconds(kNorm, "windtunnel"), 4 * 9.35 + 3, 0.1);
}

// A framework profile names an operator by the first word of its cost key, whatever the operator's sizes and
// flags.
TEST(FrameworkKernels, OperatorsGoByTheFirstWordOfTheirKeys) {
  const OpKind examples[] = {
      kNorm,
      Gemm{.m = 2, .n = 3, .k = 4, .transpose_b = true, .bias = true, .dtype = DType::kBFloat16},
      Rope{.batch = 1, .seq = 2, .heads = 3, .kv_heads = 3, .head_dim = 4, .backward = true},
      Rope{.batch = 1, .seq = 2, .heads = 3, .kv_heads = 3, .head_dim = 8, .rotated = 4},
      Copy{.elements = 7, .from = DType::kFloat32, .to = DType::kBFloat16},
      VocabParallelSums{.rows = 2, .vocab = 3},
      OptimizerUpdate{.spec = {}, .elements = 5, .tensors = 2},
      SplitColumns{.ranks = 2, .rows = 2, .columns = {}},
      SplitColumns{.ranks = 2, .rows = 2, .columns = {}, .join = true},
  };
  for (const OpKind& kind : examples) {
    const std::string key = CostKey(kind);
    EXPECT_EQ(ShapeOf(kind, DType::kBFloat16).key, key.substr(0, key.find(' ')));
  }
}

TEST(FrameworkKernels, TheHostPaysForEveryKernel) {
  EXPECT_NEAR(HostMicroseconds(kNorm, "windtunnel"), 3, 1e-9);
  EXPECT_NEAR(HostMicroseconds(kNorm, "pytorch"), 2 * (3 + 26), 1e-9);
  EXPECT_NEAR(HostMicroseconds(kNorm, "pytorch_compile"), 6.8, 1e-9);
}

// A pass over 134 MB takes 74.8 us, and a kernel's start 3 us. The formula of transformers' NewGELUActivation
// makes 23 passes in nine kernels, and 35 in thirteen backward; a GELU and its product with the value 5 in
// two, and 9 in three.
TEST(FrameworkKernels, GeluThatIsWrittenOutMovesEachResult) {
  const auto written_out = LoadFrameworkProfile("cost_models/frameworks/variants/pytorch_gelu_new.json");
  ASSERT_TRUE(written_out) << written_out.error().message;
  const auto time = [](const OpKind& kind, const FrameworkProfile& framework) {
    return DeviceTime(kind, framework, A100(), {.parameters = DType::kFloat32}).value() / Microseconds(1);
  };
  const ActivationForward forward{ActivationKind::kGeglu, 16384, 2048};
  const ActivationBackward backward{ActivationKind::kGeglu, 16384, 2048};
  EXPECT_NEAR(time(forward, *written_out), 23 * 74.8 + 9 * 3, 2);
  EXPECT_NEAR(time(backward, *written_out), 35 * 74.8 + 13 * 3, 2);
  EXPECT_NEAR(time(forward, Known("pytorch")), 5 * 74.8 + 2 * 3, 2);
  EXPECT_NEAR(time(backward, Known("pytorch")), 9 * 74.8 + 3 * 3, 2);
}

// Megatron pads the vocabulary but not heads; eager PyTorch pads neither. 108 is a multiple of 4.
TEST(FrameworkKernels, WhoPadsProductsPaysNothingForOddRows) {
  const auto head = [](int64_t vocabulary) {
    return Gemm{.m = 8192, .n = vocabulary, .k = 768, .transpose_b = true, .dtype = DType::kBFloat16};
  };
  for (const char* pads : {"megatron", "megatron_core", "deepspeed", "pytorch_compile"})
    EXPECT_LT(DeviceMicroseconds(head(50257), pads), 1.01 * DeviceMicroseconds(head(50304), pads)) << pads;
  for (const char* slow : {"pytorch", "pytorch_fsdp1", "windtunnel"})
    EXPECT_GT(DeviceMicroseconds(head(50257), slow), 2 * DeviceMicroseconds(head(50304), slow)) << slow;
  const auto attention = [](int64_t head_dim) {
    return AttentionForward{1, 2048, 16, 16, head_dim, AttentionKind::kEager, DType::kFloat16};
  };
  EXPECT_GT(DeviceMicroseconds(attention(108), "megatron_core"),
            1.05 * DeviceMicroseconds(attention(112), "megatron_core"));
}

// Heads of 108 are rows of 216 bytes, no multiple of 16. Two products of 2048 x 2048 x 108 for 16 heads take
// 889 us each at 0.836 of the 19.5 TFLOP/s that an A100 has without tensor cores. This holds in bf16 and
// fp16, not in fp32, which has no tensor cores anyway.
TEST(FrameworkKernels, MegatronOf2021HasNoTensorCoresForUnalignedBatches) {
  const auto attention = [](int64_t head_dim, DType dtype, std::string_view framework) {
    return DeviceMicroseconds(AttentionForward{1, 2048, 16, 16, head_dim, AttentionKind::kEager, dtype},
                              framework);
  };
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const double aligned = attention(112, dtype, "megatron");
    for (const char* old : {"megatron", "deepspeed"}) {
      EXPECT_GT(attention(108, dtype, old), 2 * 889) << old;
      EXPECT_LT(attention(108, dtype, old), 2 * 889 + aligned) << old;
    }
    EXPECT_LT(attention(104, dtype, "megatron"), 1.1 * aligned);
    EXPECT_LT(attention(108, dtype, "megatron_core"), 1.5 * attention(112, dtype, "megatron_core"));
  }
  EXPECT_LT(attention(108, DType::kFloat32, "megatron"), attention(112, DType::kFloat32, "megatron"));
}

// The gradients of a norm's weights take kernels of their own, or a part of one. (A compiler's single kernel
// is modelled by what it moves at the least.)
TEST(FrameworkKernels, FrozenNormsCostLess) {
  NormBackward norm{NormKind::kRmsNorm, 8192, 4096, false, true, false, DType::kBFloat16};
  HeadNormBackward heads{
      .tokens = 8192, .heads = 32, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBFloat16};
  for (const char* framework : {"pytorch", "megatron", "megatron_core", "deepspeed"}) {
    norm.frozen = heads.frozen = false;
    const double of_norm = DeviceMicroseconds(norm, framework),
                 of_heads = DeviceMicroseconds(heads, framework);
    norm.frozen = heads.frozen = true;
    EXPECT_GT(DeviceMicroseconds(norm, framework), 0.4 * of_norm) << framework;
    EXPECT_LT(DeviceMicroseconds(norm, framework), of_norm) << framework;
    EXPECT_GT(DeviceMicroseconds(heads, framework), 0.4 * of_heads) << framework;
    EXPECT_LT(DeviceMicroseconds(heads, framework), of_heads) << framework;
  }
}

// Megatron adds a row-parallel layer's bias with the residual stream: as an operator it costs nothing.
TEST(FrameworkKernels, AnOperatorThatTheFrameworkFusesElsewhereCostsNothing) {
  const AddBias bias{.rows = 2048, .columns = 4096, .dtype = DType::kFloat16};
  EXPECT_EQ(DeviceMicroseconds(bias, "megatron"), 0);
  EXPECT_EQ(HostMicroseconds(bias, "megatron"), 0);
  EXPECT_GT(DeviceMicroseconds(bias, "pytorch"), 0);
}

// The weight gradient's product accumulates into the gradient buffer: 8 bytes per element of an fp32 buffer
// at 1,794 GB/s, without a kernel of its own. A sum of activations has a kernel.
TEST(FrameworkKernels, MegatronCoresProductsAddGradientsUp) {
  const Copy gradient{
      .elements = 1 << 24, .from = DType::kBFloat16, .to = DType::kFloat32, .accumulate = true};
  EXPECT_NEAR(DeviceMicroseconds(gradient, "megatron_core"), 74.8, 0.1);
  EXPECT_EQ(HostMicroseconds(gradient, "megatron_core"), 0);
  EXPECT_GT(DeviceMicroseconds(gradient, "megatron"), 90);
  const Copy sum{.elements = 1 << 24, .from = DType::kBFloat16, .to = DType::kBFloat16, .accumulate = true};
  EXPECT_GT(DeviceMicroseconds(sum, "megatron_core"), 50);
  const Gemm weight{.m = 4096, .n = 4096, .k = 4096, .transpose_a = true, .dtype = DType::kBFloat16};
  EXPECT_LT(DeviceMicroseconds(weight, "megatron_core"), DeviceMicroseconds(weight, "megatron"));
}

// A cast reads 2 bytes and writes one: 50.3 MB at 1,794 GB/s. The same kernel writes the transposed copy, one
// more byte: 16.8 MB. Micro-batches that share a cast each bear their part of it, also of its launches.
TEST(FrameworkKernels, MegatronCoreConvertsAndTransposesAtOnce) {
  Fp8Cast cast{.rows = 4096, .columns = 4096, .dtype = DType::kBFloat16};
  EXPECT_NEAR(DeviceMicroseconds(cast, "megatron_core"), 28.05 + 3, 0.1);
  const double host = HostMicroseconds(cast, "megatron_core");
  cast.shared_by = 16;
  EXPECT_NEAR(DeviceMicroseconds(cast, "megatron_core"), (28.05 + 3) / 16, 0.01);
  EXPECT_NEAR(HostMicroseconds(cast, "megatron_core"), host / 16, 1e-6);
  cast.transposed = cast.with_other = true;
  EXPECT_NEAR(DeviceMicroseconds(cast, "megatron_core"), 9.35 / 16, 0.01);
  EXPECT_EQ(HostMicroseconds(cast, "megatron_core"), 0);
  cast.with_other = false;
  cast.shared_by = 1;
  EXPECT_NEAR(DeviceMicroseconds(cast, "megatron_core"), 28.05 + 3, 0.1) << "converted anew";
  cast.dtype = DType::kFloat8;
  EXPECT_NEAR(DeviceMicroseconds(cast, "megatron_core"), 18.7 + 3, 0.1);
}

// A pass over 16.8 MB takes 9.35 us. FlashAttention's loss reads the logits for the loss, and again for the
// gradient, which it writes. Transformer Engine's writes the gradient with the loss, and multiplies it later.
// Eager PyTorch moves 36 bytes a logit.
TEST(FrameworkKernels, FusedLossesPassOverLogitsInTheirOwnType) {
  const CrossEntropy eager{.rows = 2048, .vocab = 4096, .dtype = DType::kBFloat16};
  CrossEntropy fused = eager;
  fused.fused = true;
  EXPECT_NEAR(DeviceMicroseconds(fused, "pytorch"), 3 * 9.35 + 2 * 3, 0.1);
  EXPECT_NEAR(DeviceMicroseconds(fused, "pytorch_compile"), 3 * 9.35 + 2 * 3, 0.1);
  EXPECT_NEAR(DeviceMicroseconds(fused, "megatron_core"), 5 * 9.35 + 3 * 3, 0.1);
  EXPECT_GT(DeviceMicroseconds(eager, "pytorch"), 36 / 2 * 9.35);
  const VocabParallelSums sums{.rows = 2048, .vocab = 4096, .dtype = DType::kBFloat16, .fused = true};
  EXPECT_EQ(DeviceMicroseconds(sums, "megatron_core"), 0) << "they came with the maximum";
}

// For each expert Transformer Engine launches, from a loop in C++, the product and, for its inputs, the
// search for the largest magnitude (2 kernels) and the cast, which also transposes. A copy that is transposed
// later costs only its writing.
TEST(FrameworkKernels, MegatronCoreLaunchesEachExpertsProduct) {
  const GroupedGemm product{
      .groups = 16, .m = 8, .n = 8, .k = 8, .transpose_b = true, .dtype = DType::kBFloat16};
  EXPECT_NEAR(HostMicroseconds(product, "megatron_core"), 3 + 127 + 16 * (3 + 7 + 13), 1e-9);
  GroupedGemm in_fp4 = product;
  in_fp4.dtype = DType::kFloat4x2;
  in_fp4.is_forward = true;
  EXPECT_NEAR(HostMicroseconds(in_fp4, "megatron_core"), 3 + 127 + 16 * 33, 1e-9);
  EXPECT_NEAR(HostMicroseconds(product, "pytorch"), 3 + 26, 1e-9);
  EXPECT_GE(DeviceMicroseconds(product, "megatron_core"), 16 * 3);
  const Fp8Amax amax{.rows = 128, .columns = 8, .dtype = DType::kBFloat16, .groups = 16};
  EXPECT_NEAR(HostMicroseconds(amax, "megatron_core"), 2 * 16 * (3 + 7), 1e-9);
  const Fp8Cast cast{.rows = 128, .columns = 8, .dtype = DType::kBFloat16, .groups = 16};
  EXPECT_NEAR(HostMicroseconds(cast, "megatron_core"), 16 * (3 + 7), 1e-9);
  const Fp8Cast transposed{
      .rows = 128, .columns = 8, .transposed = true, .dtype = DType::kFloat8, .groups = 16};
  EXPECT_EQ(HostMicroseconds(transposed, "megatron_core"), 0);
  EXPECT_LT(DeviceMicroseconds(transposed, "megatron_core"), 1);
}

// 18 kernels count which tokens go where before the tokens are put in order. Tokens that arrive have been
// counted by their senders.
TEST(FrameworkKernels, MegatronCoreCountsTokensBeforeItSendsThem) {
  DispatchTokens dispatch{{.tokens = 8, .hidden = 8, .top_k = 2, .rows = 16, .dtype = DType::kBFloat16}};
  const double arrived = HostMicroseconds(dispatch, "megatron_core");
  dispatch.counted = true;
  EXPECT_NEAR(HostMicroseconds(dispatch, "megatron_core") / arrived, (18 + 4) / 4.0, 1e-9);
}

// cuDNN's attention is half as fast again as FlashAttention-2 on an H100; an A100's is FlashAttention-2's.
TEST(FrameworkKernels, MegatronCoreHasCudnnsAttention) {
  const DeviceSpec h100 = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  const AttentionBackward attention{1, 8192, 32, 8, 128, AttentionKind::kFlash, DType::kBFloat16};
  const auto time = [&](const char* framework, const DeviceSpec& device) {
    return DeviceTime(attention, Known(framework), device, {}).value();
  };
  EXPECT_NEAR(time("megatron", h100) / time("megatron_core", h100), 457.0 / 308, 0.02);
  EXPECT_EQ(time("megatron", A100()), time("megatron_core", A100()));
}

// Windtunnel's own runtime uses cuDNN where cuDNN has a kernel (runtime/cuda/fused_attention.cc), and its own
// kernels otherwise.
TEST(FrameworkKernels, WindtunnelHasCudnnsAttentionWhereTheLiveStepHas) {
  const DeviceSpec h100 = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  const auto ratio = [&](const OpKind& kind) {
    return DeviceTime(kind, Known("windtunnel"), h100, {}).value() /
           DeviceTime(kind, Known("megatron_core"), h100, {}).value();
  };
  AttentionBackward attention{1, 8192, 32, 8, 128, AttentionKind::kFlash, DType::kBFloat16};
  EXPECT_NEAR(ratio(attention), 1, 0.05);  // Megatron-Core has other kernels around it
  attention.seq = 8192 + 64;               // the last tile of keys is not full
  EXPECT_GT(ratio(attention), 1.4);
  AttentionForward forward{1, 8192 + 64, 32, 8, 128, AttentionKind::kFlash, DType::kBFloat16};
  EXPECT_NEAR(ratio(forward), 1, 0.01);
  forward.head_dim = 100;
  EXPECT_GT(ratio(forward), 1.4);
  const ContextAttentionForward of_a_ring{1, 4096, 32, 8, 128, 2, 1, 1, DType::kBFloat16};
  EXPECT_GT(ratio(of_a_ring), 1.4);
}

TEST(FrameworkKernels, NobodysRatesOfDeterministicAttentionAreKnown) {
  AttentionBackward attention{1, 1024, 8, 8, 64, AttentionKind::kFlash, DType::kBFloat16};
  attention.deterministic = true;
  const auto time = DeviceTime(attention, Known("windtunnel"), A100(), {});
  ASSERT_FALSE(time);
  EXPECT_EQ(time.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(time.error().message,
            "run.deterministic: nobody's rates of deterministic attention are known for a100-sxm-80g");
}

AttentionForward Eager(int64_t batch, int64_t heads) {
  return {.batch = batch,
          .seq = 1024,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = 64,
          .kind = AttentionKind::kEager,
          .dtype = DType::kFloat16};
}

// Megatron's fused softmax needs heads x batch to be a multiple of four. Otherwise fp32 scores pass through
// memory: 44 bytes more an element are 27 passes of two bytes instead of 4.5.
TEST(FrameworkKernels, MegatronsSoftmaxIsFusedOnlyInFours) {
  const double fused = DeviceMicroseconds(Eager(2, 2), "megatron"),
               apart = DeviceMicroseconds(Eager(1, 2), "megatron");
  EXPECT_GT(apart, fused * 1.1);  // half of the scores, more time
  EXPECT_GT(HostMicroseconds(Eager(1, 2), "megatron"), HostMicroseconds(Eager(2, 2), "megatron"));
}

// The optimizer kernels of Megatron and DeepSpeed already include the norm (and DeepSpeed's the clipping).
// Their blocks' kernels include dropout, except Megatron-Core's, whose sum of bias and residual writes the
// mask in addition.
TEST(FrameworkKernels, NothingIsCountedTwice) {
  const int64_t n = 1 << 24;
  const GradientNorm norm{.elements = n, .tensors = 8};
  const ClipGradients clip{.elements = n, .tensors = 8};
  const Dropout forward{.elements = n, .dtype = DType::kBFloat16},
      backward{.elements = n, .backward = true, .dtype = DType::kBFloat16};
  for (const char* framework : {"megatron", "megatron_core", "deepspeed"})
    EXPECT_EQ(DeviceMicroseconds(norm, framework), 0);
  EXPECT_EQ(DeviceMicroseconds(clip, "deepspeed"), 0);
  EXPECT_GT(DeviceMicroseconds(clip, "megatron"), 0);
  for (const char* framework : {"megatron", "deepspeed"}) {
    EXPECT_EQ(DeviceMicroseconds(forward, framework), 0);
    EXPECT_EQ(DeviceMicroseconds(backward, framework), 0);
  }
  EXPECT_NEAR(DeviceMicroseconds(forward, "megatron_core"), n / 1.794e6, 0.1);
  EXPECT_NEAR(DeviceMicroseconds(backward, "megatron_core"), 5 * n / 1.794e6 + 3, 0.1);
  EXPECT_NEAR(DeviceMicroseconds(forward, "pytorch"), 5 * n / 1.794e6 + 3, 0.1);
}

// Training in bf16 alone has gradients of two bytes.
TEST(FrameworkKernels, ClippingMovesGradientsInTheirType) {
  const int64_t n = 1 << 24;
  EXPECT_EQ(TrafficOf(ClipGradients{.elements = n, .dtype = DType::kBFloat16}), Bytes(4 * n));
  EXPECT_EQ(TrafficOf(GradientNorm{.elements = n, .dtype = DType::kBFloat16}), Bytes(2 * n));
  EXPECT_EQ(TrafficOf(ClipGradients{.elements = n}), Bytes(8 * n));
}

// The loops of Userbuffers and of async tensor parallelism take a launch and 7 us for each part and each
// copy. Python's time for the operator counts once for all parts.
TEST(FrameworkKernels, ProductsInPartsAreOneOperatorOfTheHost) {
  const Gemm whole{.m = 4096, .n = 1024, .k = 1024, .transpose_b = true, .dtype = DType::kBFloat16};
  Gemm part = whole;
  part.m /= 8;
  part.streams = 3;
  part.parts = 8;
  EXPECT_NEAR(HostMicroseconds(whole, "megatron_core"), kLaunch / Microseconds(1) + 127, 1e-9);
  EXPECT_NEAR(8 * HostMicroseconds(part, "megatron_core"), 8 * (3 + 7) + 127, 1e-9);
  Collective shift{.kind = CollectiveKind::kShift, .dtype = DType::kBFloat16, .elements = 1 << 20};
  EXPECT_NEAR(HostMicroseconds(shift, "megatron_core"), 3 + 140, 1e-9);
  shift.by_copy_engine = true;
  EXPECT_NEAR(HostMicroseconds(shift, "megatron_core"), 3 + 7, 1e-9);
}

// Gradients that an offloaded optimizer needs in fp32 cross the link to the host at its rate (48 GB/s on an
// H100, 24 on an A100), however fast the device converts them.
TEST(FrameworkKernels, WhatCrossesToTheHostGoesAtItsLinksRate) {
  Copy copy{1 << 26, DType::kBFloat16, DType::kFloat32};
  EXPECT_NEAR(DeviceMicroseconds(copy, "pytorch"), 1.57 * 6 * 67.108864e6 / 1.794e6 + 3, 3);
  copy.crosses = Copy::Crosses::kToHost;
  for (const char* framework : {"pytorch", "pytorch_compile", "windtunnel"})
    EXPECT_NEAR(DeviceMicroseconds(copy, framework), 4 * 67.108864e6 / 24e3 + 3, 3) << framework;
}

// Unscaling reads and writes 4 bytes a gradient; DeepSpeed only reads, and unscales where it clips.
TEST(FrameworkKernels, UnscalingIsAPassOfItsOwn) {
  const UnscaleGradients unscale{.elements = 1'000'000'000, .tensors = 1};
  EXPECT_NEAR(DeviceMicroseconds(unscale, "megatron"), 8e9 / 1794.3e3, 10);
  EXPECT_NEAR(DeviceMicroseconds(unscale, "deepspeed"), 4e9 / 1794.3e3, 10);
}

// A loop over tensors needs neither modules nor gradients: 7 us and a launch.
TEST(FrameworkKernels, LoopsOverTensorsCostTheHostLess) {
  EXPECT_NEAR(HostMicroseconds(Copy{.elements = 100}, "megatron"), 10, 1e-9);
  EXPECT_NEAR(HostMicroseconds(Gemm{.m = 8, .n = 8, .k = 8, .transpose_b = true}, "megatron"), 50, 1e-9);
}

// A slower host takes as long to launch a kernel, and longer for what frameworks do beside that.
TEST(FrameworkKernels, AHostMayBeSlowerBesideLaunches) {
  const auto host = [](const OpKind& kind) {
    return HostTime(kind, Known("pytorch"), {kLaunch, 1.5}, {}) / Microseconds(1);
  };
  EXPECT_NEAR(host(Gemm{.m = 8, .n = 8, .k = 8, .transpose_b = true}), 3 + 1.5 * 26, 1e-9);
  EXPECT_NEAR(host(Copy{.elements = 100}), 3 + 1.5 * 7, 1e-9);
}

// Rows of eight experts: into fp8 each by kernels of its own, into fp4 all by two for the magnitudes and one.
TEST(FrameworkKernels, ConvertRowsOfExpertsIntoFp4Together) {
  const auto host = [](bool together) {
    const Fp8Amax amax{.rows = 64, .columns = 32, .groups = 8, .together = together};
    Fp8Cast cast{.rows = 64, .columns = 32, .recipe = Fp8Recipe::kNvfp4, .groups = 8, .together = together};
    const double over_columns = HostMicroseconds(cast, "megatron_core");
    cast.transposed = true;
    return std::tuple{HostMicroseconds(amax, "megatron_core"), over_columns,
                      HostMicroseconds(cast, "megatron_core")};
  };
  EXPECT_EQ(host(false), (std::tuple{8 * 2 * 10.0, 8 * 10.0, 8 * 10.0}));
  EXPECT_EQ(host(true), (std::tuple{2 * 10.0, 10.0, 0.0})) << "both forms by one kernel";
}

// Two kernels of a norm: 29 us each with gradients, 20.5 without; and 850 us around each of Megatron's
// blocks.
TEST(FrameworkKernels, RecomputationRunsForwardOnceWithoutGradients) {
  const ArithmeticContext recomputes{.recomputed = 1};
  EXPECT_NEAR(HostTime(kNorm, Known("pytorch"), {kLaunch}, recomputes) / Microseconds(1), 29 + 20.5, 1e-9);
  const AttentionBackward attention{.batch = 4, .seq = 64, .heads = 4, .kv_heads = 4, .head_dim = 64};
  const FrameworkProfile& megatron = Known("megatron");
  EXPECT_EQ(
      HostTime(attention, megatron, {kLaunch}, recomputes) - HostTime(attention, megatron, {kLaunch}, {}),
      Microseconds(850));
}

// Attention of context ranks counts as a block's attention, too: whole, or in the steps of a ring, of which
// only the first counts.
TEST(FrameworkKernels, RecomputationOfABlockCostsAsMuchWithContextRanks) {
  const FrameworkProfile& megatron = Known("megatron");
  const auto around = [&](int blocks, int step) {
    const ContextAttentionBackward attention{.batch = 4,
                                             .seq = 64,
                                             .heads = 4,
                                             .kv_heads = 4,
                                             .head_dim = 64,
                                             .ranks = 4,
                                             .blocks = blocks,
                                             .step = step};
    return HostTime(attention, megatron, {kLaunch}, {.recomputed = 1}) -
           HostTime(attention, megatron, {kLaunch}, {});
  };
  EXPECT_EQ(around(4, 0), Microseconds(850));
  EXPECT_EQ(around(1, 0), Microseconds(850));
  EXPECT_EQ(around(1, 3), Duration());
}

// Modules and autograd's engine issue a dropout as they do its neighbours, and also the operators that bring
// tokens to experts.
TEST(FrameworkKernels, WhatTheModelIssuesIsNoLoop) {
  EXPECT_EQ(ShapeOf(Dropout{.elements = 8}, DType::kFloat32).issuer, OperatorShape::Issuer::kModel);
  EXPECT_EQ(ShapeOf(Dropout{.elements = 8, .backward = true}, DType::kFloat32).issuer,
            OperatorShape::Issuer::kEngine);
  EXPECT_EQ(ShapeOf(CombineTokens{{.tokens = 8}, true}, DType::kFloat32).issuer,
            OperatorShape::Issuer::kModel);
  EXPECT_EQ(ShapeOf(CombineTokens{{.tokens = 8}, false}, DType::kFloat32).issuer,
            OperatorShape::Issuer::kEngine);
}

TEST(FrameworkKernels, FlashAttentionOfFsdp1IsTheFirst) {
  const AttentionForward flash{.batch = 8,
                               .seq = 2048,
                               .heads = 16,
                               .kv_heads = 16,
                               .head_dim = 64,
                               .kind = AttentionKind::kFlash,
                               .dtype = DType::kBFloat16};
  EXPECT_NEAR(DeviceMicroseconds(flash, "pytorch_fsdp1") / DeviceMicroseconds(flash, "pytorch"), 140 / 102.1,
              0.02);
  Scenario scenario;
  scenario.framework = Framework::kPytorch;
  scenario.parallel.data.kind = DataParallelKind::kFsdp;
  scenario.parallel.data.version = 1;
  EXPECT_EQ(FrameworkOf(scenario).name, "pytorch_fsdp1");
  scenario.parallel.data.version = 2;
  EXPECT_EQ(FrameworkOf(scenario).name, "pytorch");
}

TEST(FrameworkKernels, ResidualsScaleWhatTheyAreOf) {
  const std::string json =
      CalibratedFrameworkJson("mine", "pytorch", {.host = 2, .gemm = 1.5, .memory = 3}, {});
  const FrameworkProfile mine = ParseFrameworkProfile(json, "mine").value();
  EXPECT_EQ(mine.residuals.gemm, 1.5);
  EXPECT_NEAR(HostTime(kNorm, mine, {kLaunch}, {}) / Microseconds(1), 116, 1e-6);
  EXPECT_NEAR(DeviceTime(kNorm, mine, A100(), {}).value() / Microseconds(1), 18.9 * 9.35 + 6, 0.2);
  const Gemm gemm{.m = 4096, .n = 4096, .k = 4096, .dtype = DType::kBFloat16};
  EXPECT_NEAR(DeviceTime(gemm, mine, A100(), {}).value() / Microseconds(1), 1.5 * 573.1 + 3, 0.2);
}

TEST(FrameworkKernels, LayersScaleWhatTheyTakeByTheirShape) {
  const LayerShape shape{.micro = 4, .seq_len = 1024, .hidden = 2048, .tensor = 2};
  const LayerShape twice{.micro = 8, .seq_len = 1024, .hidden = 2048, .tensor = 2};
  ResidualFactors factors{.gemm = 1.5, .optimizer = 1.25, .link = 2};
  factors.layers = LayerFactors({{shape, 0.8}, {twice, 1.1}});
  const std::string json = CalibratedFrameworkJson("mine", "pytorch", factors, {});
  const FrameworkProfile mine = ParseFrameworkProfile(json, "mine").value();
  const ResidualFactors of_shape = FactorsFor(shape, mine.residuals);
  EXPECT_NEAR(of_shape.gemm, 1.2, 1e-7);
  EXPECT_NEAR(of_shape.host, 0.8, 1e-7);
  EXPECT_NEAR(of_shape.attention, 0.8, 1e-7);
  EXPECT_NEAR(of_shape.memory, 0.8, 1e-7);
  EXPECT_EQ(of_shape.optimizer, 1.25);
  EXPECT_EQ(of_shape.loss, 1);
  EXPECT_EQ(of_shape.link, 2);
  EXPECT_EQ(of_shape.launch, 1);
  EXPECT_TRUE(of_shape.layers.empty());
  EXPECT_NEAR(FactorsFor(twice, mine.residuals).host, 1.1, 1e-7);
  // Fitted again, the shapes are the new ones.
  factors.layers = LayerFactors({{twice, 0.9}});
  const std::string again = CalibratedFrameworkJson(json, "mine.json", "mine", factors, {}).value();
  EXPECT_EQ(ParseFrameworkProfile(again, "again")->residuals.layers.known().size(), 1);
}

TEST(FrameworkKernels, WrongLayersAreErrors) {
  const auto message = [](const char* layers) {
    return ParseFrameworkProfile(
               fmt::format(
                   R"({{"schema": "windtunnel/framework/1", "name": "mine", "base": "pytorch", "sources": {{}},
                               "residuals": {{"layers": [{}]}}}})",
                   layers),
               "mine.json")
        .error()
        .message;
  };
  const std::string one = R"({"micro": 1, "seq_len": 1024, "hidden": 1024, "tensor": 1, "factor": 1.5})";
  EXPECT_EQ(message((one + ", " + one).c_str()),
            "mine.json:2:132: $.residuals.layers[1] has the shape of another, expected each once");
  EXPECT_EQ(
      message(R"({"micro": 1, "seq_len": 1024, "hidden": 1024, "tensor": 0, "factor": 1.5})"),
      "mine.json:2:113: $.residuals.layers[0].tensor is number 0, expected a whole number of at least 1");
  EXPECT_EQ(message(R"({"micro": 1, "seq_len": 1024, "hidden": 9007199254740993, "tensor": 1, "factor": 1})"),
            "mine.json:2:57: $.residuals.layers[0] has 9007199254740993, expected at most 1099511627776");
  EXPECT_EQ(message(R"({"micro": 1, "seq_len": 1024, "hidden": 1024, "tensor": 1, "factor": 0})"),
            "mine.json:2:126: $.residuals.layers[0].factor is number 0, expected a number in [0.01, 100]");
}

TEST(FrameworkKernels, AHostCannotHideMoreThanAllOfItsTime) {
  const auto read = [](const char* launch) {
    return ParseFrameworkProfile(
        fmt::format(
            R"({{"schema": "windtunnel/framework/1", "name": "mine", "base": "pytorch", "sources": {{}},
                        "residuals": {{"launch": {}}}}})",
            launch),
        "mine.json");
  };
  EXPECT_EQ(read("2")->residuals.launch, 2);
  ASSERT_FALSE(read("0.5"));
  EXPECT_EQ(read("0.5").error().message,
            "mine.json:2:49: $.residuals.launch is number 0.5, expected a number in [1, 100]");
}

TEST(FrameworkKernels, ATensorThatTheOperatorHasNotIsAnError) {
  FrameworkProfile wrong = Known("windtunnel");
  wrong.operators["norm_forward"] = {{.name = "norm", .of = "scores", .values = 1, .when = {}}};
  const auto time = DeviceTime(kNorm, wrong, A100(), {});
  ASSERT_FALSE(time);
  EXPECT_EQ(time.error().message,
            "the kernel norm of norm_forward moves 'scores', which the operator has not");
}

TEST(FrameworkProfile, EveryKnownOneParses) {
  for (const std::string& name : EmbeddedFrameworkNames()) EXPECT_EQ(Known(name).name, name);
  EXPECT_EQ(EmbeddedFramework("tensorflow"), nullptr);
}

TEST(FrameworkProfile, ErrorsNameTheField) {
  auto message = [](const char* text) { return ParseFrameworkProfile(text, "f.json").error().message; };
  EXPECT_EQ(message("{\n  oops"), "f.json:2:3: is not JSON, expected a framework profile");
  EXPECT_EQ(message(R"({"schema": "windtunnel/framework/1", "name": "x", "forward_ms": 3, "sources": {}})"),
            "f.json:1:65: $.forward_ms is not a field of this schema");
  EXPECT_EQ(message(R"({"schema": "windtunnel/device/1", "name": "x", "sources": {}})"),
            "f.json:1:12: $.schema is \"windtunnel/device/1\", expected \"windtunnel/framework/1\"");
  EXPECT_EQ(message(R"({"schema": "windtunnel/framework/1", "name": "x", "base": "jax", "sources": {}})"),
            "f.json:1:59: $.base is jax, expected a framework's name (windtunnel, pytorch, …)");
  EXPECT_EQ(
      message(R"({"schema": "windtunnel/framework/1", "name": "x", "flash": "flash_9", "sources": {}})"),
      "f.json:1:60: $.flash is \"flash_9\", expected flash, flash_1, flash_cudnn or flash_windtunnel");
}

// A word that no operator knows would make a kernel cost nothing.
TEST(FrameworkProfile, WordsThatNoOperatorKnowsAreErrors) {
  const auto error_of = [](const std::string& operators) {
    const auto profile = ParseFrameworkProfile(
        R"({"schema": "windtunnel/framework/1", "name": "mine", "sources": {}, "operators": {)" + operators + "}}",
        "x.json");
    return profile ? "" : WithoutPlace(profile.error().message);
  };
  EXPECT_TRUE(error_of(R"("norm_foward": [{"kernel": "k"}])")
                  .starts_with("x.json: $.operators.norm_foward is not an operator, expected one of "));
  EXPECT_EQ(error_of(R"("norm_forward": [{"kernel": "k", "when": "!residul"}])"),
            "x.json: $.operators.norm_forward[0].when has \"residul\", expected one of bias, layernorm, "
            "residual, rmsnorm");
  EXPECT_EQ(error_of(R"("embedding_forward": [{"kernel": "k", "of": "tabel"}])"),
            "x.json: $.operators.embedding_forward[0].of is \"tabel\", expected one of output, table");
  EXPECT_EQ(error_of(R"("gemm": [{"kernel": "k", "work": "zzz"}])"),
            "x.json: $.operators.gemm[0].work is \"zzz\", expected bytes, own, scores or context");
  EXPECT_EQ(error_of(R"("norm_forward": [{"kernel": "k", "when": "!residual rmsnorm"}])"), "");
}

RC_GTEST_PROP(FrameworkKernelsProperties, NoFrameworkBeatsOneFusedKernel, ()) {
  const NormForward norm{.rows = *rc::gen::inRange(1, 9000),
                         .columns = *rc::gen::inRange(1, 9000),
                         .residual = *rc::gen::arbitrary<bool>(),
                         .dtype = DType::kBFloat16};
  for (const char* framework : {"pytorch", "pytorch_fsdp1", "megatron", "megatron_core", "deepspeed"})
    RC_ASSERT(DeviceMicroseconds(norm, framework) >= DeviceMicroseconds(norm, "windtunnel"));
}

// Transformer Engine's kernels on a B200, 8192 x 8192 from bf16: 34.84 us for one form of mxfp8, 52.34 for
// both (ROCm/TransformerEngine pull request 598).
TEST(FrameworkKernels, BothFormsOfMxfp8TakeWhatTheyWereMeasuredToTake) {
  const DeviceSpec b200 = ParseDeviceSpec(*EmbeddedProfile("b200-sxm-180g"), "b200").value();
  Fp8Cast cast{.rows = 8192, .columns = 8192, .recipe = Fp8Recipe::kMxfp8, .dtype = DType::kBFloat16};
  const auto microseconds = [&] {
    return DeviceTime(cast, Known("megatron_core"), b200, {.parameters = DType::kBFloat16}).value() /
           Microseconds(1);
  };
  const double one = microseconds();
  EXPECT_NEAR(one / 34.84, 1, 0.05);
  cast.transposed = cast.with_other = true;
  EXPECT_NEAR((one + microseconds()) / 52.34, 1, 0.05);
}

// In fp8 the factors are laid out alike in both directions. The product itself says which direction it
// belongs to, whatever the recipe.
TEST(FrameworkKernels, ProductsInFp8AreIssuedByTheirDirection) {
  Gemm gemm{.m = 64, .n = 64, .k = 64, .transpose_b = true, .dtype = DType::kFloat8};
  EXPECT_EQ(ShapeOf(gemm, DType::kBFloat16).issuer, OperatorShape::Issuer::kEngine);
  gemm.is_forward = true;
  EXPECT_EQ(ShapeOf(gemm, DType::kBFloat16).issuer, OperatorShape::Issuer::kModel);
}

}  // namespace
}  // namespace windtunnel
