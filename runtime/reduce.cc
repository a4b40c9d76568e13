#include "runtime/reduce.h"

#include <type_traits>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel {
namespace {

using cpu::BFloat16;
using cpu::Float16;

// fp32 has 24 significant bits, at least twice those of bf16 (8) and fp16 (11) and two more: so rounding its
// sum gives the exact sum's nearest. Integers are unsigned, so that an overflowing sum wraps instead of being
// undefined.
template <typename T>
WT_INLINE T Plus(T a, T b) {
  if constexpr (std::is_same_v<T, uint32_t>) {
    return a + b;
  } else {
    return cpu::FromFloat<T>(cpu::ToFloat(a) + cpu::ToFloat(b));
  }
}

template <typename T>
WT_CPU_KERNEL void AddTo(int64_t n, T* __restrict sum, const T* __restrict x) {
  for (int64_t i = 0; i < n; ++i) sum[i] = Plus(sum[i], x[i]);
}

// Element by element, so `out` may be an operand: "ivdep" is true of out == a as well.
template <typename T>
WT_CPU_KERNEL void Sum(int64_t n, T* out, const T* a, const T* b) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = Plus(a[i], b[i]);
}

// f(T()) with the type that sums of `dtype` are made in.
template <typename F>
void WithSummable(DType dtype, F f) {
  if (dtype == DType::kInt32) return f(uint32_t());
  cpu::WithElement(dtype, f);
}

}  // namespace

Status CheckSummable(DType dtype) {
  if (cpu::IsElement(dtype) || dtype == DType::kInt32) return Ok();
  return Unsupported("collectives sum fp32, bf16, fp16 and int32 only, not {}", Name(dtype));
}

void AddInto(DType dtype, void* sum, const void* x, int64_t elements) {
  WithSummable(dtype, [&](auto element) {
    using T = decltype(element);
    AddTo(elements, static_cast<T*>(sum), static_cast<const T*>(x));
  });
}

void Add(DType dtype, void* out, const void* a, const void* b, int64_t elements) {
  WithSummable(dtype, [&](auto element) {
    using T = decltype(element);
    Sum(elements, static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b));
  });
}

}  // namespace windtunnel
