// The memory operations of Queue for blocks of fibers.
#include "runtime/cuda/kernels/queue.h"

#include <cstring>

namespace windtunnel::WT_KERNELS {

void Queue::Clear(void* to, int64_t bytes) { memset(to, 0, static_cast<size_t>(bytes)); }

void Queue::CopyMemory(void* to, const void* from, int64_t bytes) {
  memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace windtunnel::WT_KERNELS
