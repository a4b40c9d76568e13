// Turns exceptions of libraries into errors. For the beginning of a thread's work, since no exception may
// leave a thread.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <typeinfo>

#include "base/result.h"

namespace windtunnel {

// The message of an exception. If a thread could not be started, it also says why that may be.
inline std::string MessageOf(const std::exception& error) {
  // std::thread throws a plain system_error. Others that mean something else by this code have classes of
  // their own, such as filesystem_error.
  const bool is_plain = typeid(error) == typeid(std::system_error);
  if (!is_plain ||
      static_cast<const std::system_error&>(error).code() != std::errc::resource_unavailable_try_again)
    return error.what();
  return fmt::format(
      "the system starts no further thread ({}): it has no memory for one, or a limit is reached (`ulimit "
      "-u`)",
      error.what());
}

// Returns what `work` (a Result or a Status) returns; Failed if it throws.
template <typename Work>
std::invoke_result_t<Work> ErrorsOf(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    // Short enough for a string that allocates nothing.
    return tl::unexpected(Error{ErrorKind::kFailed, "out of memory", {}});
  } catch (const std::exception& error) {
    return Failed("{}", MessageOf(error));
  }
}

}  // namespace windtunnel
