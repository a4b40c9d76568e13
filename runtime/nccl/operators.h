// A group operator as calls of NCCL.
#pragma once

#include "base/result.h"
#include "runtime/group_operator.h"
#include "runtime/nccl/api.h"

namespace windtunnel {

// Whether NCCL can carry it. Unsupported: a sum of a type that NCCL has none of.
Status CheckNcclOperator(const GroupOperator& op);

// Issues `op` to the stream as rank `rank` of `size`. `barrier` is memory of the device of 4 bytes. Parts that do not divide evenly go as
// a group of broadcasts or reductions; what NCCL has no collective for as a group of messages.
ncclResult_t IssueNccl(const NcclApi& api, ncclComm_t communicator, const GroupOperator& op, int rank,
                       int size, void* barrier, cudaStream_t stream);

}  // namespace windtunnel
