#include "runtime/cuda/kernels/queue.h"

namespace windtunnel::WT_KERNELS {

void Queue::Clear(void* to, int64_t bytes) {
  if (failure_.error != 0 || bytes <= 0) return;
  Note(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream_)),
       "cudaMemsetAsync", bytes);
}

void Queue::CopyMemory(void* to, const void* from, int64_t bytes) {
  if (failure_.error != 0 || bytes <= 0) return;
  Note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                       static_cast<cudaStream_t>(stream_)),
       "cudaMemcpyAsync", bytes);
}

}  // namespace windtunnel::WT_KERNELS
