// Flash attention by cuDNN, if it is installed and has a kernel for the operator; otherwise this project's
// kernels compute it. cuDNN's backward sums gradients of queries in the order in which blocks finish, so two
// runs differ in the last bits.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/cuda/library_search.h"
#include "runtime/kernel_context.h"

namespace windtunnel::cuda {

class FusedAttention {
 public:
  virtual ~FusedAttention() = default;

  // Bytes of scratch memory that the operator needs. nullopt: cuDNN does not compute it (another operator,
  // eager, fp32, deterministic, or a shape or alignment without a kernel). The first use of a shape compiles
  // its kernel, which takes about half a second. Failed: cuDNN's errors, other than that it has no kernel.
  virtual Result<std::optional<int64_t>> ScratchBytes(const OpKind& kind, std::span<const TensorRef> reads,
                                                      std::span<const TensorRef> writes) = 0;

  // Operands as plan/ops.h documents. `scratch` is aligned to 256 bytes. REQUIRES: ScratchBytes returned a
  // number for these operands.
  virtual Status Launch(const OpKind& kind, std::span<const TensorRef> reads,
                        std::span<const TensorRef> writes, void* scratch, cudaStream_t stream) = 0;

  virtual const std::string& version() const = 0;
};

// For the current device. Unsupported: cuDNN was not found, is too old or not for this driver, or this binary
// was built without its header. Failed: cuDNN is there but does not start.
Result<std::unique_ptr<FusedAttention>> MakeFusedAttention(const SearchPlaces& places);

// The version of cuDNN that would be opened; empty if there is none.
std::string CudnnVersion(const SearchPlaces& places);

// Says once, on standard error, why cuDNN does not compute attention although it is there.
void NoteWithoutCudnn(const Error& error);

}  // namespace windtunnel::cuda
