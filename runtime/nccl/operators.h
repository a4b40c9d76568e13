// Issues a group operator as NCCL calls.
#pragma once

#include "base/result.h"
#include "runtime/group_operator.h"
#include "runtime/nccl/api.h"

namespace windtunnel {

// Whether NCCL supports the operator. Unsupported: a sum over a type that NCCL cannot add.
Status CheckNcclOperator(const GroupOperator& op);

// Issues `op` to the stream as rank `rank` of `size`. `barrier` is 4 bytes of device memory. All-gathers and
// reduce-scatters of parts that do not divide evenly become a group of broadcasts or reductions. Operators
// for which NCCL has no collective become a group of sends and receives.
ncclResult_t IssueNccl(const NcclApi& api, ncclComm_t communicator, const GroupOperator& op, int rank,
                       int size, void* barrier, cudaStream_t stream);

}  // namespace windtunnel
