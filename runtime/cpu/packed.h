// Packs weights into 4 bits, and unpacks them (operands: plan/ops.h; the format: runtime/nf4.h).
#pragma once

#include <span>

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

Status Run(const Quantize& op, const Operands& operands);
Status Run(const Dequantize& op, const Operands& operands);

// The same on memory: `packed` has the ElementsFor(numbers) elements of type `dtype` (IsPacked).
void PackNumbers(DType dtype, std::span<const float> numbers, uint8_t* packed);
void UnpackNumbers(DType dtype, const uint8_t* packed, std::span<float> numbers);

}  // namespace windtunnel::cpu
