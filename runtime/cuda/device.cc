#include "runtime/cuda/device.h"

#include <cuda_runtime_api.h>

#include <optional>

#include "base/ceil_divide.h"
#include "base/format.h"
#include "runtime/cuda/dispatch.h"
#include "runtime/cuda/fused_attention.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/queues.h"
#include "runtime/cuda/shared_library.h"
#include "runtime/cuda/status.h"

namespace windtunnel {
namespace cuda {
namespace {

constexpr int64_t kScratchStep = int64_t{8} << 20;

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 3 || i == 5 || i == 7 || i == 9) text += "-";
  }
  return text;
}

Result<CudaDeviceInfo> Look(int ordinal) {
  cudaDeviceProp properties{};
  WT_RETURN_IF_ERROR(Check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties"));
  CudaDeviceInfo info;
  info.name = properties.name;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory = Bytes(static_cast<int64_t>(properties.totalGlobalMem));
  info.uuid = UuidText(properties.uuid);
  int value = 0;
  if (cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, ordinal) == cudaSuccess) info.clock_khz = value;
  if (cudaDeviceGetAttribute(&value, cudaDevAttrMemoryClockRate, ordinal) == cudaSuccess)
    info.memory_clock_khz = value;
  if (cudaDriverGetVersion(&value) == cudaSuccess) info.driver = value;
  return info;
}

struct Found {
  std::vector<CudaDeviceInfo> devices;
  std::string why;  // why no device was found
};

Found FindDevices() {
  Found found;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    (void)cudaGetLastError();
    found.why =
        error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ? "" : cudaGetErrorString(error);
    int driver = 0;
    // A driver older than the runtime reports its version; 0 means no driver.
    if (error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
      found.why = fmt::format("the driver has CUDA {}.{}, this binary needs {}.{}", driver / 1000,
                              driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return found;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (auto info = Look(ordinal)) found.devices.push_back(std::move(*info));
  return found;
}

const Found& Devices() {
  static const Found found = FindDevices();
  return found;
}

std::string CudaText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

class CudaDevice : public Device {
 public:
  static Result<std::unique_ptr<Device>> Make(int ordinal) {
    WT_RETURN_IF_ERROR(CheckCudaDevice());
    if (ordinal < 0 || ordinal >= static_cast<int>(CudaDevices().size()))
      return Failed("cluster.device: CUDA device {} was not found, only {} of them", ordinal,
                    CudaDevices().size());
    WT_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal), "cudaSetDevice"));
    std::unique_ptr<CudaDevice> device(new CudaDevice(ordinal));
    WT_RETURN_IF_ERROR(device->TakeStock());
    WT_ASSIGN_OR_RETURN(device->queues_, Queues::Make(ordinal));
    WT_ASSIGN_OR_RETURN(device->multiplier_, Multiplier::Make(SearchPlaces::OfThisProcess()));
    return device;
  }

  ~CudaDevice() override {
    cudaDeviceSynchronize();
    if (scratch_ != nullptr) cudaFree(scratch_);
  }

  DeviceQueues* queues() override { return queues_.get(); }
  SegmentSource& memory() override { return memory_; }

  Status Launch(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                const KernelContext& context) override {
    const auto stream = static_cast<cudaStream_t>(queues_->Handle(context.queue));
    if (const auto* gemm = std::get_if<Gemm>(&kind)) {
      const void* bias = gemm->bias ? reads[2].data : nullptr;
      return multiplier_->Multiply(ProblemOf(*gemm), reads[1].data, reads[0].data, bias, writes[0].data,
                                   stream);
    }
    if (const auto* gemm = std::get_if<GroupedGemm>(&kind))
      return multiplier_->Multiply(ProblemOf(*gemm), reads[1].data, reads[0].data, nullptr, writes[0].data,
                                   stream);
    if (FusedAttention* fused = FusedFor(kind); fused != nullptr) {
      WT_ASSIGN_OR_RETURN(const std::optional<int64_t> needed, fused->ScratchBytes(kind, reads, writes));
      if (needed) {
        WT_RETURN_IF_ERROR(HaveScratch(*needed));
        has_fused_ = true;
        return fused->Launch(kind, reads, writes, scratch_, stream);
      }
    }
    WT_RETURN_IF_ERROR(HaveScratch(ScratchBytesOf(kind, traits_)));
    Queue queue(stream, traits_, scratch_, scratch_bytes_, fault_);
    return LaunchOn(queue, kind, reads, writes, context);
  }

  Status Fault() override { return StatusOf(*fault_); }
  int64_t generation() const override { return generation_; }

  Status Link(Device& other) override {
    const int peer = static_cast<CudaDevice&>(other).ordinal_;
    if (peer == ordinal_) return Ok();
    int reaches = 0, is_reached = 0;
    WT_RETURN_IF_ERROR(Check(cudaDeviceCanAccessPeer(&reaches, ordinal_, peer), "cudaDeviceCanAccessPeer"));
    WT_RETURN_IF_ERROR(
        Check(cudaDeviceCanAccessPeer(&is_reached, peer, ordinal_), "cudaDeviceCanAccessPeer"));
    if (reaches == 0 || is_reached == 0) return Ok();
    // Another rank on this device may have enabled it already.
    if (const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
        error != cudaErrorPeerAccessAlreadyEnabled) {
      WT_RETURN_IF_ERROR(Check(error, "cudaDeviceEnablePeerAccess"));
    }
    (void)cudaGetLastError();
    return memory_.LetReach(peer);
  }

  std::map<std::string, std::string> Libraries() const override {
    std::map<std::string, std::string> versions = {{"CUDA runtime", CudaText(CUDART_VERSION)},
                                                   {"CUDA driver", CudaText(CudaDevices()[ordinal_].driver)},
                                                   {"cuBLASLt", multiplier_->version()}};
    if (has_fused_) versions["cuDNN"] = fused_->version();
    return versions;
  }

 private:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal), memory_(ordinal) {
    traits_.multiprocessors = CudaDevices()[ordinal].multiprocessors;
  }

  Status TakeStock() {
    int shared = 0;
    WT_RETURN_IF_ERROR(
        Check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal_),
              "cudaDeviceGetAttribute"));
    traits_.shared_bytes = shared;
    WT_ASSIGN_OR_RETURN(const uint64_t address, fault_memory_.Reserve(Bytes(sizeof(cuda::Fault))));
    fault_ = new (reinterpret_cast<void*>(address)) cuda::Fault();
    return Ok();
  }

  // cuDNN is opened at the first attention operator. Null: another operator, or cuDNN is missing or does not
  // work; it is not required.
  FusedAttention* FusedFor(const OpKind& kind) {
    if (!std::holds_alternative<AttentionForward>(kind) && !std::holds_alternative<AttentionBackward>(kind))
      return nullptr;
    if (!looked_for_cudnn_) {
      auto fused = MakeFusedAttention(SearchPlaces::OfThisProcess());
      if (fused) fused_ = std::move(*fused);
      else if (fused.error().kind != ErrorKind::kUnsupported) NoteWithoutCudnn(fused.error());
      looked_for_cudnn_ = true;
    }
    return fused_.get();
  }

  // cudaFree waits for the kernels that use the old scratch memory. Copies run in a queue beside the compute
  // queue and need no scratch.
  Status HaveScratch(int64_t needed) {
    if (needed <= scratch_bytes_) return Ok();
    if (scratch_ != nullptr) WT_RETURN_IF_ERROR(Check(cudaFree(scratch_), "cudaFree"));
    scratch_ = nullptr;
    scratch_bytes_ = 0;
    ++generation_;
    const int64_t bytes = CeilDivide(needed, kScratchStep) * kScratchStep;
    WT_RETURN_IF_ERROR(
        Check(cudaMalloc(&scratch_, static_cast<size_t>(bytes)), "the kernels' scratch memory: cudaMalloc"));
    scratch_bytes_ = bytes;
    return Ok();
  }

  const int ordinal_;
  DeviceMemory memory_;
  std::unique_ptr<FusedAttention> fused_;  // must outlive the graphs that contain its kernels
  std::unique_ptr<Queues> queues_;
  std::unique_ptr<Multiplier> multiplier_;
  // has_fused_: whether cuDNN has computed anything.
  bool looked_for_cudnn_ = false, has_fused_ = false;
  Traits traits_;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  int64_t generation_ = 0;  // counts replacements of the scratch memory
  PinnedMemory fault_memory_;
  cuda::Fault* fault_ = nullptr;
};

