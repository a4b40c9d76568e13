// What each rank does of an operator whose ranks are threads of one process.
#include "runtime/thread_communicator.h"

#include <string.h>

#include <algorithm>
#include <array>

#include "runtime/queued_communicator.h"
#include "runtime/reduce.h"
#include "runtime/thread_group.h"

namespace windtunnel {
namespace {

// Elements of the operator's type, from `first` on.
const char* At(const void* memory, int64_t first, const GroupOperator& op) {
  return static_cast<const char*>(memory) + first * op.element_bytes();
}
char* At(void* memory, int64_t first, const GroupOperator& op) {
  return static_cast<char*>(memory) + first * op.element_bytes();
}

void CopyElements(char* to, const char* from, int64_t elements, const GroupOperator& op) {
  if (elements > 0 && to != from) memmove(to, from, static_cast<size_t>(elements * op.element_bytes()));
}

// out = the sum (or the maximum) over ranks in their order, of `elements` elements from `first` on of each input. Block by block, each of which is read
// whole before it is written, so `out` may be in an input.
void ReduceOverRanks(const std::vector<const void*>& inputs, int64_t first, int64_t elements, char* out,
                     const GroupOperator& op) {
  alignas(64) std::array<char, 16384> block;
  const int64_t most = static_cast<int64_t>(block.size()) / op.element_bytes();
  for (int64_t done = 0; done < elements; done += most) {
    const int64_t count = std::min(most, elements - done);
    memcpy(block.data(), At(inputs[0], first + done, op), static_cast<size_t>(count * op.element_bytes()));
    for (size_t rank = 1; rank < inputs.size(); ++rank)
      ReduceInto(op.reduction, op.dtype, block.data(), At(inputs[rank], first + done, op), count);
    CopyElements(out + done * op.element_bytes(), block.data(), count, op);
  }
}

class ThreadRunner : public OperatorRunner {
 public:
  ThreadRunner(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank), size_(group_->options().size) {}
  ~ThreadRunner() override { group_->Leave(rank_); }

  // Every rank takes a part in the work.
  bool CanBegin(const GroupOperator&) override { return false; }
  Status Begin(GroupOperator&) override { return Ok(); }

  Status Finish(GroupOperator& op, bool, const std::atomic<bool>& waited_for) override {
    WT_ASSIGN_OR_RETURN(const std::shared_ptr<Meeting> meeting, group_->Meet(rank_, op, waited_for));
    if (op.operation == GroupOperation::kBarrier) return Ok();
    Work(op, *meeting);
    group_->Pass(*meeting, 0, waited_for);
    if (op.operation != GroupOperation::kAllReduce) return Ok();
    CollectSums(op, *meeting);
    group_->Pass(*meeting, 1, waited_for);
    return Ok();
  }

  Status Refuse(GroupOperator& op, const Error& prerequisite) override {
    return group_->Fail(rank_, op, fmt::format("what it waits for failed: {}", prerequisite.message));
  }

  void Abort() override { group_->GiveUp(rank_); }

 private:
  void Work(const GroupOperator& op, const Meeting& meeting) const;
  void CollectSums(const GroupOperator& op, const Meeting& meeting) const;

  static std::vector<const void*> Inputs(const Meeting& meeting) {
    std::vector<const void*> inputs;
    for (const GroupOperator* of_rank : meeting.operators)
      inputs.push_back(of_rank->operation == GroupOperation::kAllReduce ? of_rank->out : of_rank->in);
    return inputs;
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_, size_;
};

// Between the ranks' meeting and the end of the phase nobody writes what another rank reads.
void ThreadRunner::Work(const GroupOperator& op, const Meeting& meeting) const {
  const auto of = [&](int rank) -> const GroupOperator& { return *meeting.operators[rank]; };
  const Part own = PartOf(op.elements, size_, rank_);
  switch (op.operation) {
    case GroupOperation::kAllReduce:  // its part of the sum, in its own memory
      return ReduceOverRanks(Inputs(meeting), own.begin, own.elements, At(op.out, own.begin, op), op);
    case GroupOperation::kReduceScatter:
      return ReduceOverRanks(Inputs(meeting), own.begin, own.elements, At(op.out, 0, op), op);
    case GroupOperation::kReduce:  // its part of the sum, in the root's memory
      return ReduceOverRanks(Inputs(meeting), own.begin, own.elements, At(of(op.peer).out, own.begin, op),
                             op);
    case GroupOperation::kAllGather:
      for (int rank = 0; rank < size_; ++rank) {
        const Part part = PartOf(op.elements, size_, rank);
        CopyElements(At(op.out, part.begin, op), At(of(rank).in, 0, op), part.elements, op);
      }
      return;
    case GroupOperation::kGather:
      return CopyElements(At(of(op.peer).out, own.begin, op), At(op.in, 0, op), own.elements, op);
    case GroupOperation::kScatter:
      return CopyElements(At(op.out, 0, op), At(of(op.peer).in, own.begin, op), own.elements, op);
    case GroupOperation::kBroadcast:
      return CopyElements(At(op.out, 0, op), At(of(op.peer).out, 0, op), op.elements, op);
    case GroupOperation::kAllToAll:
      for (int rank = 0; rank < size_; ++rank) {
        const Part part = PartOf(op.elements, size_, rank);
        CopyElements(At(op.out, part.begin, op), At(of(rank).in, own.begin, op), part.elements, op);
      }
      return;
    case GroupOperation::kShift:
      return CopyElements(At(op.out, 0, op), At(of((rank_ + size_ - 1) % size_).in, 0, op), op.elements, op);
    case GroupOperation::kReceive:
      return CopyElements(At(op.out, 0, op), At(of(0).in, 0, op), op.elements, op);
    case GroupOperation::kSend:
    case GroupOperation::kBarrier:
      return;
  }
}

// The second half of an all-reduce: the other ranks' parts of the sum. They are not written any more.
void ThreadRunner::CollectSums(const GroupOperator& op, const Meeting& meeting) const {
  for (int rank = 0; rank < size_; ++rank) {
    const Part part = PartOf(op.elements, size_, rank);
    CopyElements(At(op.out, part.begin, op), At(meeting.operators[rank]->out, part.begin, op), part.elements,
                 op);
  }
}

}  // namespace

std::shared_ptr<ThreadGroup> MakeThreadGroup(const ThreadGroupOptions& options) {
  return std::make_shared<ThreadGroup>(options);
}

void LeaveThreadGroup(ThreadGroup& group, int rank) { group.Leave(rank); }

std::unique_ptr<Communicator> MakeThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank) {
  const int size = group->options().size;
  return MakeQueuedCommunicator(std::make_unique<ThreadRunner>(std::move(group), rank), rank, size);
}

}  // namespace windtunnel
