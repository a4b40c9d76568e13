#include "sim/executor.h"

#include <algorithm>
#include <cmath>

#include "base/ceil_divide.h"
#include "base/check.h"
#include "sim/time_for.h"

namespace windtunnel {
namespace {

double InPicoseconds(Duration time) { return static_cast<double>(time.picoseconds()); }

}  // namespace

StepExecutor::StepExecutor(const StepSchedule& schedule, CoreLayout cores, std::vector<TransferTraits> traits,
                           NetworkFlows flows)
    : schedule_(schedule),
      cores_(cores),
      traits_(std::move(traits)),
      flow_of_transfer_(std::move(flows.flow_of_transfer)),
      links_(std::move(flows.flows), flows.links) {
  WT_CHECK_EQ(traits_.size(), schedule.transfers.size());
  WT_CHECK(flow_of_transfer_.empty() || flow_of_transfer_.size() == schedule.transfers.size());
  WT_CHECK(HostComputes() || cores.cores_per_node == 0);
  const int32_t ranks = static_cast<int32_t>(schedule.ranks.size());
  const int32_t per_node = std::max(cores.ranks_per_node, 1);
  // Without shared cores, every rank is alone on a core of its own.
  const int32_t cores_per_node = cores.cores_per_node > 0 ? cores.cores_per_node : per_node;
  ranks_of_core_.resize(static_cast<size_t>(CeilDivide(ranks, per_node)) * cores_per_node);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    core_of_rank_.push_back(rank / per_node * cores_per_node + rank % per_node % cores_per_node);
    ranks_of_core_[core_of_rank_.back()].push_back(rank);
  }
}

int32_t StepExecutor::EndQueueOf(int32_t rank) const {
  const size_t next = static_cast<size_t>(rank) + 1;
  return next < schedule_.ranks.size() ? schedule_.ranks[next].first_queue
                                       : static_cast<int32_t>(schedule_.queues.size());
}

Result<Duration> StepExecutor::Run(const StepWork& work, StepRecording* recording) {
  WT_CHECK_EQ(work.items.size(), static_cast<size_t>(schedule_.items));
  WT_CHECK_EQ(work.transfers.size(), schedule_.transfers.size());
  WT_CHECK(work.lateness.empty() || work.lateness.size() == schedule_.transfers.size());
  work_ = &work;
  recording_ = recording;
  Reset();
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) RunHost(rank);
  UpdateSpeeds();
  for (EventQueue<Happening>::Event event; queue_.Pop(event);) {
    if (event.time >= kLongestStep)
      return InvalidInput(
          "the predicted step takes longer than {:.0f} days, which virtual time has no room for",
          ToSeconds(kLongestStep) / 86'400);
    switch (event.payload.kind) {
      case Happening::Kind::kSegmentEnds:
        FinishSegment(event.payload.index);
        break;
      case Happening::Kind::kTransferBegins:
        BeginTransfer(event.payload.index);
        break;
      case Happening::Kind::kTransferEnds:
        FinishTransfer(event.payload.index);
        break;
    }
    // Only after all events of this instant, so that speeds do not depend on the order of those events.
    if (!queue_.HasMoreAtThisInstant()) UpdateSpeeds();
  }
  if (!IsComplete()) return tl::unexpected(DeadlockError(schedule_, Snapshot()));
  return end_;
}

void StepExecutor::Reset() {
  queue_.Reset();
  links_.Reset();
  ranks_.assign(schedule_.ranks.size(), {});
  queues_.assign(schedule_.queues.size(), {});
  transfers_.assign(schedule_.transfers.size(), {});
  done_at_.assign(work_->lateness.empty() ? 0 : schedule_.transfer_of_position.size(), Duration());
  is_dirty_core_.assign(ranks_of_core_.size(), false);
  dirty_cores_.clear();
  dirty_transfers_.clear();
  end_ = Duration();
}

bool StepExecutor::IsComplete() const {
  for (const RankState& rank : ranks_) {
    if (rank.state != HostState::kDone) return false;
  }
  for (size_t queue = 0; queue < queues_.size(); ++queue) {
    if (queues_[queue].done < schedule_.queues[queue].size) return false;
  }
  return true;
}

std::vector<RankSnapshot> StepExecutor::Snapshot() const {
  std::vector<RankSnapshot> snapshot(ranks_.size());
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    snapshot[rank].is_waiting = ranks_[rank].state == HostState::kWaiting;
    snapshot[rank].action = ranks_[rank].action;
  }
  for (size_t queue = 0; queue < queues_.size(); ++queue) {
    snapshot[schedule_.queues[queue].rank].queues.push_back(
        {queues_[queue].issued, queues_[queue].done, queues_[queue].has_arrived});
  }
  return snapshot;
}

