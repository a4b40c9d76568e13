// Kernel times from datasheets, checked against the formulas worked by hand.
#include "cost_models/kernel_roofline.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "cost_models/device_spec.h"
#include "tests/cost_models/device_specs.h"

namespace windtunnel {
namespace {

double MicrosecondsOf(const OpKind& kind) { return KernelTime(kind, A100(), {}).value() / Microseconds(1); }

Gemm SquareGemm(int64_t n, DType dtype = DType::kBFloat16) {
  return {.m = n, .n = n, .k = n, .dtype = dtype};
}

// 512 tiles on 108 multiprocessors are 5 waves of 2 x 256 x 128 x (4096 + 128) / (0.836 x 312e12 / 108) s =
// 114.6 us.
TEST(KernelRoofline, MatrixProductsRunInWavesOfTiles) {
  EXPECT_NEAR(MicrosecondsOf(SquareGemm(4096)), 573.1 + 3, 0.1);
}

// 64 tiles of 128 x 128 are one wave of 2 x 128 x 128 x 1152 / (0.756 x 312e12 / 108) s = 17.3 us, half as
// long as 32 of 256 x 128.
TEST(KernelRoofline, SmallProductsRunInSmallTiles) {
  EXPECT_NEAR(MicrosecondsOf(SquareGemm(1024)), 17.3 + 3, 0.1);
}

// 12 x 9 tiles of 256 x 128 are one wave of 2 x 256 x 128 x 8320 / 2.415e12 s = 225.7 us. One row more takes
// a second wave, which is almost empty, so smaller tiles waste less of it: 16 x 18 of 192 rows at most, never
// more than the two waves.
TEST(KernelRoofline, OneTileTooManyTakesMore) {
  const double fits = MicrosecondsOf(Gemm{.m = 3072, .n = 1152, .k = 8192, .dtype = DType::kBFloat16});
  const double too_many = MicrosecondsOf(Gemm{.m = 3073, .n = 1152, .k = 8192, .dtype = DType::kBFloat16});
  EXPECT_NEAR(fits, 225.7 + 3, 0.1);
  EXPECT_GT(too_many, fits * 1.1);
  EXPECT_LE(too_many, 451.5 + 3.1);
}

// 36 tiles of 128 x 128 on 132 multiprocessors: kernel_roofline.h's worked number. Where tiles make several
// waves they stay whole.
TEST(KernelRoofline, HopperSharesOutStepsOfKWhereTilesAreFew) {
  DeviceSpec h200 = ParseDeviceSpec(*EmbeddedProfile("h200-sxm-141g"), "h200").value();
  const auto microseconds = [&](int64_t m, int64_t n) {
    const Gemm gradient{.m = m, .n = n, .k = 16384, .transpose_a = true, .dtype = DType::kBFloat16};
    return ToSeconds(KernelTime(gradient, h200, {}).value()) * 1e6;
  };
  const double few = microseconds(768, 768), many = microseconds(6400, 6400);
  EXPECT_NEAR(few, 36.8 + 2.2, 0.1);
  h200.gemm.stream_k_waves = 0;
  EXPECT_NEAR(microseconds(768, 768), 40.1 + 2.2, 0.1);
  EXPECT_EQ(microseconds(6400, 6400), many);
}

// The head's product over vocabularies, in fp16 on an A100 (EleutherAI/cookbook, vocab_v_sweep.out): medians
// of 253, 227, 139 and 74 TFLOP/s.
TEST(KernelRoofline, RowsThatBeginAnywhereMakeProductsSlow) {
  const auto rate = [](int64_t vocabulary, bool pads = false) {
    const Gemm head{.m = 8192, .n = vocabulary, .k = 14336, .transpose_b = true, .dtype = DType::kFloat16};
    const Duration time = KernelTime(head, A100(), {.pads_products = pads}).value();
    return FlopsOf(head).count() / ToSeconds(time) / 1e12;
  };
  EXPECT_NEAR(rate(51200), 253, 5);
  EXPECT_EQ(std::lround(rate(51152)), std::lround(rate(51200)));
  EXPECT_NEAR(rate(51144), 227, 5);
  EXPECT_NEAR(rate(51140), 139, 3);
  EXPECT_NEAR(rate(51142), 139, 3);
  EXPECT_NEAR(rate(51141), 74, 2);
  EXPECT_NEAR(rate(51141, /*pads=*/true), 253, 5);
  // The rows of the other factor count, too. In 32 bits no rows do.
  const Gemm inner{.m = 4096, .n = 4096, .k = 4095, .transpose_b = true, .dtype = DType::kBFloat16};
  EXPECT_GT(MicrosecondsOf(inner), 2.5 * MicrosecondsOf(SquareGemm(4096)));
  Gemm by_columns = inner;  // A and B begin rows at 4,096
  by_columns.transpose_a = true;
  by_columns.transpose_b = false;
  EXPECT_LT(MicrosecondsOf(by_columns), 1.01 * MicrosecondsOf(SquareGemm(4096)));
  Gemm in_fp32 = inner;
  in_fp32.dtype = DType::kFloat32;
  EXPECT_LT(MicrosecondsOf(in_fp32), 1.01 * MicrosecondsOf(SquareGemm(4096, DType::kFloat32)));
}

// Four concurrent products of 13 x 9 tiles are 468 tiles in five waves, instead of four times two. Products
// that fill their waves gain nothing.
TEST(KernelRoofline, ProductsThatRunAtOnceShareWaves) {
  Gemm g{.m = 3072, .n = 1152, .k = 8192, .dtype = DType::kBFloat16};
  const double one_wave = MicrosecondsOf(g);
  g.streams = 2;
  EXPECT_NEAR(MicrosecondsOf(g), one_wave, 0.1);
  g.m = 3073;
  g.streams = 1;
  const double alone = MicrosecondsOf(g);
  g.streams = 4;
  EXPECT_LT(MicrosecondsOf(g), alone);
  EXPECT_LE(MicrosecondsOf(g), 225.7 * 5 / 4 + 3.1);
}

// 64 x 64 with k = 65,536: one tile of 64 x 64 occupies one multiprocessor; 8 parts of k occupy 8, and their
// sums are added.
TEST(KernelRoofline, LongSumsAreSplit) {
  const double whole = 2.0 * 64 * 64 * (65'536 + 128) / (0.615 / 0.762 * 0.836 * 312e6 / 108);
  const double split = MicrosecondsOf(Gemm{.m = 64, .n = 64, .k = 65'536, .dtype = DType::kBFloat16});
  EXPECT_LT(split, whole / 5);
  EXPECT_GT(split, whole / 8);
}

TEST(KernelRoofline, Tf32RunsOnTensorCoresOnlyWhenAskedFor) {
  const Duration fp32 = KernelTime(SquareGemm(4096, DType::kFloat32), A100(), {}).value();
  const Duration tf32 = KernelTime(SquareGemm(4096, DType::kFloat32), A100(), {.tf32 = true}).value();
  // Five waves of 256 x 128, at 0.836 of 156 TFLOP/s; at 0.95 of 19.5 TFLOP/s, and with k0 = 128 x 2 x 19.5 /
  // 312 = 16.
  EXPECT_NEAR(tf32.picoseconds() / 1e6, 5 * 65'536.0 * (4096 + 128) / (0.836 * 156e6 / 108) + 3, 1);
  // (Four parts of k are 1 % faster than that, for they leave a smaller part of the last wave empty.)
  EXPECT_NEAR(fp32.picoseconds() / 1e6, 5 * 65'536.0 * (4096 + 16) / (0.95 * 19.5e6 / 108) + 3, 80);
}

// torch.mm of square matrices in fp32 on a V100 (zzc0721/torch-performance-test-data, issue 140). The ceiling
// is from the three largest.
TEST(KernelRoofline, Fp32OnV100sIsWithin8PercentOfMeasuredProducts) {
  const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile("v100-sxm2-16g"), "v100").value();
  for (const auto& [size, tflops] : {std::pair<int64_t, double>{1024, 10.56},
                                     {2048, 12.71},
                                     {4096, 13.85},
                                     {8192, 14.38},
                                     {10'240, 14.51}}) {
    const Gemm gemm = SquareGemm(size, DType::kFloat32);
    const Duration time = KernelTime(gemm, device, {}).value();
    EXPECT_NEAR(FlopsOf(gemm).count() / static_cast<double>(time.picoseconds()) / tflops, 1, 0.08) << size;
  }
}

TEST(KernelRoofline, ArithmeticThatTheDeviceLacksIsAnError) {
  const auto time = KernelTime(SquareGemm(128, DType::kFloat8), A100(), {});
  ASSERT_FALSE(time);
  EXPECT_EQ(time.error().message,
            "precision.compute is fp8, expected one of bf16, fp16, tf32, fp32: a100-sxm-80g has no "
            "figure for it");
}

// 0.882 of the ceiling instead of 0.949, on the same tiles.
TEST(KernelRoofline, ProductsInFp8TakeLongerWhereSumsAreCarriedOverToFp32) {
  const DeviceSpec h100 = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  Gemm gemm = SquareGemm(8192, DType::kFloat8);
  const Duration precise = KernelTime(gemm, h100, {}).value() - h100.kernel_minimum;
  gemm.fast_accumulation = true;
  const Duration fast = KernelTime(gemm, h100, {}).value() - h100.kernel_minimum;
  EXPECT_NEAR(precise / fast, 0.949 / 0.882, 1e-6);
}

// Blackwell's products of scaled blocks reach 0.936 (of 4,500 TFLOP/s) and 0.918 (of 9,000) of the ceiling,
// compared with 0.984 of 4,500 for fp8.
TEST(KernelRoofline, ProductsOfScaledBlocksHaveRatesOfTheirOwn) {
  const DeviceSpec b200 = ParseDeviceSpec(*EmbeddedProfile("b200-sxm-180g"), "b200").value();
  const auto time = [&](DType type) {
    return KernelTime(SquareGemm(8192, type), b200, {}).value() - b200.kernel_minimum;
  };
  EXPECT_NEAR(time(DType::kMxFloat8) / time(DType::kFloat8), 0.984 / 0.936, 1e-6);
  EXPECT_NEAR(time(DType::kFloat8) / time(DType::kFloat4x2), 2 * 0.918 / 0.984, 1e-6);
}

// On Blackwell, Transformer Engine's block scaling uses mxfp8's products; on Hopper it has its own.
TEST(KernelRoofline, BlackwellMultipliesLargerBlocksAsMicroscaledOnes) {
  const auto time = [](const char* name, DType type, bool of_blocks) {
    const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile(name), name).value();
    Gemm gemm = SquareGemm(4096, type);
    gemm.of_blocks = of_blocks;
    return KernelTime(gemm, device, {}).value();
  };
  const Duration of_tensors = time("b200-sxm-180g", DType::kFloat8, false);
  const Duration of_blocks = time("b200-sxm-180g", DType::kFloat8, true);
  EXPECT_EQ(of_blocks, time("b200-sxm-180g", DType::kMxFloat8, false));
  EXPECT_GT(of_blocks, of_tensors);
  EXPECT_EQ(time("h100-sxm-80g", DType::kFloat8, true), time("h100-sxm-80g", DType::kFloat8, false));
}

TEST(KernelRoofline, HopperMultipliesNoScaledBlocks) {
  const DeviceSpec h100 = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  const auto time = KernelTime(SquareGemm(128, DType::kMxFloat8), h100, {});
  ASSERT_FALSE(time);
  EXPECT_EQ(time.error().message,
            "precision.fp8_recipe is mxfp8, expected tensorwise, delayed, rowwise or block: h100-sxm-80g "
            "multiplies no microscaled blocks");
}

// 1e9 elements of 4 bytes read and written: 8e9 / (2039e9 x 0.88) s = 4458.6 us.
TEST(KernelRoofline, EverythingElseIsBytes) {
  EXPECT_NEAR(MicrosecondsOf(Scale{.elements = 1'000'000'000}), 4458.6 + 3, 0.1);
}

// 240e6 bytes over 24 GB/s, whichever way.
TEST(KernelRoofline, CopiesToTheHostGoOverItsLink) {
  const Copy copy{.elements = 60'000'000, .crosses = Copy::Crosses::kToHost};
  EXPECT_NEAR(MicrosecondsOf(copy), 10'000 + 3, 1e-6);
}

// A measured length, and one half-way between two in the logarithm (which is linear between powers of two):
// 2048 (155) and 4096 (173) at 128: 3072 = 1.5 x 2048.
TEST(KernelRoofline, AttentionRatesAreLinearInTheLogarithmOfTheLength) {
  const DeviceSpec device = A100();
  auto tflops = [&](int64_t head_dim, int64_t seq) {
    return AttentionRateAt(device.flash, head_dim, seq, true).flops_per_second() / 1e12;
  };
  EXPECT_EQ(tflops(128, 2048), 155);
  EXPECT_NEAR(tflops(128, 3072), 164, 1e-9);
  EXPECT_EQ(tflops(128, 100), 99);
  EXPECT_EQ(tflops(128, 1 << 20), 189);
}

// A pair of a query and a key takes 64 / 140 at 64 and 128 / 155 at 128, and 0.6415 half-way. With smaller
// heads the softmax still takes its time.
TEST(KernelRoofline, AttentionOfOtherHeadsIsBetweenTheMeasuredOnes) {
  const DeviceSpec device = A100();
  auto tflops = [&](int64_t head_dim) {
    return AttentionRateAt(device.flash, head_dim, 2048, true).flops_per_second() / 1e12;
  };
  EXPECT_EQ(tflops(64), 140);
  EXPECT_NEAR(tflops(96), 96 / 0.64148, 0.01);
  EXPECT_NEAR(tflops(32), 32 / 0.27281, 0.01);
  EXPECT_NEAR(tflops(16), 16 / 0.18065, 0.01);
  EXPECT_EQ(tflops(256), tflops(128)) << "of larger heads nothing is known";
}

// FlashAttention's kernels are for heads of 32, 64, 96, …: 80 take as long as 96.
TEST(KernelRoofline, FlashAttentionPadsHeads) {
  const auto microseconds = [](int64_t head_dim, FlashKernels flash) {
    const AttentionForward a{.batch = 8,
                             .seq = 2048,
                             .heads = 16,
                             .kv_heads = 16,
                             .head_dim = head_dim,
                             .dtype = DType::kBFloat16};
    const DeviceSpec device = A100();
    return KernelTime(a, device, {.flash = flash})->picoseconds() / 1e6;
  };
  EXPECT_NEAR(microseconds(80, FlashKernels::kFlashAttention2),
              microseconds(96, FlashKernels::kFlashAttention2), 1e-6);
  EXPECT_LT(microseconds(80, FlashKernels::kCudnn), 0.95 * microseconds(96, FlashKernels::kCudnn));
}

// 54 blocks of queries fill half of the 108 multiprocessors.
TEST(KernelRoofline, AttentionThatDoesNotFillTheDeviceIsSlower) {
  const AttentionForward full{
      .batch = 54, .seq = 256, .heads = 1, .kv_heads = 1, .head_dim = 64, .dtype = DType::kBFloat16};
  AttentionForward half = full;
  half.batch = 27;
  EXPECT_NEAR(MicrosecondsOf(full), MicrosecondsOf(half), 1e-6);
}

// Worked by hand in cost_models/kernel_roofline.h. A window as long as the sequence has no effect. Eager
// attention computes all pairs and masks those not seen.
TEST(KernelRoofline, AttentionWithinAWindowWorksOnWholeTiles) {
  const auto microseconds = [](int64_t seq, int64_t window, AttentionKind kind = AttentionKind::kFlash) {
    AttentionForward a{32, seq, 32, 32, 128, kind, DType::kBFloat16};
    a.window = window;
    return MicrosecondsOf(a);
  };
  const double of_a_pair = microseconds(2032, 0) / SeenPairs(2032, 0);
  const double of_tiles = 6.5 * 32 * 32 * 64 / 108 * (1 - SeenPairs(8192, 1024) / SeenPairs(8192, 0));
  EXPECT_NEAR((microseconds(8192, 1024) - of_tiles) / SeenPairs(8192, 1024) / of_a_pair, 1.059, 0.002);
  EXPECT_NEAR(microseconds(8192, 8191) / microseconds(8192, 0), 1, 0.001);
  EXPECT_LT(microseconds(8192, 128), microseconds(8192, 1024));
  EXPECT_EQ(microseconds(2048, 128, AttentionKind::kEager), microseconds(2048, 0, AttentionKind::kEager));
}

// Also where arithmetic in fp32 is just half of that in 16 bits, as on cards with two fp32 pipelines.
TEST(KernelRoofline, Fp32HasItsOwnCeilingWhereverTheDeviceSaysOne) {
  for (const char* name : {"v100-sxm2-32g", "a100-sxm-80g", "a100-pcie-80g", "h100-pcie-80g", "rtx-3090-24g",
                           "rtx-4090-24g", "rtx-5090-32g", "a10g-24g", "l4-24g", "t4-16g"}) {
    DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile(name), name).value();
    ASSERT_GT(device.gemm.fp32_ceiling, 0) << name;
    const Gemm gemm = SquareGemm(8192, DType::kFloat32);
    const Duration time = KernelWork(gemm, device, {}).value();
    device.gemm.fp32_ceiling /= 2;
    EXPECT_NEAR(KernelWork(gemm, device, {}).value() / time, 2, 0.05) << name;  // (less what adds up sums)
  }
}

// Measured on one card each: a FlashAttention-2 kernel of Triton's on an RTX 3090 (umiswing's port), forward and
// backward, and FlashAttention-2's forward on a B200, heads of 64.
TEST(KernelRoofline, AttentionToAllKeysFollowsFromCausalRates) {
  struct Measured {
    std::vector<double> causal, bidirectional;  // TFLOP/s, for sequences of 1024, 2048, ... tokens
  };
  for (const Measured& measured :
       {Measured{{48.0, 61.1, 68.4, 70.8, 72.3}, {60.2, 71.1, 69.0, 74.6}},
        Measured{{33.5, 40.9, 45.6, 47.4, 49.0}, {42.8, 46.4, 50.0, 51.4}},
        Measured{{206.3, 279.9, 326.5, 352.4, 366.6}, {310.8, 351.2, 365.4, 372.0}}}) {
    DeviceSpec device = A100();
    device.flash.clear();
    for (size_t i = 0; i < measured.causal.size(); ++i)
      device.flash.push_back(
          {64, int64_t{1024} << i, Tflops(measured.causal[i]), Tflops(measured.causal[i])});
    for (size_t i = 0; i < measured.bidirectional.size(); ++i) {
      AttentionForward a{4, int64_t{1024} << i, 32, 32, 64, AttentionKind::kFlash, DType::kBFloat16};
      a.causal = false;
      const Duration time = KernelWork(a, device, {}).value();
      const double rate = FlopsOf(a).count() / static_cast<double>(time.picoseconds());
      EXPECT_NEAR(rate / measured.bidirectional[i], 1, 0.075) << a.seq;
    }
  }
}

// Eager attention computes all pairs in either case.
TEST(KernelRoofline, EagerAttentionTakesAsLongWithAndWithoutAMask) {
  AttentionForward a{8, 512, 16, 16, 64, AttentionKind::kEager, DType::kBFloat16};
  const double causal = MicrosecondsOf(a);
  a.causal = false;
  EXPECT_NEAR(MicrosecondsOf(a) / causal, 1, 1e-6);
}

// Published rates are for 16 bits, in which an A100 has 312 TFLOP/s; it has 156 in tf32 and 19.5 in fp32.
// Eager attention in 32 bits moves twice the bytes, and its products determine the time where they are
// slower.
TEST(KernelRoofline, AttentionIsNoFasterThanItsTypesArithmetic) {
  const auto time = [](AttentionKind kind, DType dtype, bool tf32) {
    const AttentionForward a{
        .batch = 8, .seq = 2048, .heads = 16, .kv_heads = 16, .head_dim = 64, .kind = kind, .dtype = dtype};
    return KernelWork(a, A100(), {.tf32 = tf32}).value();
  };
  const Duration flash = time(AttentionKind::kFlash, DType::kBFloat16, false);
  EXPECT_NEAR(time(AttentionKind::kFlash, DType::kFloat32, true) / flash, 2, 1e-6);
  EXPECT_NEAR(time(AttentionKind::kFlash, DType::kFloat32, false) / flash, 16, 1e-6);
  const Duration eager = time(AttentionKind::kEager, DType::kBFloat16, false);
  EXPECT_NEAR(time(AttentionKind::kEager, DType::kFloat32, true) / eager, 2, 1e-6);
  EXPECT_GE(time(AttentionKind::kEager, DType::kFloat32, false) / eager, 2);
}

// cuDNN's own benchmark on a GB200 and an H200 (kernel_roofline.cc), forward and backward together, in ms.
TEST(KernelRoofline, NarrowWindowsTakeLongerThanTheirScores) {
  const auto milliseconds = [](const char* name, int64_t seq, int64_t heads, int64_t kv_heads,
                               int64_t head_dim, int64_t window) {
    const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile(name), name).value();
    AttentionForward forward{1, seq, heads, kv_heads, head_dim, AttentionKind::kFlash, DType::kBFloat16};
    AttentionBackward backward{.batch = 1,
                               .seq = seq,
                               .heads = heads,
                               .kv_heads = kv_heads,
                               .head_dim = head_dim,
                               .dtype = DType::kBFloat16};
    backward.kind = AttentionKind::kFlash;
    forward.window = backward.window = window;
    const KernelOptions options{.flash = FlashKernels::kCudnn};
    return (KernelWork(forward, device, options).value() + KernelWork(backward, device, options).value()) /
           Milliseconds(1);
  };
  EXPECT_NEAR(milliseconds("gb200-nvl72-186g", 8192, 128, 128, 64, 128), 1.307, 0.28 * 1.307);
  EXPECT_NEAR(milliseconds("gb200-nvl72-186g", 4096, 128, 128, 64, 128), 0.665, 0.28 * 0.665);
  EXPECT_NEAR(milliseconds("gb200-nvl72-186g", 8192, 64, 8, 128, 1024), 1.421, 0.1);
  EXPECT_NEAR(milliseconds("h200-sxm-141g", 8192, 64, 8, 128, 1024), 2.887, 0.2);
}

// Transformer Engine's kernels on B300s (profiles/b300-sxm-270g.json says where from): tokens of 6,144
// columns into rows, and rows into sums. Many tokens with few rows each take longer to sum than few tokens
// with many.
TEST(KernelRoofline, TokensAreReorderedFarBelowMemorysRate) {
  const DeviceSpec b300 = ParseDeviceSpec(*EmbeddedProfile("b300-sxm-270g"), "b300").value();
  const auto milliseconds = [&](const OpKind& kind) {
    return KernelWork(kind, b300, {}).value() / Milliseconds(1);
  };
  const TokenRows all_here{16384, 6144, 8, 131072, DType::kBFloat16};
  const TokenRows arrived{86000, 6144, 8, 131072, DType::kBFloat16};
  EXPECT_NEAR(milliseconds(DispatchTokens{all_here}), 0.824, 0.05);
  EXPECT_NEAR(milliseconds(DispatchTokens{arrived}), 1.310, 0.15);
  EXPECT_NEAR(milliseconds(CombineTokens{all_here}), 0.652, 0.1);
  EXPECT_NEAR(milliseconds(CombineTokens{arrived}), 2.636, 0.1);
  EXPECT_EQ(KernelWork(CombineBackward{all_here, /*weighted=*/false}, b300, {}).value(),
            KernelWork(DispatchTokens{all_here}, b300, {}).value());
  // Hopper's reach nearly its memory's rate.
  const DeviceSpec h100 = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  const CombineTokens sum{all_here};
  EXPECT_EQ(KernelWork(sum, h100, {}).value(), MemoryTime(TrafficOf(sum), h100));
}

RC_GTEST_PROP(KernelRooflineProperties, NoGemmBeatsThePeak, ()) {
  const Gemm gemm{.m = *rc::gen::inRange(1, 9000),
                  .n = *rc::gen::inRange(1, 9000),
                  .k = *rc::gen::inRange(1, 9000),
                  .dtype = DType::kBFloat16};
  const Duration least = FlopsOf(gemm) / A100().PeakFor(DType::kBFloat16);
  RC_ASSERT(KernelTime(gemm, A100(), {}).value() >= least);
}

}  // namespace
}  // namespace windtunnel
