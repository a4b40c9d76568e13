// What a kernel takes on a device that is not at hand:
//
//   t = max(FLOPs / rate, bytes / (HBM bandwidth x efficiency)) + minimum
//
// Matrix products. C[m,n] is cut into tiles of M x N (or N x M, whichever takes less); each of the S multiprocessors works on one
// at a time, so ceil(tiles / S) waves follow each other, each as long as a full one:
//
//   t = ceil(ceil(m/M) ceil(n/N) / S) x 2 M N (k + k0) / (ceiling x peak / S)
//
//   A100 (S = 108, 312 TFLOP/s, ceiling 0.836, 256 x 128, k0 = 128), m = n = k = 4096 in bf16: 16 x 32 = 512 tiles, 5 waves of
//   2 x 256 x 128 x 4224 / (0.836 x 312e12 / 108) s = 114.6 us: 573.1 us, and 3 us of start: 76 % of the peak.
//
// Attention goes at the measured rate of its head size and sequence length (between measured lengths: linear in the
// logarithm of the length; beyond them, the last), times the share of the multiprocessors that heads x batch x query blocks
// of 128 can fill. Everything else is bytes.
#pragma once

#include "base/result.h"
#include "cost_models/device_spec.h"
#include "plan/op.h"

namespace windtunnel {

// Device time of a computation or a copy. `tf32` says that fp32 products run on tensor cores.
// Errors: InvalidInput where the device has no arithmetic of the operator's type. REQUIRES: no communication, memory or HostWait.
Result<Duration> KernelTime(const OpKind& kind, const DeviceSpec& device, bool tf32);

// The rate of attention in between the measured ones. REQUIRES: `rates` as in DeviceSpec, not empty.
FlopRate AttentionRateAt(const std::vector<AttentionRate>& rates, int64_t head_dim, int64_t seq);

}  // namespace windtunnel