// ---- hosts ------------------------------------------------------------------------------------------------

// Walks the rank's actions until one takes time.
void StepExecutor::RunHost(int32_t rank) {
  RankState& state = ranks_[rank];
  const std::vector<HostAction>& actions = schedule_.RoleOf(rank).actions;
  state.state = HostState::kRunnable;
  for (; state.action < static_cast<int32_t>(actions.size()); ++state.action) {
    if (!RunAction(rank, actions[state.action])) return;
  }
  state.state = HostState::kDone;
  end_ = std::max(end_, queue_.now());
}

// Returns true when the action takes no time.
bool StepExecutor::RunAction(int32_t rank, const HostAction& action) {
  const int32_t queue = FirstQueueOf(rank) + action.first;
  switch (action.kind) {
    case HostAction::Kind::kWork:
      return !StartSegment(rank, action);
    case HostAction::Kind::kIssue:
      ++queues_[queue].issued;
      ArriveIfReady(queue);
      return true;
    case HostAction::Kind::kWait:
      if (queues_[queue].done > action.second) return true;
      ranks_[rank].state = HostState::kWaiting;
      return false;
  }
  return true;
}

// False when the segment has no work.
bool StepExecutor::StartSegment(int32_t rank, const HostAction& action) {
  RankState& state = ranks_[rank];
  const int32_t offset = schedule_.ranks[rank].first_item;
  Duration total;
  for (int32_t item = action.first; item < action.second; ++item) total += work_->items[offset + item];
  if (total == Duration()) {
    if (recording_) recording_->EndSegment(rank, action.first, action.second, work_->items, queue_.now());
    return false;
  }
  state.state = HostState::kWorking;
  state.work = {.remaining = InPicoseconds(total), .since = queue_.now(), .speed = 0, .finish = {}};
  state.segment_work = total;
  MarkCoreOf(rank);
  return true;
}

void StepExecutor::FinishSegment(int32_t rank) {
  const HostAction& action = schedule_.RoleOf(rank).actions[ranks_[rank].action];
  if (recording_) recording_->EndSegment(rank, action.first, action.second, work_->items, queue_.now());
  MarkCoreOf(rank);
  ++ranks_[rank].action;
  RunHost(rank);
}

// ---- transfers --------------------------------------------------------------------------------------------

// Whether the head's prerequisites in the rank's other queues are done.
bool StepExecutor::HasPrerequisites(int32_t queue) const {
  const int32_t rank = schedule_.queues[queue].rank;
  const int32_t first = FirstQueueOf(rank);
  const RoleQueue& role = schedule_.RoleOf(rank).queues[queue - first];
  for (const QueuePrerequisite& needed : role.PrerequisitesOf(queues_[queue].done)) {
    if (queues_[first + needed.queue].done < needed.done) return false;
  }
  return true;
}

// Does nothing unless the operator at the head has been issued and its prerequisites on this rank are done.
void StepExecutor::ArriveIfReady(int32_t queue) {
  QueueState& state = queues_[queue];
  if (state.has_arrived || state.issued <= state.done || !HasPrerequisites(queue)) return;
  state.has_arrived = true;
  const int32_t transfer =
      schedule_.transfer_of_position[schedule_.queues[queue].first_transfer + state.done];
  if (recording_) recording_->ArriveAt(queue, state.done, queue_.now());
  if (++transfers_[transfer].arrived == schedule_.transfers[transfer].needed) StartTransfer(transfer);
}

// The time from now until the last of the ranks that are not laid out arrives. Lateness counts from the
// moment when the transfer's prerequisites were done on the laid-out ranks, so the time since then is
// subtracted.
Duration StepExecutor::WaitForTheLate(int32_t transfer) const {
  if (work_->lateness.empty() || work_->lateness[transfer] == Duration()) return Duration();
  const Transfer& layout = schedule_.transfers[transfer];
  Duration ready;
  for (int32_t i = 0; i < layout.participants; ++i) {
    const Participant& participant = schedule_.participants[layout.first_participant + i];
    const int32_t first = FirstQueueOf(participant.rank);
    const RoleQueue& role = schedule_.RoleOf(participant.rank).queues[participant.queue - first];
    for (const QueuePrerequisite& needed : role.PrerequisitesOf(queues_[participant.queue].done)) {
      const RankQueue& other = schedule_.queues[first + needed.queue];
      ready = std::max(ready, done_at_[other.first_transfer + needed.done - 1]);
    }
  }
  return std::max(ready + work_->lateness[transfer] - queue_.now(), Duration());
}

