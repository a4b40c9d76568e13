// Whose kernels `attention: flash` is. A framework has one of them (`flash` of its profile: "flash", "flash_1", "flash_cudnn",
// "flash_windtunnel"), and a device rates for the first three.
#pragma once

namespace windtunnel {

enum class FlashKernels {
  kFlashAttention2,
  kFlashAttention1,
  kCudnn,
  kWindtunnel,  // cuDNN's where runtime/cuda takes it: whole sequences, 16 bits, heads of up to 256 in multiples of 8; as FlashAttention-2 elsewhere
};

}  // namespace windtunnel
