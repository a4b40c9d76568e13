// The sums and maxima of two ranks' elements for all-reduce and reduce-scatter, of the types that
// they support. bf16 and fp16 sums are rounded to nearest even after each addition, so the result
// depends on the order of ranks.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "plan/dtype.h"
#include "plan/ops.h"

namespace windtunnel {

// Unsupported for anything but fp32, bf16, fp16 and int32.
Status CheckReducible(DType dtype);

// result[i] = result[i] + x[i], or the larger of them. REQUIRES: CheckReducible(dtype) holds; the arrays do not
// overlap.
void ReduceInto(Reduction reduction, DType dtype, void* result, const void* x, int64_t elements);
// out[i] = a[i] + b[i], or the larger of them. `out` may be `a` or `b`.
void Reduce(Reduction reduction, DType dtype, void* out, const void* a, const void* b, int64_t elements);

}  // namespace windtunnel
