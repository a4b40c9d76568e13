#include "runtime/cuda/shared_library.h"

#include <dlfcn.h>

namespace windtunnel::cuda {

Result<SharedLibrary> SharedLibrary::Open(const std::string& what, const std::vector<std::string>& names,
                                          const SearchPlaces& places,
                                          const std::function<Status(const SharedLibrary&)>& accept) {
  std::vector<std::string> candidates = FindLibraries(names, places);
  candidates.insert(candidates.end(), names.begin(), names.end());
  std::string refused;
  for (const std::string& path : candidates) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string reason;
    if (handle == nullptr) {
      const char* error = dlerror();
      reason = error != nullptr ? error : path + ": cannot be opened";
    } else {
      SharedLibrary library(handle, path);
      const Status accepted = accept(library);
      if (accepted) return library;
      reason = path + ": " + accepted.error().message;
    }
    refused += (refused.empty() ? "" : "; ") + reason;
  }
  return Failed(
      "{} was not found ({}); it comes with a CUDA toolkit (set CUDA_HOME) or with pip's packages of "
      "NVIDIA's "
      "libraries (or set LD_LIBRARY_PATH)",
      what, refused);
}

void* SharedLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace windtunnel::cuda
