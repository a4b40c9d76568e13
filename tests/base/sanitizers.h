// Whether the program is built with ThreadSanitizer. That keeps shadow memory for every page and reserves
// most addresses, so resident memory is not the program's alone, and the program cannot reserve ranges of a
// terabyte.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define WT_HAS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WT_HAS_THREAD_SANITIZER 1
#endif
#endif

namespace windtunnel {

#ifdef WT_HAS_THREAD_SANITIZER
inline constexpr bool kHasThreadSanitizer = true;
#else
inline constexpr bool kHasThreadSanitizer = false;
#endif

}  // namespace windtunnel
