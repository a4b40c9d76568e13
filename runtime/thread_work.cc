#include "runtime/thread_work.h"

namespace windtunnel {
namespace {

class RankWork {
 public:
  RankWork(const GroupOperator& op, const Meeting& meeting, int rank, ElementMover& mover)
      : op_(op), meeting_(meeting), rank_(rank), size_(meeting.ranks()), mover_(mover) {}

  Status Do();
  Status CollectSums();

 private:
  const GroupOperator& Of(int rank) const { return *meeting_.operators[rank]; }
  Part PartOfRank(int rank) const { return PartOf(op_.elements, size_, rank); }

  Status Copy(void* to, const void* from, int64_t elements) {
    return elements > 0 && to != from ? mover_.Copy(op_, to, from, elements) : Ok();
  }
  // Reduces this rank's part of the sum over all ranks' inputs.
  Status ReduceOwnPart(void* out) {
    std::vector<const void*> inputs;
    for (const GroupOperator* of_rank : meeting_.operators)
      inputs.push_back(of_rank->operation == GroupOperation::kAllReduce ? of_rank->out : of_rank->in);
    const Part own = PartOfRank(rank_);
    return own.elements > 0 ? mover_.Reduce(op_, inputs, own.begin, own.elements, out) : Ok();
  }
  // Fills `out` part by part: rank's part comes from memory(rank), from element first(part) on.
  template <typename Memory, typename First>
  Status Collect(Memory memory, First first) {
    for (int rank = 0; rank < size_; ++rank) {
      const Part part = PartOfRank(rank);
      WT_RETURN_IF_ERROR(
          Copy(At(op_.out, part.begin, op_), At(memory(rank), first(part), op_), part.elements));
    }
    return Ok();
  }

  const GroupOperator& op_;
  const Meeting& meeting_;
  const int rank_, size_;
  ElementMover& mover_;
};

Status RankWork::Do() {
  const Part own = PartOfRank(rank_);
  const auto in_of = [this](int rank) { return Of(rank).in; };
  switch (op_.operation) {
    case GroupOperation::kAllReduce:  // in its own memory
      return ReduceOwnPart(At(op_.out, own.begin, op_));
    case GroupOperation::kReduceScatter:
      return ReduceOwnPart(op_.out);
    case GroupOperation::kReduce:  // in the root's memory
      return ReduceOwnPart(At(Of(op_.peer).out, own.begin, op_));
    case GroupOperation::kAllGather:
      return Collect(in_of, [](const Part&) { return int64_t{0}; });
    case GroupOperation::kAllToAll:
      return Collect(in_of, [&](const Part&) { return own.begin; });
    case GroupOperation::kGather:
      return Copy(At(Of(op_.peer).out, own.begin, op_), op_.in, own.elements);
    case GroupOperation::kScatter:
      return Copy(op_.out, At(Of(op_.peer).in, own.begin, op_), own.elements);
    case GroupOperation::kBroadcast:
      return Copy(op_.out, Of(op_.peer).out, op_.elements);
    case GroupOperation::kShift:
      return Copy(op_.out, Of(op_.ShiftsFrom(rank_, size_)).in, op_.elements);
    case GroupOperation::kReceive:
      return Copy(op_.out, Of(0).in, op_.elements);
    case GroupOperation::kSend:
    case GroupOperation::kBarrier:
      return Ok();
  }
  return Ok();
}

// The second half of an all-reduce: collects the other ranks' parts of the sum, which
// are not written any more.
Status RankWork::CollectSums() {
  return Collect([this](int rank) { return Of(rank).out; }, [](const Part& part) { return part.begin; });
}

}  // namespace

int PhasesOf(GroupOperation operation) {
  return operation == GroupOperation::kBarrier ? 0 : operation == GroupOperation::kAllReduce ? 2 : 1;
}

Status DoPhase(const GroupOperator& op, const Meeting& meeting, int rank, int phase, ElementMover& mover) {
  RankWork work(op, meeting, rank, mover);
  return phase == 0 ? work.Do() : work.CollectSums();
}

}  // namespace windtunnel
