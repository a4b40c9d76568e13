// Flash attention by cuDNN, where it is there and has a kernel for the operator; own kernels do the rest. Its backward adds up gradients
// of queries in the order in which blocks come, so two runs differ in the last bits.
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

  // Bytes of scratch memory that the operator needs. Nothing: it is none of cuDNN's (another operator, eager, fp32, deterministic, a
  // shape or an alignment that it has no kernel for). The first time that a shape comes, its kernel is compiled, about half a second.
  // Failed: what cuDNN says, other than that it has no kernel.
  virtual Result<std::optional<int64_t>> ScratchBytes(const OpKind& kind, std::span<const TensorRef> reads,
                                                      std::span<const TensorRef> writes) = 0;

  // Operands as plan/op.h documents. `scratch`: 256 bytes aligned. REQUIRES: ScratchBytes gave a number for these operands.
  virtual Status Launch(const OpKind& kind, std::span<const TensorRef> reads,
                        std::span<const TensorRef> writes, void* scratch, cudaStream_t stream) = 0;

  virtual const std::string& version() const = 0;
};

// On the current device. Unsupported: cuDNN was not found, is too old, or not for this driver; or this was built without its header. Failed: it is
// there, and does not start.
Result<std::unique_ptr<FusedAttention>> MakeFusedAttention(const SearchPlaces& places);

// Of the cuDNN that it would open; empty where there is none.
std::string CudnnVersion(const SearchPlaces& places);

// Says once, on standard error, why cuDNN does not compute attention though it is there.
void NoteWithoutCudnn(const Error& error);

}  // namespace windtunnel::cuda
