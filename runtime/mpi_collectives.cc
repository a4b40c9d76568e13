#include "runtime/mpi_collectives.h"

#include <limits.h>
#include <string.h>

#include <array>

#include "runtime/reduce.h"

namespace windtunnel {
namespace {

constexpr int kPayloadTag = 2;

// An MPI type of the elements' size. MPI has no sums of 16-bit floating point; operators
// defined here sum such elements.
MPI_Datatype TypeOf(const GroupOperator& op) {
  if (op.dtype == DType::kFloat32) return MPI_FLOAT;
  switch (op.element_bytes()) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_INT32_T;
    default:
      return MPI_INT64_T;
  }
}

// Rounded to nearest even after each addition, as the other communicators' (runtime/reduce.h).
template <Reduction reduction, DType dtype>
void ReducePairs(void* in, void* inout, int* count, MPI_Datatype*) {
  ReduceInto(reduction, dtype, inout, in, *count);
}

template <Reduction reduction, DType dtype>
MPI_Op OwnOperator() {
  static const MPI_Op made = [] {
    MPI_Op op = MPI_OP_NULL;
    MPI_Op_create(ReducePairs<reduction, dtype>, /*commute=*/1, &op);
    return op;
  }();
  return made;
}

template <Reduction reduction>
MPI_Op OperatorOf(DType dtype, MPI_Op mpis_own) {
  if (dtype == DType::kBFloat16) return OwnOperator<reduction, DType::kBFloat16>();
  if (dtype == DType::kFloat16) return OwnOperator<reduction, DType::kFloat16>();
  return mpis_own;
}

MPI_Op OperatorOf(const GroupOperator& op) {
  return op.reduction == Reduction::kSum ? OperatorOf<Reduction::kSum>(op.dtype, MPI_SUM)
                                         : OperatorOf<Reduction::kMax>(op.dtype, MPI_MAX);
}

}  // namespace

Status MpiCollectives::Check(const GroupOperator& op) {
  if (op.elements <= INT_MAX) return Ok();
  return Unsupported("{} elements; over mpi an operator has at most {}", op.elements, INT_MAX);
}

char* MpiCollectives::OwnPart(const void* whole, const GroupOperator& op) const {
  const Part own = PartOf(op.elements, channel_.size(), channel_.rank());
  return static_cast<char*>(const_cast<void*>(whole)) + own.begin * op.element_bytes();
}

void MpiCollectives::LayOutParts(const GroupOperator& op) {
  counts_.clear();
  offsets_.clear();
  for (int rank = 0; rank < channel_.size(); ++rank) {
    const Part part = PartOf(op.elements, channel_.size(), rank);
    counts_.push_back(static_cast<int>(part.elements));
    offsets_.push_back(static_cast<int>(part.begin));
  }
}

// MPI does not notice ranks that are at different operators; it mixes their data. So every rank first hears
// from its left neighbour which operator that is at: if every rank agrees with its neighbour, all agree. Both
// ends of a message do the same.
Status MpiCollectives::Agree(const GroupOperator& op) {
  const int size = channel_.size(), rank = channel_.rank();
  const bool sends = op.operation != GroupOperation::kReceive,
             receives = op.operation != GroupOperation::kSend;
  if (sends) {
    WT_RETURN_IF_ERROR(channel_.Stage(op.fingerprint, nullptr, 0));
    WT_RETURN_IF_ERROR(channel_.SendStaged(receives ? (rank + 1) % size : op.peer));
  }
  if (!receives) return Ok();
  const auto heard = channel_.Receive(sends ? (rank + size - 1) % size : op.peer, op.fingerprint);
  return heard ? Ok() : Status(tl::unexpected(heard.error()));
}

int MpiCollectives::StartReduceScatter(const GroupOperator& op, MPI_Request* request) {
  const char* own = OwnPart(op.in, op);
  void* out = op.out;
  if (out == own) {
    shard_.resize(static_cast<size_t>(counts_[channel_.rank()] * op.element_bytes()) + 1);
    out = shard_.data();
  }
  return MPI_Ireduce_scatter(op.in, out, counts_.data(), TypeOf(op), OperatorOf(op), channel_.communicator(),
                             request);
}

