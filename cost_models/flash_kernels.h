// Whose kernels `attention: flash` is. A framework has one of them (`flash` of its profile: "flash", "flash_1", "flash_cudnn",
// "flash_windtunnel"), and a device rates for the first three.
#pragma once

namespace windtunnel {

enum class FlashKernels {
  kFlashAttention2,
  kFlashAttention1,
  kCudnn,
  kWindtunnel,  // cuDNN's where the cuda device has it (plan/fused_attention.h), as FlashAttention-2 elsewhere
};

}  // namespace windtunnel
