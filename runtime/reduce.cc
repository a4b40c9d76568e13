#include "runtime/reduce.h"

#include "runtime/cpu/isa.h"

namespace windtunnel {
namespace {

// Unsigned, so that an overflowing integer sum wraps instead of being undefined.
WT_CPU_KERNEL void AddIntegers(int64_t n, uint32_t* __restrict sum, const uint32_t* __restrict x) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}
WT_CPU_KERNEL void AddFloats(int64_t n, float* __restrict sum, const float* __restrict x) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}
// Element by element, so `out` may be an operand: "ivdep" is true of out == a as well.
WT_CPU_KERNEL void SumIntegers(int64_t n, uint32_t* out, const uint32_t* a, const uint32_t* b) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
WT_CPU_KERNEL void SumFloats(int64_t n, float* out, const float* a, const float* b) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

}  // namespace

Status CheckSummable(DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kInt32) return Ok();
  return Unsupported("gloo sums fp32 and int32 only, not {}", Name(dtype));
}

void AddInto(DType dtype, void* sum, const void* x, int64_t elements) {
  if (dtype == DType::kInt32)
    return AddIntegers(elements, static_cast<uint32_t*>(sum), static_cast<const uint32_t*>(x));
  AddFloats(elements, static_cast<float*>(sum), static_cast<const float*>(x));
}

void Add(DType dtype, void* out, const void* a, const void* b, int64_t elements) {
  if (dtype == DType::kInt32)
    return SumIntegers(elements, static_cast<uint32_t*>(out), static_cast<const uint32_t*>(a),
                       static_cast<const uint32_t*>(b));
  SumFloats(elements, static_cast<float*>(out), static_cast<const float*>(a), static_cast<const float*>(b));
}

}  // namespace windtunnel
