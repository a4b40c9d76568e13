// Whose kernels run `attention: flash`. A framework uses one of them (`flash` of its profile: "flash",
// "flash_1", "flash_cudnn", "flash_windtunnel"), and a device has rates for the first three.
#pragma once

namespace windtunnel {

enum class FlashKernels {
  kFlashAttention2,
  kFlashAttention1,
  kCudnn,
  kWindtunnel,  // cuDNN's where the cuda device has it (plan/fused_attention.h), FlashAttention-2's elsewhere
};

}  // namespace windtunnel
