#include "runtime/cuda/fused_attention.h"

namespace windtunnel::cuda {

Result<std::unique_ptr<FusedAttention>> MakeFusedAttention(const SearchPlaces&) {
  return Unsupported("cuDNN is not used: this binary was built without its header");
}

std::string CudnnVersion(const SearchPlaces&) { return {}; }

void NoteWithoutCudnn(const Error&) {}

}  // namespace windtunnel::cuda
