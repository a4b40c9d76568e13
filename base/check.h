// CHECKs guard our own invariants: they print both values and abort. They never guard user input
// (base/result.h).
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace windtunnel::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const std::string& what) {
  fmt::print(stderr, "{}:{}: CHECK failed: {}\n", file, line, what);
  std::abort();
}

template <typename A, typename B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* what, const A& a, const B& b) {
  CheckFailed(file, line, fmt::format("{} ({} vs. {})", what, a, b));
}

}  // namespace windtunnel::internal

#define WT_CHECK(condition)                                                                \
  do {                                                                                     \
    if (!(condition)) ::windtunnel::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#define WT_CHECK_OP(a, op, b)                                                                   \
  do {                                                                                          \
    const auto& wt_a = (a);                                                                     \
    const auto& wt_b = (b);                                                                     \
    if (!(wt_a op wt_b))                                                                        \
      ::windtunnel::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, wt_a, wt_b); \
  } while (false)
#define WT_CHECK_EQ(a, b) WT_CHECK_OP(a, ==, b)
#define WT_CHECK_LT(a, b) WT_CHECK_OP(a, <, b)
#define WT_CHECK_LE(a, b) WT_CHECK_OP(a, <=, b)
#define WT_CHECK_GE(a, b) WT_CHECK_OP(a, >=, b)
#define WT_CHECK_GT(a, b) WT_CHECK_OP(a, >, b)
