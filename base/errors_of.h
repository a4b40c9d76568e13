// What libraries throw, as errors: where a thread's work begins, since nothing may leave it.
#pragma once

#include <exception>
#include <new>
#include <type_traits>

#include "base/result.h"

namespace windtunnel {

// What `work` returns (a Result or a Status); Failed where it throws.
template <typename Work>
std::invoke_result_t<Work> ErrorsOf(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    // Short enough for a string without memory of its own.
    return tl::unexpected(Error{ErrorKind::kFailed, "out of memory", {}});
  } catch (const std::exception& error) {
    return Failed("{}", error.what());
  }
}

}  // namespace windtunnel
