// A shared library that is opened when it is first needed, so that a program starts without it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/cuda/library_search.h"

namespace windtunnel::cuda {

class SharedLibrary {
 public:
  // Returns the first of the files that opens and that `accept` accepts (its error gives the reason if not).
  // After the files found in the usual directories come the loader's own. Libraries are never closed: their
  // threads may outlive their users. Failed: "cuBLASLt was not found: …" names the files tried and why each
  // was refused.
  static Result<SharedLibrary> Open(const std::string& what, const std::vector<std::string>& names,
                                    const SearchPlaces& places,
                                    const std::function<Status(const SharedLibrary&)>& accept);

  // Null when the library has no such symbol.
  void* Find(const char* symbol) const;
  // Failed: names the library and the symbol.
  template <typename Function>
  Status Load(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(Find(symbol));
    if (function == nullptr) return Failed("{} has no {}", path_, symbol);
    return Ok();
  }
  const std::string& path() const { return path_; }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace windtunnel::cuda
