#include "runtime/cuda/emulator/device.h"

#include <cstdlib>
#include <cstring>

#include "runtime/cuda/dispatch.h"

namespace windtunnel {
namespace {

// The traits of a small device, so that grids are smaller than the work and blocks take several turns.
constexpr cuda_emulated::Traits kTraits = {.multiprocessors = 2, .shared_bytes = 227 << 10};

class EmulatedDevice : public Device {
 public:
  Status Launch(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                const KernelContext& context) override {
    if (std::holds_alternative<Gemm>(kind) || std::holds_alternative<GroupedGemm>(kind))
      return cpu_->Launch(kind, reads, writes, context);
    // Only the bytes that the kernels ask for, rounded up to 256: address sanitizers then detect accesses
    // beyond them.
    const int64_t bytes = cuda_emulated::ScratchBytesOf(kind, kTraits);
    const std::unique_ptr<void, decltype(&free)> scratch(
        aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256)), free);
    memset(scratch.get(), 0xff, static_cast<size_t>(bytes));
    cuda_emulated::Fault fault;
    cuda_emulated::Queue queue(nullptr, kTraits, scratch.get(), bytes, &fault);
    WT_RETURN_IF_ERROR(cuda_emulated::LaunchOn(queue, kind, reads, writes, context));
    return cuda_emulated::StatusOf(fault);
  }

  SegmentSource& memory() override { return cpu_->memory(); }
  std::map<std::string, std::string> Libraries() const override { return cpu_->Libraries(); }

 private:
  std::unique_ptr<Device> cpu_ = MakeCpuDevice();
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedDevice() { return std::make_unique<EmulatedDevice>(); }

}  // namespace windtunnel