void StepExecutor::StartTransfer(int32_t transfer) {
  const Duration wait = WaitForTheLate(transfer);
  if (wait == Duration()) BeginTransfer(transfer);
  else queue_.Schedule(queue_.now() + wait, {Happening::Kind::kTransferBegins, transfer});
}

void StepExecutor::BeginTransfer(int32_t transfer) {
  const Transfer& layout = schedule_.transfers[transfer];
  if (const int32_t flow = FlowOf(transfer); flow >= 0) links_.Start(transfer, flow);
  transfers_[transfer].work = {.remaining = InPicoseconds(work_->transfers[transfer]),
                               .since = queue_.now(),
                               .speed = 0,
                               .finish = {}};
  for (int32_t i = 0; i < layout.participants; ++i) {
    const Participant& participant = schedule_.participants[layout.first_participant + i];
    queues_[participant.queue].in_flight = transfer;
    MarkCoreOf(participant.rank);
  }
}

void StepExecutor::FinishTransfer(int32_t transfer) {
  const Transfer& layout = schedule_.transfers[transfer];
  if (const int32_t flow = FlowOf(transfer); flow >= 0) links_.Finish(transfer, flow);
  end_ = std::max(end_, queue_.now());
  for (int32_t i = 0; i < layout.participants; ++i) {
    const Participant& participant = schedule_.participants[layout.first_participant + i];
    QueueState& queue = queues_[participant.queue];
    if (recording_) recording_->EndAt(participant.queue, queue.done, queue_.now());
    if (!done_at_.empty())
      done_at_[schedule_.queues[participant.queue].first_transfer + queue.done] = queue_.now();
    queue.in_flight = -1;
    queue.has_arrived = false;
    ++queue.done;
    MarkCoreOf(participant.rank);
  }
  for (int32_t i = 0; i < layout.participants; ++i) {
    const Participant& participant = schedule_.participants[layout.first_participant + i];
    for (int32_t queue = FirstQueueOf(participant.rank); queue < EndQueueOf(participant.rank); ++queue) {
      ArriveIfReady(queue);
    }
    // If the host waits for another operator, RunHost finds that and keeps waiting.
    if (ranks_[participant.rank].state == HostState::kWaiting) RunHost(participant.rank);
  }
}

// ---- speeds -----------------------------------------------------------------------------------------------

void StepExecutor::MarkCoreOf(int32_t rank) {
  const int32_t core = core_of_rank_[rank];
  if (is_dirty_core_[core]) return;
  is_dirty_core_[core] = true;
  dirty_cores_.push_back(core);
}

void StepExecutor::UpdateSpeeds() {
  for (int32_t core : dirty_cores_) {
    if (HostComputes()) ShareCoreAmong(core);
    else ShareDeviceOf(ranks_of_core_[core].front());
    is_dirty_core_[core] = false;
  }
  dirty_cores_.clear();
  for (const LinkSharing::Change& change : links_.Solve()) {
    TransferState& transfer = transfers_[change.transfer];
    transfer.link_limit = change.speed;
    if (!transfer.is_dirty) dirty_transfers_.push_back(change.transfer);
    transfer.is_dirty = true;
  }
  for (int32_t transfer : dirty_transfers_) {
    SetTransferSpeed(transfer);
    transfers_[transfer].is_dirty = false;
  }
  dirty_transfers_.clear();
}

// Solves one core's shares, sets its hosts' speeds, and notes the speed limits of the transfers that use it.
void StepExecutor::ShareCoreAmong(int32_t core) {
  claims_.clear();
  for (int32_t rank : ranks_of_core_[core]) {
    if (ranks_[rank].state == HostState::kWorking) claims_.push_back({.weight = 1, .demand = 1});
    for (int32_t queue = FirstQueueOf(rank); queue < EndQueueOf(rank); ++queue) {
      if (queues_[queue].in_flight < 0) continue;
      const TransferTraits& traits = traits_[queues_[queue].in_flight];
      claims_.push_back(
          {.weight = traits.weight, .demand = cores_.cores_per_node > 0 ? traits.core_share : 0});
    }
  }
  ShareCore(claims_);
  size_t claim = 0;
  for (int32_t rank : ranks_of_core_[core]) {
    if (ranks_[rank].state == HostState::kWorking)
      SetHostSpeed(rank, claims_[claim++].share * EfficiencyOn(rank));
    for (int32_t queue = FirstQueueOf(rank); queue < EndQueueOf(rank); ++queue) {
      if (queues_[queue].in_flight < 0) continue;
      const CoreClaim& solved = claims_[claim++];
      LimitTransfer(queues_[queue], solved.share < solved.demand ? solved.share / solved.demand : 1);
    }
  }
}

