#include "runtime/cuda/cudnn_api.h"

#include <cuda_runtime_api.h>

#include "runtime/cuda/shared_library.h"

namespace windtunnel::cuda {
namespace {

constexpr size_t kOldest = 90000;
constexpr size_t kCudaMajor = CUDART_VERSION / 1000;

// `loaded`: path of the first library that was asked for its version. Asking loads its other libraries, and a
// second cuDNN would find those instead of its own.
Status LoadAll(const SharedLibrary& library, std::string& loaded, CudnnApi& api) {
  if (!loaded.empty()) return Failed("is not tried, since {} is loaded", loaded);
  loaded = library.path();
  WT_RETURN_IF_ERROR(library.Load("cudnnGetVersion", api.version));
  WT_RETURN_IF_ERROR(library.Load("cudnnGetCudartVersion", api.cuda_version));
  api.version_text = CudnnVersionText(static_cast<int>(api.version()));
  api.path = library.path();
  if (api.version() < kOldest) return Failed("is version {}, expected 9.0 or newer", api.version_text);
  if (api.cuda_version() / 1000 != kCudaMajor)
    return Failed("is for CUDA {}, expected {}", api.cuda_version() / 1000, kCudaMajor);
  WT_RETURN_IF_ERROR(library.Load("cudnnGetLastErrorString", api.last_error));
  WT_RETURN_IF_ERROR(library.Load("cudnnCreate", api.create));
  WT_RETURN_IF_ERROR(library.Load("cudnnDestroy", api.destroy));
  WT_RETURN_IF_ERROR(library.Load("cudnnSetStream", api.set_stream));
  WT_RETURN_IF_ERROR(library.Load("cudnnBackendCreateDescriptor", api.create_descriptor));
  WT_RETURN_IF_ERROR(library.Load("cudnnBackendDestroyDescriptor", api.destroy_descriptor));
  WT_RETURN_IF_ERROR(library.Load("cudnnBackendSetAttribute", api.set_attribute));
  WT_RETURN_IF_ERROR(library.Load("cudnnBackendGetAttribute", api.get_attribute));
  WT_RETURN_IF_ERROR(library.Load("cudnnBackendFinalize", api.finalize));
  return library.Load("cudnnBackendExecute", api.execute);
}

// Whether the request would work with another problem, device or driver. The remaining NOT_SUPPORTED statuses
// mean that a part of cuDNN is missing.
bool IsUnsupported(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_NOT_SUPPORTED:
    case CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN:
    case CUDNN_STATUS_NOT_SUPPORTED_SHAPE:
    case CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE:
    case CUDNN_STATUS_NOT_SUPPORTED_LAYOUT:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART:
    case CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH:
    case CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT:
    case CUDNN_STATUS_NOT_SUPPORTED_PADDING:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<CudnnApi> OpenCudnn(const SearchPlaces& places) {
  CudnnApi api;
  std::string loaded;
  const auto accept = [&](const SharedLibrary& library) { return LoadAll(library, loaded, api); };
  WT_ASSIGN_OR_RETURN([[maybe_unused]] const SharedLibrary library,
                      SharedLibrary::Open("cuDNN", {"libcudnn.so.9"}, places, accept));
  return api;
}

Status CheckCudnn(const CudnnApi& api, cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return Ok();
  char text[512] = {};
  api.last_error(text, sizeof text);
  const auto number = static_cast<int>(status);
  if (IsUnsupported(status)) return Unsupported("{}: {} ({})", call, text, number);
  return Failed("{}: {} ({})", call, text, number);
}

}  // namespace windtunnel::cuda
