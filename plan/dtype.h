// Element types of buffers.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ceil_divide.h"
#include "base/units.h"

namespace windtunnel {

// kMxFloat8 and kFloat4x2 are operands of products only, in blocks whose scales the matrix units apply (OCP's
// microscaling formats; NVFP4). An element of kFloat4x2 is a byte with two 4-bit numbers (E2M1).
// kNf4 and kNf4Double hold frozen weights, which are unpacked before they are used (Dequantize, plan/ops.h). An
// element is a block: of 64 weights in 4 bits and their fp32 scale; of 256 of these with scales of 8 bits,
// and an fp32 scale for those.
// kDynamic8 and kDynamic8Unsigned hold an optimizer's moments: 256 in 8 bits, and their fp32 scale.
enum class DType : uint8_t {
  kFloat32,
  kTf32,
  kBFloat16,
  kFloat16,
  kFloat8,
  kMxFloat8,
  kFloat4x2,
  kNf4,
  kNf4Double,
  kDynamic8,
  kDynamic8Unsigned,
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
    case DType::kNf4:
      return Bytes(64 / 2 + 4);
    case DType::kNf4Double:
      return Bytes(256 * (64 / 2 + 1) + 4);
    case DType::kDynamic8:
    case DType::kDynamic8Unsigned:
      return Bytes(256 + 4);
  }
  return Bytes(0);
}

// Whether products in fp8 and fp4 take operands of this type.
constexpr bool IsFactor(DType dtype) {
  return dtype == DType::kFloat8 || dtype == DType::kMxFloat8 || dtype == DType::kFloat4x2;
}
// Numbers in one element of a buffer.
constexpr int64_t NumbersIn(DType dtype) {
  switch (dtype) {
    case DType::kFloat4x2:
      return 2;
    case DType::kNf4:
      return 64;
    case DType::kNf4Double:
      return 64 * 256;
    case DType::kDynamic8:
    case DType::kDynamic8Unsigned:
      return 256;
    default:
      return 1;
  }
}
// The elements that hold so many numbers; the last may hold fewer than it could.
constexpr int64_t ElementsFor(int64_t numbers, DType dtype) { return CeilDivide(numbers, NumbersIn(dtype)); }
// Whether numbers of this type are moments in 8 bits.
constexpr bool IsDynamic8(DType dtype) {
  return dtype == DType::kDynamic8 || dtype == DType::kDynamic8Unsigned;
}
// Whether numbers of this type are unpacked before they are used.
constexpr bool IsPacked(DType dtype) {
  return dtype == DType::kNf4 || dtype == DType::kNf4Double || IsDynamic8(dtype);
}

// "fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "fp4", "nf4", "nf4_double", "dynamic8",
// "dynamic8_unsigned", "int32", "int64", "uint8".
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
    case DType::kNf4:
      return "nf4";
    case DType::kNf4Double:
      return "nf4_double";
    case DType::kDynamic8:
      return "dynamic8";
    case DType::kDynamic8Unsigned:
      return "dynamic8_unsigned";
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
