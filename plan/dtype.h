// Element types of buffers.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/units.h"

namespace windtunnel {

// kMxFloat8 and kFloat4x2 are operands of products only, in blocks whose scales the matrix units apply (OCP's
// microscaling formats; NVFP4). An element of kFloat4x2 is a byte with two 4-bit numbers (E2M1).
enum class DType : uint8_t {
  kFloat32,
  kTf32,
  kBFloat16,
  kFloat16,
  kFloat8,
  kMxFloat8,
  kFloat4x2,
  kInt32,
  kInt64,
  kUInt8
};

constexpr Bytes SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kTf32:
    case DType::kInt32:
      return Bytes(4);
    case DType::kBFloat16:
    case DType::kFloat16:
      return Bytes(2);
    case DType::kFloat8:
    case DType::kMxFloat8:
    case DType::kFloat4x2:
    case DType::kUInt8:
      return Bytes(1);
    case DType::kInt64:
      return Bytes(8);
  }
  return Bytes(0);
}

// Whether products in fp8 and fp4 take operands of this type.
constexpr bool IsFactor(DType dtype) {
  return dtype == DType::kFloat8 || dtype == DType::kMxFloat8 || dtype == DType::kFloat4x2;
}
// Numbers in one element of a buffer.
constexpr int64_t NumbersIn(DType dtype) { return dtype == DType::kFloat4x2 ? 2 : 1; }

// "fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "fp4", "int32", "int64", "uint8".
constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kTf32:
      return "tf32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "fp16";
    case DType::kFloat8:
      return "fp8";
    case DType::kMxFloat8:
      return "mxfp8";
    case DType::kFloat4x2:
      return "fp4";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUInt8:
      return "uint8";
  }
  return "?";
}

}  // namespace windtunnel
