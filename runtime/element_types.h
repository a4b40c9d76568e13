// The types of elements that the devices' kernels are written for: fp32, bf16 and fp16, all else only where a
// kernel moves or packs it.
#pragma once

#include <type_traits>

#include "base/result.h"
#include "plan/dtype.h"
#include "plan/op.h"
#include "plan/ops.h"

namespace windtunnel {

// `device`: "the cpu device computes in".
inline Status RequireElement(const OpKind& kind, DType dtype, const char* device) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16) return Ok();
  return Unsupported("{} in {}: {} fp32, bf16 and fp16; set precision to one of them", OperatorName(kind),
                     Name(dtype), device);
}

// Errors: Unsupported if `op`, which is what `kind` holds, has elements of another type. `device` as above.
template <typename Op>
Status CheckElementTypes(const OpKind& kind, const Op& op, const char* device) {
  if constexpr (std::is_same_v<Op, Copy>) {
    if (op.moves_only()) return Ok();
  }
  if constexpr (requires { op.from; }) {
    if (!IsPacked(op.from)) WT_RETURN_IF_ERROR(RequireElement(kind, op.from, device));
    return IsPacked(op.to) ? Ok() : RequireElement(kind, op.to, device);
  } else if constexpr (std::is_same_v<Op, UnpackShards>) {
    return op.dtype == DType::kUInt8 ? Ok() : RequireElement(kind, op.dtype, device);
  } else if constexpr (std::is_same_v<Op, Fill>) {
    return op.dtype == DType::kInt32 || IsPacked(op.dtype) ? Ok() : RequireElement(kind, op.dtype, device);
  } else if constexpr (requires { op.dtype; }) {
    return RequireElement(kind, op.dtype, device);
  } else {
    return Ok();
  }
}

}  // namespace windtunnel
