#include "runtime/cpu/convert.h"

#include <cstring>
#include <type_traits>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

template <typename From, typename To>
WT_CPU_KERNEL void CopyScaled(int64_t n, float scale, const From* in, To* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = FromFloat<To>(ToFloat(in[i]) * scale);
}

template <typename From, typename To>
WT_CPU_KERNEL void AddScaled(int64_t n, float scale, const From* in, To* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = FromFloat<To>(ToFloat(out[i]) + ToFloat(in[i]) * scale);
}

}  // namespace

template <typename From, typename To>
void Convert(int64_t n, float scale, const From* in, To* out) {
  if (n <= 0) return;
  if constexpr (std::is_same_v<From, To>) {
    if (scale == 1.0f) {
      std::memmove(out, in, static_cast<size_t>(n) * sizeof(To));
      return;
    }
  }
  CopyScaled(n, scale, in, out);
}

template <typename From, typename To>
void ConvertAndAdd(int64_t n, float scale, const From* in, To* out) {
  AddScaled(n, scale, in, out);
}

#define WT_INSTANTIATE(From, To)                                                    \
  template void Convert<From, To>(int64_t n, float scale, const From* in, To* out); \
  template void ConvertAndAdd<From, To>(int64_t n, float scale, const From* in, To* out);
WT_INSTANTIATE(float, float)
WT_INSTANTIATE(float, BFloat16)
WT_INSTANTIATE(float, Float16)
WT_INSTANTIATE(BFloat16, float)
WT_INSTANTIATE(BFloat16, BFloat16)
WT_INSTANTIATE(BFloat16, Float16)
WT_INSTANTIATE(Float16, float)
WT_INSTANTIATE(Float16, BFloat16)
WT_INSTANTIATE(Float16, Float16)
#undef WT_INSTANTIATE

}  // namespace windtunnel::cpu
