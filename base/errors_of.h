// Turns exceptions of libraries into errors. For the beginning of a thread's work, since no exception may
// leave a thread.
#pragma once

#include <exception>
#include <new>
#include <type_traits>

#include "base/result.h"

namespace windtunnel {

// Returns what `work` (a Result or a Status) returns; Failed if it throws.
template <typename Work>
std::invoke_result_t<Work> ErrorsOf(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    // Short enough for a string that allocates nothing.
    return tl::unexpected(Error{ErrorKind::kFailed, "out of memory", {}});
  } catch (const std::exception& error) {
    return Failed("{}", error.what());
  }
}

}  // namespace windtunnel
