// Token and position embeddings, forward and backward (operands: plan/ops.h). Errors: Failed for a token id
// outside the vocabulary (a data file does not fit the model); nothing is written then.
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(const EmbeddingForward& op, const KernelContext& context, const Operands& operands);
Status Run(Scratch& scratch, const EmbeddingBackward& op, const KernelContext& context,
           const Operands& operands);

// Failed unless every id is in [0, bound), or kNoToken if `ends`. `what` names the ids in the message: "token
// id".
Status CheckIndices(const char* what, const int32_t* ids, int64_t count, int64_t bound, bool ends);

}  // namespace windtunnel::cpu
