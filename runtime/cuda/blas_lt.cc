#include "runtime/cuda/blas_lt.h"

#include <cuda_runtime_api.h>

#include "runtime/cuda/shared_library.h"

namespace windtunnel::cuda {
namespace {

constexpr int kMajor = CUDART_VERSION / 1000;

Status LoadAll(const SharedLibrary& library, BlasLt& blas) {
  WT_RETURN_IF_ERROR(library.Load("cublasLtGetVersion", blas.version));
  const int version = static_cast<int>(blas.version());
  if (version / 10000 != kMajor)
    return Failed("is version {}, expected {}.x", CublasVersionText(version), kMajor);
  blas.version_text = CublasVersionText(version);
  blas.path = library.path();
  WT_RETURN_IF_ERROR(library.Load("cublasLtCreate", blas.create));
  WT_RETURN_IF_ERROR(library.Load("cublasLtDestroy", blas.destroy));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatmul", blas.matmul));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatmulAlgoGetHeuristic", blas.heuristic));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatmulDescCreate", blas.create_operation));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatmulDescDestroy", blas.destroy_operation));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatmulDescSetAttribute", blas.set_operation));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatrixLayoutCreate", blas.create_layout));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatrixLayoutDestroy", blas.destroy_layout));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatrixLayoutSetAttribute", blas.set_layout));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatmulPreferenceCreate", blas.create_preference));
  WT_RETURN_IF_ERROR(library.Load("cublasLtMatmulPreferenceDestroy", blas.destroy_preference));
  return library.Load("cublasLtMatmulPreferenceSetAttribute", blas.set_preference);
}

}  // namespace

Result<BlasLt> OpenBlasLt(const SearchPlaces& places) {
  BlasLt blas;
  const auto accept = [&](const SharedLibrary& library) { return LoadAll(library, blas); };
  WT_ASSIGN_OR_RETURN(
      [[maybe_unused]] const SharedLibrary library,
      SharedLibrary::Open("cuBLASLt", {fmt::format("libcublasLt.so.{}", kMajor)}, places, accept));
  return blas;
}

// Some versions lack cublasLtGetStatusString, hence these texts.
Status CheckBlas(cublasStatus_t status, const char* call) {
  const char* text = "failed";
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return Ok();
    case CUBLAS_STATUS_NOT_INITIALIZED:
      text = "not initialised";
      break;
    case CUBLAS_STATUS_ALLOC_FAILED:
      text = "out of memory";
      break;
    case CUBLAS_STATUS_INVALID_VALUE:
      text = "invalid value";
      break;
    case CUBLAS_STATUS_ARCH_MISMATCH:
      text = "not for this device";
      break;
    case CUBLAS_STATUS_EXECUTION_FAILED:
      text = "execution failed";
      break;
    case CUBLAS_STATUS_NOT_SUPPORTED:
      text = "not supported";
      break;
    default:
      break;
  }
  return Failed("{}: {} ({})", call, text, static_cast<int>(status));
}

}  // namespace windtunnel::cuda
