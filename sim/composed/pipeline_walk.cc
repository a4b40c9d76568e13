#include "sim/composed/pipeline_walk.h"

#include <limits>
#include <vector>

#include "plan/balance.h"
#include "plan/schedule_order.h"

namespace windtunnel::composed {
namespace {

PipelineWalk OnePiece(int64_t micro_batches) {
  PipelineWalk walk;
  for (int64_t i = 0; i < micro_batches; ++i) {
    PipelineEvent forward, backward;
    forward.is_first = i == 0;
    backward.kind = PipelineEvent::Kind::kBackward;
    backward.is_first = i == 0;
    backward.is_last = i + 1 == micro_batches;
    walk.events.push_back(forward);
    walk.events.push_back(backward);
  }
  walk.unreleased = {0};
  walk.ends_with_messages = {false};
  return walk;
}

// Goes through all events in order, and notes what each waits for.
class Walker {
 public:
  explicit Walker(const Schedule& schedule)
      : schedule_(schedule),
        ranks_(static_cast<int>(schedule.ranks.size())),
        stages_(schedule.stages()),
        micro_batches_(schedule.micro_batches),
        slot_of_(static_cast<size_t>(2 * stages_ * micro_batches_), -1),
        position_of_(slot_of_.size(), 0),
        lane_of_(static_cast<size_t>(ranks_) * ranks_, -1),
        forwards_(stages_, 0),
        backwards_(stages_, 0),
        sent_(ranks_),
        backwards_of_(ranks_),
        has_exchanged_(ranks_, false) {
    walk_.ranks = ranks_;
    walk_.stages_per_rank = stages_ / ranks_;
    for (const std::vector<Action>& actions : schedule.ranks) {
      for (size_t i = 0; i < actions.size(); ++i) {
        const bool forward = actions[i].kind == ActionKind::kForward;
        position_of_[Index(forward, actions[i].stage, actions[i].micro_batch)] = static_cast<int32_t>(i);
      }
    }
  }

  PipelineWalk Run() {
    const std::vector<ScheduleEvent> events = InOneOrder(schedule_);
    walk_.events.reserve(events.size());
    for (const ScheduleEvent& event : events) {
      if (IsSend(event.action.kind)) Exchange(event.rank, event.action);
      else Compute(event.rank, event.action);
    }
    for (const std::vector<Sent>& sent : sent_) walk_.unreleased.push_back(static_cast<int32_t>(sent.size()));
    walk_.ends_with_messages = has_exchanged_;
    return std::move(walk_);
  }

 private:
  // A message of which its sender does not know yet that it has arrived.
  struct Sent {
    int to;
    int32_t needed;  // position, in the receiver's actions, of the computation that needs it
  };

  struct Backward {
    int16_t chunk;
    bool is_last;
  };

  // The index of what a stage makes in its forward or backward of a micro-batch.
  size_t Index(bool forward, int stage, int64_t micro_batch) const {
    return static_cast<size_t>((forward ? 0 : stages_) + stage) * micro_batches_ + micro_batch;
  }

  void Exchange(int rank, const Action& send) {
    const bool forward = send.kind == ActionKind::kSendActivation;
    const int to = Counterpart(send).stage, receiver = schedule_.rank_of_stage[to];
    PipelineEvent event;
    event.kind = PipelineEvent::Kind::kMessage;
    event.rank = static_cast<int32_t>(rank);
    event.receiver = static_cast<int32_t>(receiver);
    event.out = SlotOf(Index(forward, send.stage, send.micro_batch));
    int32_t& lane = lane_of_[static_cast<size_t>(rank) * ranks_ + receiver];
    if (lane < 0) lane = walk_.lanes++;
    event.lane = lane;
    walk_.events.push_back(event);
    sent_[rank].push_back({receiver, position_of_[Index(forward, to, send.micro_batch)]});
    has_exchanged_[rank] = has_exchanged_[receiver] = true;
  }

  int32_t SlotOf(size_t index) {
    if (slot_of_[index] < 0) slot_of_[index] = walk_.messages++;
    return slot_of_[index];
  }

  void Compute(int rank, const Action& action) {
    const bool forward = action.kind == ActionKind::kForward;
    const int from = forward ? action.stage - 1 : action.stage + 1,
              to = forward ? action.stage + 1 : action.stage - 1;
    PipelineEvent event;
    event.kind = forward ? PipelineEvent::Kind::kForward : PipelineEvent::Kind::kBackward;
    event.rank = static_cast<int32_t>(rank);
    event.chunk = static_cast<int16_t>(action.stage / ranks_);
    event.follows_messages = has_exchanged_[rank];
    has_exchanged_[rank] = false;
    if (forward) {
      event.is_first = forwards_[action.stage]++ == 0;
    } else {
      event.is_first = backwards_[action.stage]++ == 0;
      event.is_last = backwards_[action.stage] == micro_batches_;
      // As PipelineRank does.
      std::vector<Backward>& done = backwards_of_[rank];
      done.push_back({event.chunk, event.is_last});
      const int due = static_cast<int>(done.size()) - 1 - rank;
      if (due >= 0 && done[due].is_last) event.reduces = done[due].chunk;
    }
    if (from >= 0 && from < stages_) {
      const size_t made = Index(forward, from, action.micro_batch);
      event.in = SlotOf(made);
      event.released = Release(rank, schedule_.rank_of_stage[from], position_of_[made]);
    }
    if (to >= 0 && to < stages_) event.out = SlotOf(Index(forward, action.stage, action.micro_batch));
    walk_.events.push_back(event);
  }

  // Everything that `from` needed for its computation at `position` has arrived there. Returns the number of
  // messages released.
  int32_t Release(int rank, int from, int32_t position) {
    return static_cast<int32_t>(std::erase_if(
        sent_[rank], [&](const Sent& sent) { return sent.to == from && sent.needed <= position; }));
  }

  const Schedule& schedule_;
  const int ranks_, stages_;
  const int64_t micro_batches_;
  PipelineWalk walk_;
  std::vector<int32_t> slot_of_, position_of_, lane_of_;
  std::vector<int64_t> forwards_, backwards_;  // by stage
  std::vector<std::vector<Sent>> sent_;
  std::vector<std::vector<Backward>> backwards_of_;  // by rank
  std::vector<bool> has_exchanged_;                  // by rank: since its last computation
};

}  // namespace

Result<PipelineWalk> MakePipelineWalk(const Scenario& scenario) {
  if (scenario.parallel.pipeline.size == 1) return OnePiece(scenario.batch.accumulate);
  WT_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(scenario));
  const int ranks = static_cast<int>(schedule.ranks.size());
  if (schedule.rank_of_stage != LoopPlacement(ranks, schedule.stages() / ranks))
    return Unsupported("stages that hand over within a rank");
  if (schedule.stages() / ranks > std::numeric_limits<int16_t>::max())
    return Unsupported("tens of thousands of stages a rank");
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) {
      if (action.kind != ActionKind::kForward && action.kind != ActionKind::kBackward)
        return Unsupported("a schedule that splits backwards");
    }
  }
  return Walker(schedule).Run();
}

}  // namespace windtunnel::composed
