// A scenario's optimizer. Apart from scenario.h for operators and their kernels, which know no scenarios.
#pragma once

#include <cstdint>

namespace windtunnel {

enum class OptimizerKind { kSgd, kAdam, kAdamW, kMuon };

// By what Muon multiplies the learning rate for a matrix of r rows and c columns.
enum class RateAdjustment {
  kOriginal,       // sqrt(max(1, r / c))
  kMatchRmsAdamW,  // 0.2 sqrt(max(r, c)): updates are as large as AdamW's
};

// What moments are stored in between updates, which compute in fp32. kInt8: in 8 bits, with an fp32 scale for
// every 256 of them (Dettmers et al., arXiv:2110.02861; runtime/dynamic8.h).
enum class MomentsType { kFp32, kBf16, kInt8 };
// Tensors of fewer elements keep moments in fp32 instead of 8 bits (bitsandbytes' min_8bit_size).
inline constexpr int64_t kLeastIn8Bits = 4096;

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 3e-4;
  double beta1 = 0.9;  // Adam and AdamW, as torch.optim; AdamW's part of Muon
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;  // decoupled for AdamW and Muon, added to the gradient for Adam and SGD
  double momentum = 0.0;      // SGD and Muon
  // Of Adam's and AdamW's two moments, and of the momentum of SGD and Muon.
  MomentsType moments = MomentsType::kFp32;
  int64_t ns_steps = 5;                                       // Muon: Newton-Schulz iterations
  RateAdjustment adjust_lr = RateAdjustment::kMatchRmsAdamW;  // Muon
  double clip_norm = 0.0;     // 0 does not clip
  bool fused = false;         // PyTorch's fused=True; the other frameworks update by one kernel anyway
  // PyTorch's ZeroRedundancyOptimizer around it, and its option (plan/zero_redundancy.h).
  bool zero_redundancy = false, parameters_as_bucket_view = false;
  // Each parameter is updated in backward, once its gradient is complete, which is then dropped.
  bool in_backward = false;
  bool operator==(const OptimizerSpec&) const = default;
};

}  // namespace windtunnel
