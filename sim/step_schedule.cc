#include "sim/step_schedule.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "sim/transfer_matching.h"

namespace windtunnel {
namespace {

// Walks one role's program and writes down what its host does.
class RoleScheduler {
 public:
  RoleScheduler(const Role& role, HostRole host, RoleSchedule& schedule)
      : role_(role),
        host_computes_(host == HostRole::kComputes),
        schedule_(schedule),
        queue_of_stream_(role.streams.size(), -1) {}

  void Run() {
    const std::vector<Op>& ops = role_.steady.ops;
    position_of_op_.assign(ops.size(), -1);
    WalkProgram(
        role_.steady,
        [&](int32_t index) {
          schedule_.items.push_back({WorkItem::Kind::kMemory, index});
        },
        [&](OpIndex index) { Add(index, ops[index]); });
    EndSegment();
  }

 private:
  void Add(OpIndex index, const Op& op) {
    if (std::holds_alternative<HostWait>(op.kind)) {
      for (OpIndex dependency : op.dependencies) AddWait(dependency);
      return;
    }
    schedule_.items.push_back({WorkItem::Kind::kDispatch, index});
    if (host_computes_ && !IsCommunication(op.kind)) {
      for (OpIndex dependency : op.dependencies) AddWait(dependency);
      schedule_.items.push_back({WorkItem::Kind::kKernel, index});
    } else {
      AddIssue(index, op);
    }
  }

  // Operators that the host runs itself are done when it gets here. Queues are in order, so whoever waits for
  // an operator waits for all before it.
  void AddWait(OpIndex dependency) {
    const int32_t position = position_of_op_[dependency];
    if (position < 0) return;
    const int32_t queue = queue_of_stream_[role_.steady.ops[dependency].stream];
    if (position < waited_for_[queue]) return;
    waited_for_[queue] = position + 1;
    EndSegment();
    schedule_.actions.push_back({HostAction::Kind::kWait, queue, position});
  }

  void AddIssue(OpIndex index, const Op& op) {
    EndSegment();
    const int32_t queue = QueueOf(op.stream);
    AddPrerequisites(op, queue);
    position_of_op_[index] = static_cast<int32_t>(schedule_.queues[queue].ops.size());
    schedule_.queues[queue].ops.push_back(index);
    schedule_.actions.push_back({HostAction::Kind::kIssue, queue, position_of_op_[index]});
  }

  // Adds only prerequisites that no earlier operator of the queue has waited for.
  void AddPrerequisites(const Op& op, int32_t queue) {
    RoleQueue& own = schedule_.queues[queue];
    std::vector<int32_t>& known = known_done_[queue];
    known.resize(schedule_.queues.size(), 0);
    for (OpIndex dependency : op.dependencies) {
      const int32_t other = queue_of_stream_[role_.steady.ops[dependency].stream];
      const int32_t done = position_of_op_[dependency] + 1;
      if (done == 0 || other == queue || done <= known[other]) continue;
      known[other] = done;
      own.prerequisites.push_back({other, done});
    }
    own.first_prerequisite.push_back(static_cast<int32_t>(own.prerequisites.size()));
  }

  int32_t QueueOf(StreamId stream) {
    if (queue_of_stream_[stream] < 0) {
      queue_of_stream_[stream] = static_cast<int32_t>(schedule_.queues.size());
      schedule_.queues.push_back({.stream = stream, .ops = {}, .prerequisites = {}});
      waited_for_.push_back(0);
      known_done_.emplace_back();
    }
    return queue_of_stream_[stream];
  }

  void EndSegment() {
    const int32_t end = static_cast<int32_t>(schedule_.items.size());
    if (end > segment_) schedule_.actions.push_back({HostAction::Kind::kWork, segment_, end});
    segment_ = end;
  }

  const Role& role_;
  const bool host_computes_;
  RoleSchedule& schedule_;
  std::vector<int32_t> queue_of_stream_;
  std::vector<int32_t> position_of_op_;  // in its queue; -1: it has none
  std::vector<int32_t> waited_for_;      // by queue: operators that the host knows to be done
  // By queue and other queue: operators of the other that operators of this one have waited for already.
  std::vector<std::vector<int32_t>> known_done_;
  int32_t segment_ = 0;  // the first item of the segment being filled
};

// Unsupported if there are more operators than 32-bit indices allow.
Status LayOutRanks(const Plan& plan, StepSchedule& schedule) {
  int64_t items = 0;
  for (const int world_rank : schedule.folding.representatives)
    items += static_cast<int64_t>(schedule.roles[plan.role_of_rank[world_rank]].items.size());
  if (items > std::numeric_limits<int32_t>::max())
    return Unsupported(
        "{} ranks have {} operators a step, expected fewer than 2^31: too many to simulate each",
        schedule.folding.representatives.size(), items);
  for (int world_rank : schedule.folding.representatives) {
    const int32_t role = plan.role_of_rank[world_rank];
    const int32_t rank = static_cast<int32_t>(schedule.ranks.size());
    schedule.ranks.push_back(
        {world_rank, role, schedule.items, static_cast<int32_t>(schedule.queues.size())});
    schedule.items += static_cast<int32_t>(schedule.roles[role].items.size());
    for (const RoleQueue& queue : schedule.roles[role].queues) {
      const int32_t first = static_cast<int32_t>(schedule.transfer_of_position.size());
      schedule.queues.push_back({rank, queue.stream, first, static_cast<int32_t>(queue.ops.size())});
      schedule.transfer_of_position.resize(first + queue.ops.size(), -1);
    }
  }
  return Ok();
}

}  // namespace

Result<StepSchedule> MakeStepSchedule(const Plan& plan, ScheduleOptions options) {
  WT_CHECK_EQ(plan.role_of_rank.size(), static_cast<size_t>(plan.world_size));
  StepSchedule schedule;
  schedule.plan = &plan;
  schedule.host = options.host;
  schedule.folding = options.folding ? *std::move(options.folding) : Unfolded(plan);
  schedule.roles.resize(plan.roles.size());
  for (size_t i = 0; i < plan.roles.size(); ++i)
    RoleScheduler(plan.roles[i], options.host, schedule.roles[i]).Run();
  WT_RETURN_IF_ERROR(LayOutRanks(plan, schedule));
  WT_RETURN_IF_ERROR(MatchTransfers(schedule));
  return schedule;
}

}  // namespace windtunnel
