// Errors are values. Whatever a user, a file, a device or a peer can cause is returned as Result<T>; a broken
// invariant of this program's own is a CHECK (base/check.h).
//
//   Result<Scenario> Load(const std::string& path) {
//     WT_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
//     if (text.empty()) return InvalidInput("{}: the file is empty, expected a scenario", path);
//     …
//   }
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace windtunnel {

// The kind of failure, which decides the exit status of the command line.
enum class ErrorKind {
  kInvalidInput,  // wrong usage or a bad input file: exit 2
  kUnsupported,   // understood, but not supported (yet): exit 2
  kFailed,        // the work failed (a rank died, a time-out, out of memory): exit 1
};

// The message says where, what was found, what was expected and what to do.
struct Error {
  ErrorKind kind = ErrorKind::kFailed;
  std::string message;
  // For kInvalidInput: further mistakes in the same input, in the form of `message`.
  std::vector<std::string> others = {};
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline Status Ok() { return {}; }

template <typename... Args>
tl::unexpected<Error> InvalidInput(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{ErrorKind::kInvalidInput, fmt::format(format, std::forward<Args>(args)...)});
}
template <typename... Args>
tl::unexpected<Error> Unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{ErrorKind::kUnsupported, fmt::format(format, std::forward<Args>(args)...)});
}
template <typename... Args>
tl::unexpected<Error> Failed(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{ErrorKind::kFailed, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace windtunnel

#define WT_CONCAT_INNER(a, b) a##b
#define WT_CONCAT(a, b) WT_CONCAT_INNER(a, b)

// Returns the error of `expression` (a Result or Status) from the enclosing function.
#define WT_RETURN_IF_ERROR(expression)                                     \
  do {                                                                     \
    auto wt_status = (expression);                                         \
    if (!wt_status) return ::tl::unexpected(std::move(wt_status).error()); \
  } while (false)

// Declares `declaration` from the value of `expression`, or returns its error from the enclosing function.
#define WT_ASSIGN_OR_RETURN(declaration, expression) \
  WT_ASSIGN_OR_RETURN_IMPL(WT_CONCAT(wt_result_, __LINE__), declaration, expression)
#define WT_ASSIGN_OR_RETURN_IMPL(result, declaration, expression)  \
  auto result = (expression);                                      \
  if (!result) return ::tl::unexpected(std::move(result).error()); \
  declaration = std::move(*result)
