// Launches kernels: in a CUDA stream, together with what kernels need besides their operands; with
// WT_EMULATED, in blocks of fibers on the host instead (runtime/cuda/emulator/queue.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ceil_divide.h"

#if defined(WT_EMULATED)
#include "runtime/cuda/emulator/block.h"
#undef WT_KERNELS
#define WT_KERNELS cuda_emulated
#else
#undef WT_KERNELS
#define WT_KERNELS cuda
#endif

namespace windtunnel::WT_KERNELS {

struct Grid {
  int64_t x = 1, y = 1, z = 1;
};

// An error that a kernel found in its input, in memory shared by host and device. The first thread to find
// one fills it in.
struct Fault {
  enum Kind : int32_t { kNone, kTokenId, kTarget };
  int32_t kind = kNone;
  int32_t value = 0;
  int64_t position = 0, bound = 0;
};

// The properties of the device that launches depend on.
struct Traits {
  int multiprocessors = 1;
  int64_t shared_bytes = 48 << 10;  // the most shared memory that one block may have
};

// The kernels of one queue run in order.
class Queue {
 public:
  // `stream` is a cudaStream_t of the current device. `scratch` is device memory for sums until they are
  // rounded, aligned to 256 bytes; its contents do not outlive an operator. `fault`, in the device's address
  // space, may be null: then nothing is reported.
  Queue(void* stream, const Traits& traits, void* scratch, int64_t scratch_bytes, Fault* fault)
      : stream_(stream), traits_(traits), scratch_(scratch), scratch_bytes_(scratch_bytes), fault_(fault) {}

  // After a refused launch (or an error of an earlier kernel, which shows here too) later launches do
  // nothing, and failure() says which one failed and why.
  template <typename Kernel>
  void Launch(const Kernel& kernel, Grid grid, int64_t shared_bytes = 0);

  // Zero and copy memory. Copies go between any two memories that the device can reach (pinned host memory is
  // one).
  void Clear(void* to, int64_t bytes);
  void CopyMemory(void* to, const void* from, int64_t bytes);

  // Null, with a failure noted, if there is less.
  template <typename T = float>
  T* Scratch(int64_t elements) {
    return static_cast<T*>(ScratchBytes(elements * static_cast<int64_t>(sizeof(T))));
  }

  struct Failure {
    int error = 0;  // a cudaError_t, or kTooLittleScratch; 0: none
    const char* what = "";
    int64_t bytes = 0;  // shared memory that the kernel asked for, or scratch
  };
  static constexpr int kTooLittleScratch = -1;
  const Failure& failure() const { return failure_; }

  const Traits& traits() const { return traits_; }
  Fault* fault() const { return fault_; }
  // The number of blocks that share `work` items, `per_block` at a time, with `resident` blocks on each
  // multiprocessor; no more than are needed.
  int64_t BlocksFor(int64_t work, int64_t per_block, int64_t resident = 8) const {
    return BlocksOn(traits_, work, per_block, resident);
  }
  static int64_t BlocksOn(const Traits& traits, int64_t work, int64_t per_block, int64_t resident);

 private:
  void* ScratchBytes(int64_t bytes);
  // Keeps the first error.
  void Note(int error, const char* what, int64_t bytes) {
    if (error != 0 && failure_.error == 0) failure_ = {error, what, bytes};
  }

  void* stream_;
  Traits traits_;
  void* scratch_;
  int64_t scratch_bytes_;
  Fault* fault_;
  Failure failure_ = {};
};

inline int64_t Queue::BlocksOn(const Traits& traits, int64_t work, int64_t per_block, int64_t resident) {
  const int64_t needed = CeilDivide(work, per_block), most = traits.multiprocessors * resident;
  return needed < 1 ? 1 : needed < most ? needed : most;
}

#if defined(WT_EMULATED)

template <typename Kernel>
void Queue::Launch(const Kernel& kernel, Grid grid, int64_t shared_bytes) {
  // The device refuses these launches, too: with cudaErrorInvalidValue and cudaErrorInvalidConfiguration.
  if (shared_bytes > traits_.shared_bytes) Note(1, __PRETTY_FUNCTION__, shared_bytes);
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > 65535 || grid.z > 65535)
    Note(9, __PRETTY_FUNCTION__, 0);
  if (failure_.error != 0) return;
  emulator::RunBlocks({static_cast<int>(grid.x), static_cast<int>(grid.y), static_cast<int>(grid.z)},
                      Kernel::kThreads, shared_bytes, [&kernel] { kernel(); });
}

#elif defined(__CUDACC__)

// A kernel that must use few registers defines how many of its blocks a multiprocessor should hold.
template <typename Kernel>
constexpr int ResidentBlocks() {
  if constexpr (requires { Kernel::kResidentBlocks; }) {
    return Kernel::kResidentBlocks;
  } else {
    return 1;
  }
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, ResidentBlocks<Kernel>())
    RunKernel(const __grid_constant__ Kernel kernel) {
  kernel();
}

template <typename Kernel>
void Queue::Launch(const Kernel& kernel, Grid grid, int64_t shared_bytes) {
  static_assert(sizeof(Kernel) <= 4096, "the operands of a kernel");
  if (failure_.error != 0) return;
  // A kernel that uses more must opt in.
  constexpr int64_t kSharedWithoutAsking = 48 << 10;
  if (shared_bytes > kSharedWithoutAsking) {
    Note(cudaFuncSetAttribute(RunKernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared_bytes)),
         __PRETTY_FUNCTION__, shared_bytes);
  }
  void* operands[] = {const_cast<Kernel*>(&kernel)};
  const auto size = [](int64_t blocks) { return static_cast<unsigned>(blocks); };
  Note(cudaLaunchKernel(reinterpret_cast<const void*>(&RunKernel<Kernel>),
                        dim3(size(grid.x), size(grid.y), size(grid.z)), dim3(Kernel::kThreads), operands,
                        static_cast<size_t>(shared_bytes), static_cast<cudaStream_t>(stream_)),
       __PRETTY_FUNCTION__, shared_bytes);
}

#endif

}  // namespace windtunnel::WT_KERNELS
