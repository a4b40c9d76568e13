// Causal attention of the queries of some tokens of each sequence with the keys and values of others', in chunks as context-parallel
// ranks have them, and the merging of what it gives (operands: plan/op.h).
//
// Like flash attention in attention.h: query block by query block, against the chunks of keys that a block may see side by side in one
// tile, the chunk that the queries are in last, so that the tile is one of causal attention. 16-bit operands are worked on in fp32.
#pragma once

#include "base/result.h"
#include "plan/op.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(GemmEngine& engine, Scratch& scratch, const ContextAttentionForward& op,
           const ContextPosition& context, const Operands& operands);
Status Run(GemmEngine& engine, Scratch& scratch, const ContextAttentionBackward& op,
           const ContextPosition& context, const Operands& operands);
Status Run(const MergeAttention& op, const Operands& operands);

}  // namespace windtunnel::cpu
