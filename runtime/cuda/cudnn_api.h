// cuDNN's backend functions, opened when attention is first requested.
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

// Opens cuDNN 9 for the CUDA version that this binary was built with. Failed: as SharedLibrary::Open.
Result<CudnnApi> OpenCudnn(const SearchPlaces& places);

// "cudnnBackendFinalize: …" with cuDNN's message and the status as a number. Errors: Unsupported (cuDNN has
// no kernel for the request), Failed.
Status CheckCudnn(const CudnnApi& api, cudnnStatus_t status, const char* call);

}  // namespace windtunnel::cuda
