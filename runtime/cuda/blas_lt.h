// cuBLASLt, opened when the first GEMM is requested.
#pragma once

#include <cublasLt.h>

#include <string>

#include "base/result.h"
#include "runtime/cuda/library_search.h"

namespace windtunnel::cuda {

struct BlasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_operation = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  std::string path, version_text;
};

// Opens the major version of the toolkit that this binary was built with. Failed: as SharedLibrary::Open.
Result<BlasLt> OpenBlasLt(const SearchPlaces& places);

// "cublasLtMatmul: not supported (15)".
Status CheckBlas(cublasStatus_t status, const char* call);

}  // namespace windtunnel::cuda
