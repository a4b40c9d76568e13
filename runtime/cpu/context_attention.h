// Attention between some tokens' queries and other tokens' keys and values of the same sequences, in
// the chunks of context-parallel ranks, and the merging of such partial results (operands: plan/ops.h).
//
// Like flash attention in attention.h it works query block by query block. The chunks of keys that a block
// may see lie side by side in one tile. If attention is causal, the queries' own chunk comes last, so that the
// tile is masked like one of whole sequences. 16-bit operands are computed in fp32.
#pragma once

#include "base/result.h"
#include "plan/attention_ops.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"
#include "runtime/kernel_context.h"

namespace windtunnel::cpu {

Status Run(GemmEngine& engine, Scratch& scratch, const ContextAttentionForward& op,
           const KernelContext& context, const Operands& operands);
Status Run(GemmEngine& engine, Scratch& scratch, const ContextAttentionBackward& op,
           const KernelContext& context, const Operands& operands);
Status Run(const MergeAttention& op, const Operands& operands);

}  // namespace windtunnel::cpu