// The part of NVML that is needed here; nvml.h is not part of every toolkit.
struct NvmlMemory {
  unsigned long long total, free, used;
};

Result<Bytes> AskNvml(int ordinal) {
  int (*init)() = nullptr, (*by_uuid)(const char*, void**) = nullptr, (*memory)(void*, NvmlMemory*) = nullptr;
  const auto accept = [&](const SharedLibrary& library) -> Status {
    WT_RETURN_IF_ERROR(library.Load("nvmlInit_v2", init));
    WT_RETURN_IF_ERROR(library.Load("nvmlDeviceGetHandleByUUID", by_uuid));
    return library.Load("nvmlDeviceGetMemoryInfo", memory);
  };
  WT_ASSIGN_OR_RETURN([[maybe_unused]] const SharedLibrary nvml,
                      SharedLibrary::Open("NVML", {"libnvidia-ml.so.1"}, {}, accept));
  void* device = nullptr;
  NvmlMemory used{};
  if (init() != 0 || by_uuid(CudaDevices()[ordinal].uuid.c_str(), &device) != 0 || memory(device, &used) != 0)
    return Failed("NVML does not know the device's memory");
  // Counts as the runtime does: its total minus the free memory. NVML's own total includes memory that no
  // process can get.
  return CudaDevices()[ordinal].memory - Bytes(static_cast<int64_t>(used.free));
}

}  // namespace
}  // namespace cuda

const std::vector<CudaDeviceInfo>& CudaDevices() { return cuda::Devices().devices; }

Status CheckCudaDevice() {
  if (!CudaDevices().empty()) return Ok();
  const std::string& why = cuda::Devices().why;
  return Failed("cluster.device: no CUDA device was found{}", why.empty() ? "" : " (" + why + ")");
}

Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal) { return cuda::CudaDevice::Make(ordinal); }

std::map<std::string, std::string> CudaLibraries() {
  std::map<std::string, std::string> versions;
  if (CudaDevices().empty()) return versions;
  versions["CUDA runtime"] = cuda::CudaText(CUDART_VERSION);
  versions["CUDA driver"] = cuda::CudaText(CudaDevices().front().driver);
  if (const auto blas = cuda::OpenBlasLt(cuda::SearchPlaces::OfThisProcess()))
    versions["cuBLASLt"] = blas->version_text;
  if (const std::string cudnn = cuda::CudnnVersion(cuda::SearchPlaces::OfThisProcess()); !cudnn.empty())
    versions["cuDNN"] = cudnn;
  return versions;
}

Result<Bytes> CudaMemoryInUse(int ordinal) {
  WT_RETURN_IF_ERROR(CheckCudaDevice());
  return cuda::AskNvml(ordinal);
}

}  // namespace windtunnel
