// A scenario's optimizer. Apart from scenario.h for operators and their kernels, which know no scenarios.
#pragma once

namespace windtunnel {

enum class OptimizerKind { kSgd, kAdam, kAdamW };

// What moments are stored in between updates, which compute in fp32.
enum class MomentsType { kFp32, kBf16 };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 3e-4;
  double beta1 = 0.9;  // Adam and AdamW, as torch.optim
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;  // decoupled for AdamW, added to the gradient for Adam and SGD
  double momentum = 0.0;      // SGD
  // Of Adam's and AdamW's two moments, and of SGD's momentum.
  MomentsType moments = MomentsType::kFp32;
  double clip_norm = 0.0;     // 0 does not clip
  bool fused = false;         // PyTorch's fused=True; the other frameworks update by one kernel anyway
  bool operator==(const OptimizerSpec&) const = default;
};

}  // namespace windtunnel