int MpiCollectives::StartReduce(const GroupOperator& op, MPI_Request* request) {
  const bool in_place = channel_.rank() == op.peer && op.in == op.out;
  return MPI_Ireduce(in_place ? MPI_IN_PLACE : op.in, op.out, static_cast<int>(op.elements), TypeOf(op),
                     OperatorOf(op), op.peer, channel_.communicator(), request);
}

// Starts the operators that gather parts into a whole or scatter a whole into parts.
int MpiCollectives::StartGathering(const GroupOperator& op, MPI_Request* request) {
  const MPI_Datatype type = TypeOf(op);
  const MPI_Comm communicator = channel_.communicator();
  const int mine = counts_[channel_.rank()];
  const bool is_root = channel_.rank() == op.peer;
  if (op.operation == GroupOperation::kAllGather) {
    const bool in_place = op.in == OwnPart(op.out, op);
    return MPI_Iallgatherv(in_place ? MPI_IN_PLACE : op.in, mine, type, op.out, counts_.data(),
                           offsets_.data(), type, communicator, request);
  }
  if (op.operation == GroupOperation::kGather) {
    const bool in_place = is_root && op.in == OwnPart(op.out, op);
    return MPI_Igatherv(in_place ? MPI_IN_PLACE : op.in, mine, type, op.out, counts_.data(), offsets_.data(),
                        type, op.peer, communicator, request);
  }
  const bool in_place = is_root && op.out == OwnPart(op.in, op);
  return MPI_Iscatterv(op.in, counts_.data(), offsets_.data(), type, in_place ? MPI_IN_PLACE : op.out, mine,
                       type, op.peer, communicator, request);
}

// Makes one request, or two.
int MpiCollectives::Start(const GroupOperator& op, MPI_Request* requests) {
  const int count = static_cast<int>(op.elements), size = channel_.size(), rank = channel_.rank();
  const MPI_Datatype type = TypeOf(op);
  const MPI_Comm communicator = channel_.communicator();
  switch (op.operation) {
    case GroupOperation::kAllReduce:
      return MPI_Iallreduce(MPI_IN_PLACE, op.out, count, type, OperatorOf(op), communicator, requests);
    case GroupOperation::kReduceScatter:
      return StartReduceScatter(op, requests);
    case GroupOperation::kReduce:
      return StartReduce(op, requests);
    case GroupOperation::kAllGather:
    case GroupOperation::kGather:
    case GroupOperation::kScatter:
      return StartGathering(op, requests);
    case GroupOperation::kBroadcast:
      return MPI_Ibcast(op.out, count, type, op.peer, communicator, requests);
    case GroupOperation::kAllToAll:
      return MPI_Ialltoall(op.in, count / size, type, op.out, count / size, type, communicator, requests);
    case GroupOperation::kShift: {
      const int error =
          MPI_Irecv(op.out, count, type, op.ShiftsFrom(rank, size), kPayloadTag, communicator, &requests[0]);
      if (error != MPI_SUCCESS) return error;
      return MPI_Isend(op.in, count, type, op.ShiftsTo(rank, size), kPayloadTag, communicator, &requests[1]);
    }
    case GroupOperation::kSend:
      return MPI_Isend(op.in, count, type, op.peer, kPayloadTag, communicator, requests);
    case GroupOperation::kReceive:
      return MPI_Irecv(op.out, count, type, op.peer, kPayloadTag, communicator, requests);
    case GroupOperation::kBarrier:
      return MPI_Ibarrier(communicator, requests);
  }
  return MPI_ERR_OP;
}

Status MpiCollectives::Run(const GroupOperator& op) {
  if (op.elements == 0) return Ok();
  LayOutParts(op);
  std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  WT_RETURN_IF_ERROR(channel_.Run(
      requests, [&] { return Start(op, requests.data()); }, "its peers did not do their part of it"));
  if (op.operation == GroupOperation::kReduceScatter && op.out == OwnPart(op.in, op))
    memcpy(op.out, shard_.data(), shard_.size() - 1);
  return Ok();
}

}  // namespace windtunnel
