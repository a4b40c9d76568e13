// The time of a kernel on a device that is not at hand:
//
//   t = max(FLOPs / rate, bytes / (HBM bandwidth x efficiency)) + minimum
//
// Matrix products. C[m,n] is cut into tiles of M x N. Each of the S multiprocessors works on one tile at a
// time, so ceil(tiles / S) waves follow each other, each as long as a full one:
//
//   t = ceil(batch p ceil(m/M) ceil(n/N) / S) x 2 M N (k/p + k0) / (share(M, N) x peak / S)
//   share(M, N) = ceiling x (1 + e (1/M0 + 1/N0)) / (1 + e (1/M + 1/N))
//
// The result is the least time over cuBLAS's tile sizes (64 to 256 a side, and the device's own, `tiles`) and
// over split-k into p = 1 to 8 parts, whose sums are written and read once more. Small products fill the
// device with small tiles, which reach less of the peak. Where there are at most `stream_k_waves` waves of
// tiles of at least 128 a side, multiprocessors may also share the steps of k evenly (stream-K), and hand
// over one tile each:
//
//   t = 2 M N tiles (k + k0) / (share(M, N) x peak) + 8 M N S bytes + a kernel's start
//
// If rows of A, B or C begin at multiples of fewer than 32 bytes, cuBLAS has slower kernels: k counts
// `rows_of_16`, `rows_of_4` or `rows_of_2` times (GemmSpec).
//
// Products in fp32 that tensor cores do not compute are a multiple slower, while tiles begin, end and load
// as fast per byte: k0, e, and what attention's batched products take longer (not less than once), count by
// TimeBesideArithmetic(). The ceiling of products in fp32 is `fp32_ceiling`, if the device has one.
//
//   A100 (S = 108, 312 TFLOP/s, ceiling 0.836 at 256 x 128, e = 40, k0 = 128), m = n = k = 4096 in bf16:
//   16 x 32 = 512 tiles, 5 waves of 2 x 256 x 128 x 4224 / (0.836 x 312e12 / 108) s = 114.6 us: 573.1 us, and
//   3 us of start: 76 % of the peak.
//   m = n = k = 1024: 8 x 8 = 64 tiles of 128 x 128 at 0.756 of the peak are one wave of 17.3 us; 32 tiles of
//   256 x 128 are one of 31.3 us.
//   H200 (S = 132, 989.4 TFLOP/s, ceiling 0.715), m = n = 768, k = 16384: 36 tiles of 128 x 128 at 0.646 of
//   the peak, shared evenly, are 19.5e9 FLOPs in 30.5 us, 17.3 MB in 4.2 us and a start of 2.2 us: 36.8 us
//   (38.3 measured). 18 tiles of 256 x 128 in 7 parts are a wave, 40.1 us with sums.
//
// Attention runs at the measured rate of its head size, sequence length and direction (between measured
// lengths: linear in the logarithm of the length; beyond them, the last), times the share of the
// multiprocessors that heads x batch x query blocks of 128 can fill. Everything else is bytes.
//
// Sliding-window attention runs at the rate of causal attention of another length: that at which a tile of
// 128 queries works on as many tiles of 128 keys on average. Kernels compute whole tiles, of which not all
// pairs of a query and a key are seen; the time per FLOP is scaled by the ratio of the seen shares of the
// two. Eager attention takes as long as without a window.
//
// Likewise attention that is not causal: S / 128 key tiles for each query tile are what causal attention of
// 2 S - 128 tokens works on, and all of their pairs are seen.
//
//   A window of w = 1024 tokens, sequences of 8192: a query tile works on ceil(1023 / 128) + 1 = 9 key tiles,
//   each of the first 8 on fewer, all 64 query tiles on 540. Causal attention of 2 x 540 / 64 - 1 = 15.9
//   tiles, 2032 tokens, works on as many per query tile. Of the 8.8e6 pairs of the window's tiles,
//   8.4e6 - 0.5e6 = 7.9e6 are seen; of the 2.2e6 of that causal attention's tiles, 2.1e6. So the window's
//   FLOPs take 1.06 times as long.
#pragma once

#include "base/result.h"
#include "cost_models/device_spec.h"
#include "cost_models/flash_kernels.h"
#include "plan/op.h"

namespace windtunnel {

// `batch` products of [m,k] and [k,n].
struct BatchedGemm {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  DType dtype = DType::kFloat32;
  bool fast_accumulation = false;  // as Gemm's
  // In elements: the largest power of two that divides all matrices' rows; 0: it does not matter.
  int64_t row_divisor = 0;
};
// The largest power of two that divides both numbers. REQUIRES: one of them is not 0.
int64_t CommonPowerOfTwo(int64_t a, int64_t b);
// Without the kernel's start. Errors: InvalidInput if the device has no arithmetic of the type.
Result<Duration> GemmTime(const BatchedGemm& gemm, const DeviceSpec& device, bool tf32);

// What a step of k takes beside its arithmetic, over its arithmetic, compared with products in 16 bits: less
// than 1 in fp32 without tensor cores, whose arithmetic is slower by more than its bytes are more.
double TimeBesideArithmetic(DType dtype, const DeviceSpec& device, bool tf32);

Duration MemoryTime(Bytes traffic, const DeviceSpec& device);

struct KernelOptions {
  bool tf32 = false;  // fp32 products run on tensor cores
  FlashKernels flash = FlashKernels::kFlashAttention2;
  double slowest = 1;          // how much longer products and attention take on the slowest device
  double product_speed = 1;    // how much faster products are than alone (cost_models/power_limit.h)
  bool pads_products = false;  // pads rows of products' matrices until their alignment does not matter
};
// Device time of a computation or a copy that runs as one kernel; KernelWork leaves out the kernel's start.
// Errors: InvalidInput if the device has no arithmetic of the operator's type. REQUIRES: no communication,
// memory or HostWait.
Result<Duration> KernelTime(const OpKind& kind, const DeviceSpec& device, const KernelOptions& options);
Result<Duration> KernelWork(const OpKind& kind, const DeviceSpec& device, const KernelOptions& options);

// The rate of attention, interpolated between the measured ones. For head sizes that were not measured, the
// time of a pair of a query and a key is taken to be linear in the head's size: a softmax, and two products.
// Heads smaller than the smallest that was measured are never faster than it; larger ones are as fast as the
// largest. REQUIRES: `rates` as in DeviceSpec, not empty.
FlopRate AttentionRateAt(const std::vector<AttentionRate>& rates, int64_t head_dim, int64_t seq,
                         bool is_backward);

}  // namespace windtunnel
