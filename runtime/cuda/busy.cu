#include "runtime/cuda/busy.h"

namespace windtunnel::cuda {
namespace {

__global__ void Nothing() {}

// The global timer ticks in steps of up to a microsecond.
__global__ void Spin(int64_t nanoseconds) {
  uint64_t start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (static_cast<int64_t>(now - start) < nanoseconds);
}

}  // namespace

cudaError_t LaunchNothing(cudaStream_t stream) {
  Nothing<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t LaunchSpin(cudaStream_t stream, int64_t nanoseconds) {
  Spin<<<1, 1, 0, stream>>>(nanoseconds);
  return cudaGetLastError();
}

}  // namespace windtunnel::cuda
