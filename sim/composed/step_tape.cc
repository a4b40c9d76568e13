#include "sim/composed/step_tape.h"

#include <algorithm>
#include <utility>

#include "plan/buffer_pool.h"
#include "sim/executor.h"
#include "sim/folding.h"
#include "sim/step_costs.h"

namespace windtunnel::composed {
namespace {

// Records what the only rank laid out does.
class Taper {
 public:
  Taper(const StepSchedule& schedule, const StepWork& work, const std::vector<TransferTraits>& traits)
      : schedule_(schedule),
        role_(schedule.RoleOf(0)),
        program_(schedule.plan->roles[schedule.ranks[0].role]),
        work_(work),
        traits_(traits),
        issued_(role_.queues.size()) {}

  StepTape Run() {
    tape_.queues = static_cast<int32_t>(role_.queues.size());
    for (const HostAction& action : role_.actions) {
      switch (action.kind) {
        case HostAction::Kind::kWork:
          for (int32_t i = action.first; i < action.second; ++i) AddItem(i);
          break;
        case HostAction::Kind::kIssue:
          AddIssue(action.first, action.second);
          break;
        case HostAction::Kind::kWait:
          tape_.items.push_back({.kind = TapeItem::Kind::kWait,
                                 .queue = action.first,
                                 .back = issued_[action.first] - action.second - 1,
                                 .op = last_});
          break;
      }
    }
    return std::move(tape_);
  }

 private:
  void AddItem(int32_t index) {
    const WorkItem& item = role_.items[index];
    if (item.kind == WorkItem::Kind::kDispatch) {
      last_ = item.op;
      const int64_t time = work_.items[index].picoseconds();
      tape_.items.push_back({.kind = TapeItem::Kind::kHost, .amount = time, .op = item.op});
      return;
    }
    const MemoryOp& op = program_.steady.memory[item.op];
    const Buffer& buffer = program_.buffers[op.buffer];
    if (buffer.space != MemorySpace::kDevice) return;
    const int64_t bytes = RequestedBytes(buffer.bytes, schedule_.plan->scenario.allocator).count();
    tape_.items.push_back(
        {.kind = TapeItem::Kind::kMemory, .amount = op.allocates() ? bytes : -bytes, .op = item.op});
  }

  void AddIssue(int32_t queue, int32_t position) {
    const RoleQueue& of = role_.queues[queue];
    const int32_t index =
        schedule_
            .transfer_of_position[schedule_.queues[static_cast<size_t>(queue)].first_transfer + position];
    TapeItem& item = tape_.items.emplace_back();
    item.kind = TapeItem::Kind::kIssue;
    item.engine = schedule_.transfers[index].engine;
    item.queue = queue;
    item.amount = work_.transfers[index].picoseconds();
    item.efficiency = traits_[index].compute_efficiency;
    item.beside_communication = traits_[index].beside_communication;
    item.holds_multiprocessors = traits_[index].holds_multiprocessors;
    item.op = last_ = of.ops[position];
    item.first_need = static_cast<int32_t>(tape_.needs.size());
    for (const QueuePrerequisite& needed : of.PrerequisitesOf(position))
      AddNeed(item.first_need, {needed.queue, issued_[needed.queue] - needed.done});
    item.needs = static_cast<int32_t>(tape_.needs.size()) - item.first_need;
    ++issued_[queue];
  }

  // Waiting for an operator includes those before it in its queue, so one need per queue is enough.
  void AddNeed(int32_t first, TapeNeed need) {
    for (size_t i = static_cast<size_t>(first); i < tape_.needs.size(); ++i) {
      if (tape_.needs[i].queue != need.queue) continue;
      tape_.needs[i].back = std::min(tape_.needs[i].back, need.back);
      return;
    }
    tape_.needs.push_back(need);
  }

  const StepSchedule& schedule_;
  const RoleSchedule& role_;
  const Role& program_;
  const StepWork& work_;
  const std::vector<TransferTraits>& traits_;
  std::vector<int32_t> issued_;  // by queue
  OpIndex last_ = -1;
  StepTape tape_;
};

// Makes the schedule and the work of one rank from a tape, and runs them.
class Untaper {
 public:
  Untaper(const StepTape& tape, const StepSchedule& like) : tape_(tape) {
    schedule_.plan = like.plan;
    schedule_.host = like.host;
    schedule_.folding = like.folding;
    schedule_.roles.resize(like.roles.size());
    schedule_.ranks = like.ranks;
    role_ = &schedule_.roles[schedule_.ranks[0].role];
    for (const RoleQueue& queue : like.RoleOf(0).queues)
      role_->queues.push_back({.stream = queue.stream, .ops = {}, .prerequisites = {}});
    transfers_.resize(role_->queues.size());
  }

