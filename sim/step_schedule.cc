#include "sim/step_schedule.h"

#include <algorithm>

#include "base/check.h"
#include "sim/transfer_matching.h"

namespace windtunnel {
namespace {

// Walks one role's program and writes down what its host does.
class RoleScheduler {
 public:
  RoleScheduler(const Role& role, RoleSchedule& schedule)
      : role_(role), schedule_(schedule), queue_of_stream_(role.streams.size(), -1) {}

  void Run() {
    const std::vector<Op>& ops = role_.steady.ops;
    position_of_op_.assign(ops.size(), -1);
    for (OpIndex i = 0; i < static_cast<OpIndex>(ops.size()); ++i) Add(i, ops[i]);
    EndSegment();
  }

 private:
  void Add(OpIndex index, const Op& op) {
    const bool is_memory = IsMemory(op.kind);
    const bool waits_only = std::holds_alternative<HostWait>(op.kind);
    if (!is_memory && !waits_only) schedule_.items.push_back({WorkItem::Kind::kDispatch, index});
    for (OpIndex dependency : op.dependencies) AddWait(dependency);
    if (waits_only) return;
    if (IsCommunication(op.kind)) {
      AddIssue(index, op);
    } else {
      schedule_.items.push_back({is_memory ? WorkItem::Kind::kMemory : WorkItem::Kind::kKernel, index});
    }
  }

  // Compute operators have run by the time the host comes here; of a communication stream, whoever has waited for an
  // operator has waited for all before it.
  void AddWait(OpIndex dependency) {
    if (!IsCommunication(role_.steady.ops[dependency].kind)) return;
    const int32_t queue = queue_of_stream_[role_.steady.ops[dependency].stream];
    const int32_t position = position_of_op_[dependency];
    if (position < waited_for_[queue]) return;
    waited_for_[queue] = position + 1;
    EndSegment();
    schedule_.actions.push_back({HostAction::Kind::kWait, queue, position});
  }

  void AddIssue(OpIndex index, const Op& op) {
    EndSegment();
    const int32_t queue = QueueOf(op.stream);
    position_of_op_[index] = static_cast<int32_t>(schedule_.queues[queue].ops.size());
    schedule_.queues[queue].ops.push_back(index);
    schedule_.actions.push_back({HostAction::Kind::kIssue, queue, position_of_op_[index]});
  }

  int32_t QueueOf(StreamId stream) {
    if (queue_of_stream_[stream] < 0) {
      queue_of_stream_[stream] = static_cast<int32_t>(schedule_.queues.size());
      schedule_.queues.push_back({stream, {}});
      waited_for_.push_back(0);
    }
    return queue_of_stream_[stream];
  }

  void EndSegment() {
    const int32_t end = static_cast<int32_t>(schedule_.items.size());
    if (end > segment_) schedule_.actions.push_back({HostAction::Kind::kWork, segment_, end});
    segment_ = end;
  }

  const Role& role_;
  RoleSchedule& schedule_;
  std::vector<int32_t> queue_of_stream_, position_of_op_;
  std::vector<int32_t> waited_for_;  // by queue: operators known to be done
  int32_t segment_ = 0;              // the first item of the segment being filled
};

void LayOutRanks(const Plan& plan, StepSchedule& schedule) {
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const int32_t role = plan.role_of_rank[rank];
    schedule.ranks.push_back({role, schedule.items, static_cast<int32_t>(schedule.queues.size())});
    schedule.items += static_cast<int32_t>(schedule.roles[role].items.size());
    for (const RoleQueue& queue : schedule.roles[role].queues) {
      const int32_t first = static_cast<int32_t>(schedule.transfer_of_position.size());
      schedule.queues.push_back({rank, queue.stream, first, static_cast<int32_t>(queue.ops.size())});
      schedule.transfer_of_position.resize(first + queue.ops.size(), -1);
    }
  }
}

}  // namespace

Result<StepSchedule> MakeStepSchedule(const Plan& plan) {
  WT_CHECK_EQ(plan.role_of_rank.size(), static_cast<size_t>(plan.world_size));
  StepSchedule schedule;
  schedule.plan = &plan;
  schedule.roles.resize(plan.roles.size());
  for (size_t i = 0; i < plan.roles.size(); ++i) RoleScheduler(plan.roles[i], schedule.roles[i]).Run();
  LayOutRanks(plan, schedule);
  WT_RETURN_IF_ERROR(MatchTransfers(schedule));
  return schedule;
}

}  // namespace windtunnel
