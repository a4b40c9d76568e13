// The sum inside all-reduce and reduce-scatter, of the element types that they support. bf16 and fp16 sums
// are rounded to nearest even after each addition, so the result depends on the order of ranks.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "plan/dtype.h"

namespace windtunnel {

// Unsupported for anything but fp32, bf16, fp16 and int32.
Status CheckSummable(DType dtype);

// sum[i] += x[i]. REQUIRES: CheckSummable(dtype) holds; the arrays do not overlap.
void AddInto(DType dtype, void* sum, const void* x, int64_t elements);
// out[i] = a[i] + b[i]. `out` may be `a` or `b`.
void Add(DType dtype, void* out, const void* a, const void* b, int64_t elements);

}  // namespace windtunnel
