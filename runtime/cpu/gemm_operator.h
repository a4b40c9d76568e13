// The Gemm operator in every element type (operands: plan/ops.h). GemmEngine multiplies fp32 and, if the
// processor supports it, bf16; other 16-bit matrices are multiplied block by block in fp32.
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(GemmEngine& engine, Scratch& scratch, const Gemm& op, const Operands& operands);
Status Run(GemmEngine& engine, Scratch& scratch, const GroupedGemm& op, const Operands& operands);

// op(A) op(B) (+ bias) (+ C) with fp32 sums that are rounded into C once, for processors without GEMMs of
// that type. It ignores problem.dtype. T: BFloat16, Float16.
template <typename T>
Status MultiplyInBlocks(GemmEngine& engine, Scratch& scratch, const GemmProblem& problem, const T* a,
                        const T* b, const T* bias, T* c);

}  // namespace windtunnel::cpu
