// Multi-head attention with grouped keys and values, eager and flash (operands: plan/ops.h).
//
// Both work query block by query block and multiply only with the keys that a block may see, so about half of
// the square is never computed if attention is causal, and more of it with a window. Eager keeps the
// probabilities for backward.
// Flash keeps each row's log-sum-exp and recomputes the probabilities in the workspace, one tile of query
// block x keys at a time.
//
// With dropout the probabilities are dropped in the tile, before they weigh the values; backward makes the
// same random numbers again. What eager keeps is not dropped.
//
// 16-bit operands are converted to fp32 in the scratch, one head's rows at a time, and results are rounded
// once.
#pragma once

#include "base/result.h"
#include "plan/attention_ops.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"
#include "runtime/kernel_context.h"

namespace windtunnel::cpu {

Status Run(GemmEngine& engine, Scratch& scratch, const AttentionForward& op, const KernelContext& context,
           const Operands& operands);
Status Run(GemmEngine& engine, Scratch& scratch, const AttentionBackward& op, const KernelContext& context,
           const Operands& operands);

}  // namespace windtunnel::cpu
