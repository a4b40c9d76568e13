#include "runtime/reduce.h"

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel {
namespace {

using cpu::BFloat16;
using cpu::Float16;

// fp32 has 24 significant bits, at least two more than twice those of bf16 (8) and fp16 (11). So rounding
// its sum gives the exact sum's nearest. Integers are added unsigned, so that an overflowing sum wraps
// instead of being undefined.
struct Plus {
  WT_INLINE int32_t operator()(int32_t a, int32_t b) const {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
  template <typename T>
  WT_INLINE T operator()(T a, T b) const {
    return cpu::FromFloat<T>(cpu::ToFloat(a) + cpu::ToFloat(b));
  }
};

// Of a number and a NaN, returns either.
struct Larger {
  WT_INLINE int32_t operator()(int32_t a, int32_t b) const { return a > b ? a : b; }
  template <typename T>
  WT_INLINE T operator()(T a, T b) const {
    return cpu::ToFloat(a) > cpu::ToFloat(b) ? a : b;
  }
};

template <typename Combine, typename T>
WT_CPU_KERNEL void CombineInto(Combine combine, int64_t n, T* __restrict result, const T* __restrict x) {
  for (int64_t i = 0; i < n; ++i) result[i] = combine(result[i], x[i]);
}

// Element by element, so `out` may be an operand: "ivdep" is true for out == a as well.
template <typename Combine, typename T>
WT_CPU_KERNEL void CombineTwo(Combine combine, int64_t n, T* out, const T* a, const T* b) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = combine(a[i], b[i]);
}

// Calls f(combine, T()): combine(a, b) combines two elements, and T is the element type of `dtype`.
template <typename F>
void WithReduction(Reduction reduction, DType dtype, F f) {
  const auto with_element = [&](auto combine) {
    if (dtype == DType::kInt32) return f(combine, int32_t());
    cpu::WithElement(dtype, [&](auto element) { f(combine, element); });
  };
  reduction == Reduction::kSum ? with_element(Plus()) : with_element(Larger());
}

}  // namespace

Status CheckReducible(DType dtype) {
  if (cpu::IsElement(dtype) || dtype == DType::kInt32) return Ok();
  return Unsupported("collectives reduce fp32, bf16, fp16 and int32 only, not {}", Name(dtype));
}

void ReduceInto(Reduction reduction, DType dtype, void* result, const void* x, int64_t elements) {
  WithReduction(reduction, dtype, [&](auto combine, auto element) {
    using T = decltype(element);
    CombineInto(combine, elements, static_cast<T*>(result), static_cast<const T*>(x));
  });
}

void Reduce(Reduction reduction, DType dtype, void* out, const void* a, const void* b, int64_t elements) {
  WithReduction(reduction, dtype, [&](auto combine, auto element) {
    using T = decltype(element);
    CombineTwo(combine, elements, static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b));
  });
}

}  // namespace windtunnel
