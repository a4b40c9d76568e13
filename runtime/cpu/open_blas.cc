#include "runtime/cpu/open_blas.h"

#include <dlfcn.h>

#include <type_traits>

namespace windtunnel::cpu {
namespace {

constexpr char kFile[] = "libopenblas.so.0";

Result<OpenBlas> Open() {
  void* library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Failed("OpenBLAS cannot be opened: {}", dlerror());
  OpenBlas blas;
  const auto load = [&](const char* name, auto*& function) -> Status {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) return Failed("{} has no {}", kFile, name);
    return Ok();
  };
  WT_RETURN_IF_ERROR(load("cblas_sgemm", blas.sgemm));
  WT_RETURN_IF_ERROR(load("openblas_set_num_threads", blas.set_threads));
  WT_RETURN_IF_ERROR(load("openblas_get_config", blas.config));
  WT_RETURN_IF_ERROR(load("openblas_get_corename", blas.core_name));
  return blas;
}

}  // namespace

const Result<OpenBlas>& OpenBlas::Get() {
  static const Result<OpenBlas> blas = Open();
  return blas;
}

}  // namespace windtunnel::cpu
