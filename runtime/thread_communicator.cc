// Ranks that are threads of one process, with their operands in the host's memory.
#include "runtime/thread_communicator.h"

#include <string.h>

#include <algorithm>
#include <array>

#include "runtime/queued_communicator.h"
#include "runtime/reduce.h"
#include "runtime/thread_group.h"
#include "runtime/thread_work.h"

namespace windtunnel {
namespace {

class HostMover : public ElementMover {
 public:
  Status Copy(const GroupOperator& op, void* to, const void* from, int64_t elements) override {
    memmove(to, from, static_cast<size_t>(elements * op.element_bytes()));
    return Ok();
  }

  // Works block by block. Each block is read whole before it is written.
  Status Reduce(const GroupOperator& op, const std::vector<const void*>& inputs, int64_t first,
                int64_t elements, void* out) override {
    alignas(64) std::array<char, 16384> block;
    const int64_t most = static_cast<int64_t>(block.size()) / op.element_bytes();
    for (int64_t done = 0; done < elements; done += most) {
      const int64_t count = std::min(most, elements - done);
      const auto bytes = static_cast<size_t>(count * op.element_bytes());
      memcpy(block.data(), At(inputs[0], first + done, op), bytes);
      for (size_t rank = 1; rank < inputs.size(); ++rank)
        ReduceInto(op.reduction, op.dtype, block.data(), At(inputs[rank], first + done, op), count);
      memcpy(At(out, done, op), block.data(), bytes);
    }
    return Ok();
  }
};

class ThreadRunner : public OperatorRunner {
 public:
  ThreadRunner(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~ThreadRunner() override { group_->Leave(rank_); }

  // Nothing can be begun ahead, since every rank takes part in the work.
  bool CanBegin(const GroupOperator&) override { return false; }
  Status Begin(GroupOperator&) override { return Ok(); }

  Status Finish(GroupOperator& op, bool, const std::atomic<bool>& waited_for) override {
    WT_ASSIGN_OR_RETURN(const std::shared_ptr<Meeting> meeting, group_->Meet(rank_, op, waited_for));
    for (int phase = 0; phase < PhasesOf(op.operation); ++phase) {
      (void)DoPhase(op, *meeting, rank_, phase, mover_);  // cannot fail in the host's memory
      group_->Pass(*meeting, phase, waited_for);
    }
    return Ok();
  }

  Status Refuse(GroupOperator& op, const Error& prerequisite) override {
    return group_->Fail(rank_, op, fmt::format("what it waits for failed: {}", prerequisite.message));
  }

  void Abort() override { group_->GiveUp(rank_); }

 private:
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  HostMover mover_;
};

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