  Result<Duration> Run() {
    for (const TapeItem& item : tape_.items) Add(item);
    EndWork();
    LayOut();
    const CoreLayout cores{.cores_per_node = 0,
                           .ranks_per_node = static_cast<int>(
                               std::max<int64_t>(schedule_.plan->scenario.cluster.devices_per_node, 1))};
    return StepExecutor(schedule_, cores, std::move(traits_)).Run(work_, nullptr);
  }

 private:
  void Add(const TapeItem& item) {
    switch (item.kind) {
      case TapeItem::Kind::kHost:
        host_ += item.amount;
        op_ = item.op;
        return;
      case TapeItem::Kind::kMemory:
        return;
      case TapeItem::Kind::kWait:
        EndWork();
        role_->actions.push_back({HostAction::Kind::kWait, item.queue, IssuedTo(item.queue) - item.back - 1});
        return;
      case TapeItem::Kind::kIssue:
        EndWork();
        RoleQueue& queue = role_->queues[item.queue];
        role_->actions.push_back({HostAction::Kind::kIssue, item.queue, IssuedTo(item.queue)});
        for (const TapeNeed& need : tape_.NeedsOf(item))
          queue.prerequisites.push_back({need.queue, IssuedTo(need.queue) - need.back});
        queue.first_prerequisite.push_back(static_cast<int32_t>(queue.prerequisites.size()));
        queue.ops.push_back(item.op);
        transfers_[item.queue].push_back(&item);
        return;
    }
  }

  int32_t IssuedTo(int32_t queue) const { return static_cast<int32_t>(role_->queues[queue].ops.size()); }

  void EndWork() {
    if (op_ < 0) return;
    const int32_t item = static_cast<int32_t>(role_->items.size());
    role_->items.push_back({WorkItem::Kind::kDispatch, op_});
    role_->actions.push_back({HostAction::Kind::kWork, item, item + 1});
    work_.items.push_back(Picoseconds(host_));
    host_ = 0;
    op_ = -1;
  }

  void LayOut() {
    schedule_.items = static_cast<int32_t>(role_->items.size());
    for (size_t q = 0; q < transfers_.size(); ++q) {
      const int32_t first = static_cast<int32_t>(schedule_.transfers.size());
      schedule_.queues.push_back(
          {0, role_->queues[q].stream, first, static_cast<int32_t>(transfers_[q].size())});
      for (const TapeItem* issued : transfers_[q]) {
        const int32_t index = static_cast<int32_t>(schedule_.transfers.size());
        schedule_.transfer_of_position.push_back(index);
        schedule_.transfers.push_back(
            {.first_participant = index, .participants = 1, .needed = 1, .engine = issued->engine});
        schedule_.participants.push_back({0, static_cast<int32_t>(q), issued->op});
        traits_.push_back({.compute_efficiency = issued->efficiency,
                           .holds_multiprocessors = issued->holds_multiprocessors,
                           .beside_communication = issued->beside_communication});
        work_.transfers.push_back(Picoseconds(issued->amount));
      }
    }
  }

  const StepTape& tape_;
  StepSchedule schedule_;
  RoleSchedule* role_;
  std::vector<std::vector<const TapeItem*>> transfers_;  // by queue
  std::vector<TransferTraits> traits_;
  StepWork work_;
  int64_t host_ = 0;  // picoseconds since the last action
  OpIndex op_ = -1;   // the last operator that they were for; -1: none
};

}  // namespace

bool AreAlike(const StepTape& tape, std::span<const TapeItem> a, std::span<const TapeItem> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const TapeItem& x, const TapeItem& y) {
    const std::span<const TapeNeed> of_x = tape.NeedsOf(x), of_y = tape.NeedsOf(y);
    return x.kind == y.kind && x.engine == y.engine && x.queue == y.queue && x.back == y.back &&
           x.amount == y.amount && x.efficiency == y.efficiency &&
           x.beside_communication == y.beside_communication &&
           x.holds_multiprocessors == y.holds_multiprocessors &&
           std::equal(of_x.begin(), of_x.end(), of_y.begin(), of_y.end());
  });
}

Result<TapedPlan> TapeOf(const Plan& plan, const CostModel& model) {
  TapedPlan taped;
  WT_ASSIGN_OR_RETURN(taped.schedule,
                      MakeStepSchedule(plan, {.host = HostRole::kIssues, .folding = Fold(plan)}));
  if (taped.schedule.ranks.size() != 1) return Unsupported("ranks that are not alike");
  WT_ASSIGN_OR_RETURN(const StepCosts costs, ResolveCosts(taped.schedule, model, /*replicates=*/1));
  if (!AreConstant(taped.schedule, costs)) return Unsupported("costs that are no constants");
  StepWork work;
  StepSampler(taped.schedule, costs, /*seed=*/0).Draw(0, work);
  taped.tape = Taper(taped.schedule, work, TraitsOf(taped.schedule, costs)).Run();
  return taped;
}

Result<Duration> RunTape(const StepTape& tape, const StepSchedule& like) { return Untaper(tape, like).Run(); }

}  // namespace windtunnel::composed
