// What a kernel takes on a device that is not at hand:
//
//   t = max(FLOPs / rate, bytes / (HBM bandwidth x efficiency)) + minimum
//
// Matrix products. C[m,n] is cut into tiles of M x N; each of the S multiprocessors works on one at a time, so ceil(tiles / S) waves
// follow each other, each as long as a full one:
//
//   t = ceil(batch p ceil(m/M) ceil(n/N) / S) x 2 M N (k/p + k0) / (share(M, N) x peak / S)
//   share(M, N) = ceiling x (1 + e (1/M0 + 1/N0)) / (1 + e (1/M + 1/N))
//
// Of cuBLAS's tile sizes (64 to 256 a side, and the device's own, `tiles`) and p = 1 to 8 parts of k, whose sums are written and read once more, it is the fastest that
// counts: small products fill the device with small tiles, which reach less of the peak. Where there are at most `stream_k_waves` waves of
// tiles of 128 a side and more, multiprocessors may also share out steps of k evenly, and hand over one tile each:
//
//   t = 2 M N tiles (k + k0) / (share(M, N) x peak) + 8 M N S bytes + a kernel's start
//
// Where rows of A, B or C begin at multiples of fewer
// than 32 bytes, cuBLAS has slower kernels: k counts `rows_of_16`, `rows_of_4` or `rows_of_2` times (GemmSpec).
//
//   A100 (S = 108, 312 TFLOP/s, ceiling 0.836 at 256 x 128, e = 40, k0 = 128), m = n = k = 4096 in bf16: 16 x 32 = 512 tiles, 5 waves of
//   2 x 256 x 128 x 4224 / (0.836 x 312e12 / 108) s = 114.6 us: 573.1 us, and 3 us of start: 76 % of the peak.
//   m = n = k = 1024: 8 x 8 = 64 tiles of 128 x 128 at 0.756 of the peak are one wave of 17.3 us; 32 tiles of 256 x 128 one of 31.3 us.
//   H200 (S = 132, 989.4 TFLOP/s, ceiling 0.715), m = n = 768, k = 16384: 36 tiles of 128 x 128 at 0.646 of the peak shared out are 19.5e9 FLOPs
//   in 30.5 us, 17.3 MB in 4.2 us and a start of 2.2 us: 36.8 us (38.3 measured). 18 of 256 x 128 in 7 parts are a wave, 40.1 us with sums.
//
// Attention goes at the measured rate of its head size, sequence length and direction (between measured lengths: linear in the
// logarithm of the length; beyond them, the last), times the share of the multiprocessors that heads x batch x query blocks
// of 128 can fill. Within a window of w tokens it goes as causal attention of that length does which works on as many tiles of 128 keys
// for one of 128 queries, on whole tiles; eager attention takes as long as without. Everything else is bytes.
//
//   w = 1024, sequences of 8192: ceil(1023 / 128) + 1 = 9 tiles a query tile but for the first 8, in all 540 of 64 rows; causal attention of
//   2 x 540 / 64 - 1 = 15.9 tiles, 2032 tokens, has as many a row. 8.9e6 - 0.5e6 = 7.9e6 pairs of the tiles' 8.8e6 are seen, of that
//   one's 2.2e6 2.1e6: its FLOPs take 1.06 times as long.
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
  int64_t row_divisor = 0;  // elements: the largest power of two that divides all rows; 0: it does not matter
};
// The largest power of two that divides both. REQUIRES: one of them is not 0.
int64_t CommonPowerOfTwo(int64_t a, int64_t b);
// Without the kernel's start. Errors: InvalidInput where the device has no arithmetic of the type.
Result<Duration> GemmTime(const BatchedGemm& gemm, const DeviceSpec& device, bool tf32);

Duration MemoryTime(Bytes traffic, const DeviceSpec& device);

struct KernelOptions {
  bool tf32 = false;  // fp32 products run on tensor cores
  FlashKernels flash = FlashKernels::kFlashAttention2;
  double slowest = 1;          // how much longer products and attention take on the slowest device
  double product_speed = 1;    // how much faster products are than alone (cost_models/power_limit.h)
  bool pads_products = false;  // rows of products' matrices are padded until it does not matter
};
// Device time of a computation or a copy as one kernel. KernelWork: without its start.
// Errors: InvalidInput where the device has no arithmetic of the operator's type. REQUIRES: no communication, memory or HostWait.
Result<Duration> KernelTime(const OpKind& kind, const DeviceSpec& device, const KernelOptions& options);
Result<Duration> KernelWork(const OpKind& kind, const DeviceSpec& device, const KernelOptions& options);

// The rate of attention in between the measured ones. Of heads in between, and smaller ones, by what a pair of a query and a key takes, taken to
// be linear in the head's size: a softmax, and two products. Smaller heads are never faster than the smallest that was measured, larger ones as
// fast as the largest. REQUIRES: `rates` as in DeviceSpec, not empty.
FlopRate AttentionRateAt(const std::vector<AttentionRate>& rates, int64_t head_dim, int64_t seq,
                         bool is_backward);

}  // namespace windtunnel
