// Assembles the heads of multi-head latent attention from up-projected latents, and splits them again in
// backward (operands: plan/ops.h). Positions are rotated as in rope.h, over rope_dim columns.
#pragma once

#include "base/result.h"
#include "plan/attention_ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/rope.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

// Errors: Unsupported for an odd rope_dim.
Status Run(RopeTables& tables, Scratch& scratch, const JoinLatentHeads& op, const ContextPosition& context,
           const Operands& operands);

}  // namespace windtunnel::cpu
