// Whether ThreadSanitizer watches. It keeps shadow memory beside every page and reserves most addresses, so that neither resident memory nor
// ranges of a terabyte are the program's own.
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