// Sets the speeds on a rank whose device computes.
void StepExecutor::ShareDeviceOf(int32_t rank) {
  if (ranks_[rank].state == HostState::kWorking) SetHostSpeed(rank, 1);
  auto engine_of = [&](int32_t queue) { return schedule_.transfers[queues_[queue].in_flight].engine; };
  int kernels = 0;
  for (int32_t queue = FirstQueueOf(rank); queue < EndQueueOf(rank); ++queue) {
    if (queues_[queue].in_flight >= 0 && engine_of(queue) == Engine::kKernels) ++kernels;
  }
  const double efficiency = kernels > 0 ? EfficiencyOn(rank) : 1;
  const bool holds = efficiency < 1 && HoldsMultiprocessors(rank);
  for (int32_t queue = FirstQueueOf(rank); queue < EndQueueOf(rank); ++queue) {
    if (queues_[queue].in_flight < 0) continue;
    const double own = holds ? traits_[queues_[queue].in_flight].beside_communication : 0;
    const double speed = own > 0 ? std::min(own, efficiency) : efficiency;
    LimitTransfer(queues_[queue], engine_of(queue) == Engine::kKernels ? speed / kernels : 1);
  }
}

bool StepExecutor::HoldsMultiprocessors(int32_t rank) const {
  for (int32_t queue = FirstQueueOf(rank); queue < EndQueueOf(rank); ++queue)
    if (queues_[queue].in_flight >= 0 && traits_[queues_[queue].in_flight].holds_multiprocessors) return true;
  return false;
}

// The speed of a rank's kernels beside the communication in flight there, apart from the loss of core time.
double StepExecutor::EfficiencyOn(int32_t rank) const {
  double efficiency = 1;
  for (int32_t queue = FirstQueueOf(rank); queue < EndQueueOf(rank); ++queue) {
    if (queues_[queue].in_flight >= 0) efficiency *= traits_[queues_[queue].in_flight].compute_efficiency;
  }
  return efficiency;
}

// Notes the speed that the queue's rank allows the transfer in flight on it. The transfer's own speed, the
// minimum over its ranks, is set later.
void StepExecutor::LimitTransfer(QueueState& queue, double speed) {
  TransferState& transfer = transfers_[queue.in_flight];
  if (queue.speed_limit == speed && transfer.work.speed > 0) return;
  queue.speed_limit = speed;
  if (!transfer.is_dirty) dirty_transfers_.push_back(queue.in_flight);
  transfer.is_dirty = true;
}

void StepExecutor::SetHostSpeed(int32_t rank, double speed) {
  RankState& state = ranks_[rank];
  if (!SetSpeed(state.work, speed, {Happening::Kind::kSegmentEnds, rank}) || recording_ == nullptr) return;
  recording_->BeginPiece(rank, queue_.now(),
                         state.segment_work - Picoseconds(std::llround(state.work.remaining)));
}

void StepExecutor::SetTransferSpeed(int32_t transfer) {
  const Transfer& layout = schedule_.transfers[transfer];
  double speed = transfers_[transfer].link_limit;
  for (int32_t i = 0; i < layout.participants; ++i) {
    const Participant& participant = schedule_.participants[layout.first_participant + i];
    speed = std::min(speed, queues_[participant.queue].speed_limit);
  }
  SetSpeed(transfers_[transfer].work, speed, {Happening::Kind::kTransferEnds, transfer});
}

// Settles the work done at the old speed and reschedules the end. False when nothing changes.
bool StepExecutor::SetSpeed(Activity& activity, double speed, Happening end) {
  if (activity.speed == speed) return false;
  const double done = InPicoseconds(queue_.now() - activity.since) * activity.speed;
  activity.remaining = std::max(activity.remaining - done, 0.0);
  activity.since = queue_.now();
  activity.speed = speed;
  queue_.Cancel(activity.finish);
  activity.finish = queue_.Schedule(queue_.now() + TimeFor(activity.remaining, speed), end);
  return true;
}

}  // namespace windtunnel
