// Multi-head latent attention's heads put together from up-projected latents, and taken apart again (operands: plan/op.h). Positions are
// rotated as by rope.h, of rope_dim columns.
#pragma once

#include "base/result.h"
#include "plan/op.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/rope.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

// Errors: Unsupported for an odd rope_dim.
Status Run(RopeTables& tables, Scratch& scratch, const JoinLatentHeads& op, const ContextPosition& context,
           const Operands& operands);

}  // namespace windtunnel::cpu
