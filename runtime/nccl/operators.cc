#include "runtime/nccl/operators.h"

#include <algorithm>

namespace windtunnel {
namespace {

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kTf32:
      return ncclFloat32;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kFloat8:
    case DType::kMxFloat8:
    case DType::kFloat4x2:
    case DType::kNf4:
    case DType::kNf4Double:
    case DType::kDynamic8:
    case DType::kDynamic8Unsigned:
    case DType::kUInt8:
      return ncclUint8;
  }
  return ncclUint8;
}

bool Sums(GroupOperation operation) {
  return operation == GroupOperation::kAllReduce || operation == GroupOperation::kReduceScatter ||
         operation == GroupOperation::kReduce;
}

// Issues one operator to a stream.
class Issue {
 public:
  Issue(const NcclApi& api, ncclComm_t communicator, const GroupOperator& op, int rank, int size,
        cudaStream_t stream)
      : api_(api), communicator_(communicator), op_(op), rank_(rank), size_(size), stream_(stream) {}

  ncclResult_t Run(void* barrier) {
    const size_t count = static_cast<size_t>(op_.elements), each = count / static_cast<size_t>(size_);
    const bool even = op_.elements % size_ == 0;
    switch (op_.operation) {
      case GroupOperation::kBarrier:
        return api_.all_reduce(barrier, barrier, 1, ncclFloat32, ncclSum, communicator_, stream_);
      case GroupOperation::kAllReduce:
        return api_.all_reduce(op_.out, op_.out, count, type(), reduction(), communicator_, stream_);
      case GroupOperation::kAllGather:
        if (!even) return Grouped([&](int peer) { return BroadcastPart(peer); });
        return api_.all_gather(op_.in, op_.out, each, type(), communicator_, stream_);
      case GroupOperation::kReduceScatter:
        if (!even) return Grouped([&](int peer) { return ReducePart(peer); });
        return api_.reduce_scatter(op_.in, op_.out, each, type(), reduction(), communicator_, stream_);
      case GroupOperation::kBroadcast:
        return api_.broadcast(op_.out, op_.out, count, type(), op_.peer, communicator_, stream_);
      case GroupOperation::kReduce:
        return api_.reduce(op_.in, op_.out, count, type(), reduction(), op_.peer, communicator_, stream_);
      case GroupOperation::kSend:
        return api_.send(op_.in, count, type(), op_.peer, communicator_, stream_);
      case GroupOperation::kReceive:
        return api_.receive(op_.out, count, type(), op_.peer, communicator_, stream_);
      case GroupOperation::kShift:
        return Exchange(op_.ShiftsTo(rank_, size_), op_.in, op_.ShiftsFrom(rank_, size_), op_.out);
      case GroupOperation::kAllToAll:
        return Grouped([&](int peer) {
          const ncclResult_t sent = Send(peer, In(peer), op_.elements / size_);
          return sent != ncclSuccess ? sent : Receive(peer, Out(peer), op_.elements / size_);
        });
      case GroupOperation::kGather:
        return Grouped([&](int peer) {
          ncclResult_t result = ncclSuccess;
          if (peer == op_.peer) result = Send(peer, op_.in, OwnPart(rank_).elements);
          if (result != ncclSuccess || rank_ != op_.peer) return result;
          return Receive(peer, Out(peer), OwnPart(peer).elements);
        });
      case GroupOperation::kScatter:
        return Grouped([&](int peer) {
          ncclResult_t result = ncclSuccess;
          if (rank_ == op_.peer) result = Send(peer, In(peer), OwnPart(peer).elements);
          if (result != ncclSuccess || peer != op_.peer) return result;
          return Receive(peer, op_.out, OwnPart(rank_).elements);
        });
    }
    return ncclInvalidArgument;
  }

 private:
  ncclDataType_t type() const { return TypeOf(op_.dtype); }
  ncclRedOp_t reduction() const { return op_.reduction == Reduction::kMax ? ncclMax : ncclSum; }
  Part OwnPart(int rank) const { return PartOf(op_.elements, size_, rank); }
  const void* In(int rank) const {
    return static_cast<const char*>(op_.in) + OwnPart(rank).begin * op_.element_bytes();
  }
  void* Out(int rank) const {
    return static_cast<char*>(op_.out) + OwnPart(rank).begin * op_.element_bytes();
  }

  ncclResult_t Send(int peer, const void* from, int64_t elements) {
    return elements == 0
               ? ncclSuccess
               : api_.send(from, static_cast<size_t>(elements), type(), peer, communicator_, stream_);
  }
  ncclResult_t Receive(int peer, void* to, int64_t elements) {
    return elements == 0
               ? ncclSuccess
               : api_.receive(to, static_cast<size_t>(elements), type(), peer, communicator_, stream_);
  }
  ncclResult_t BroadcastPart(int root) {
    const size_t count = static_cast<size_t>(OwnPart(root).elements);
    if (count == 0) return ncclSuccess;
    return api_.broadcast(root == rank_ ? op_.in : Out(root), Out(root), count, type(), root, communicator_,
                          stream_);
  }
  ncclResult_t ReducePart(int root) {
    const size_t count = static_cast<size_t>(OwnPart(root).elements);
    if (count == 0) return ncclSuccess;
    return api_.reduce(In(root), root == rank_ ? op_.out : nullptr, count, type(), reduction(), root,
                       communicator_, stream_);
  }

  // Calls `each` for every rank, as one NCCL group. A group that was started is always ended, also after an
  // error.
  template <typename Each>
  ncclResult_t Grouped(Each each) {
    ncclResult_t result = api_.group_start();
    if (result != ncclSuccess) return result;
    for (int peer = 0; peer < size_ && result == ncclSuccess; ++peer) result = each(peer);
    const ncclResult_t ended = api_.group_end();
    return result != ncclSuccess ? result : ended;
  }
  ncclResult_t Exchange(int to, const void* in, int from, void* out) {
    ncclResult_t result = api_.group_start();
    if (result != ncclSuccess) return result;
    result = Send(to, in, op_.elements);
    if (result == ncclSuccess) result = Receive(from, out, op_.elements);
    const ncclResult_t ended = api_.group_end();
    return result != ncclSuccess ? result : ended;
  }

  const NcclApi& api_;
  ncclComm_t communicator_;
  const GroupOperator& op_;
  const int rank_, size_;
  cudaStream_t stream_;
};

}  // namespace

Status CheckNcclOperator(const GroupOperator& op) {
  if (Sums(op.operation) && IsFactor(op.dtype))
    return Unsupported("{} of {} is not supported over nccl", Name(op.operation), Name(op.dtype));
  return Ok();
}

ncclResult_t IssueNccl(const NcclApi& api, ncclComm_t communicator, const GroupOperator& op, int rank,
                       int size, void* barrier, cudaStream_t stream) {
  if (op.elements == 0 && op.operation != GroupOperation::kBarrier) return ncclSuccess;
  return Issue(api, communicator, op, rank, size, stream).Run(barrier);
}

}  // namespace windtunnel
