// cuDNN's backend functions, opened when attention is first asked for.
#pragma once

#include <cudnn.h>

#include <string>

#include "base/result.h"
#include "runtime/cuda/library_search.h"

namespace windtunnel::cuda {

struct CudnnApi {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetCudartVersion) cuda_version = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
  std::string path, version_text;
};

// cuDNN 9 for the CUDA that this binary was built with. Failed: as SharedLibrary::Open.
Result<CudnnApi> OpenCudnn(const SearchPlaces& places);

// "cudnnBackendFinalize: …" with what cuDNN says, and its number. Errors: Unsupported (it has no kernel for that), Failed.
Status CheckCudnn(const CudnnApi& api, cudnnStatus_t status, const char* call);

}  // namespace windtunnel::cuda
