#include "sim/composed/pipeline_walk.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string_view>
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
  walk.of_first_rank.resize(walk.events.size());
  std::iota(walk.of_first_rank.begin(), walk.of_first_rank.end(), 0);
  walk.passes = {WholePasses(1)};
  walk.unreleased = {0};
  walk.ends_with_messages = {false};
  return walk;
}

BackwardKind KindOf(ActionKind kind) {
  return kind == ActionKind::kBackward        ? BackwardKind::kWhole
         : kind == ActionKind::kInputGradient ? BackwardKind::kInputs
                                              : BackwardKind::kWeights;
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
        done_(stages_),
        sent_(ranks_),
        backwards_of_(ranks_),
        has_exchanged_(ranks_, false) {
    walk_.ranks = ranks_;
    walk_.stages_per_rank = stages_ / ranks_;
    walk_.rank_of_stage = schedule.rank_of_stage;
    walk_.passes.resize(ranks_);
    for (const std::vector<Action>& actions : schedule.ranks) {
      for (size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].kind == ActionKind::kWeightGradient) continue;
        const bool forward = actions[i].kind == ActionKind::kForward;
        position_of_[Index(forward, actions[i].stage, actions[i].micro_batch)] = static_cast<int32_t>(i);
      }
    }
  }

  Result<PipelineWalk> Run() {
    const std::vector<ScheduleEvent> events = InOneOrder(schedule_);
    walk_.events.reserve(events.size());
    for (const ScheduleEvent& event : events) {
      if (IsSend(event.action.kind)) Exchange(event.rank, event.action);
      else Compute(event.rank, event.action);
    }
    for (const std::vector<Sent>& sent : sent_) walk_.unreleased.push_back(static_cast<int32_t>(sent.size()));
    walk_.ends_with_messages = has_exchanged_;
    if (mixes_kinds_) return Unsupported("gradients that begin or end in backwards of several kinds");
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

  // What a stage has done so far.
  struct Done {
    int64_t forwards = 0, inputs = 0, weights = 0;  // whole backwards count as both
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
    event.out = SlotOf(Index(forward, send.stage, send.micro_batch));
    int32_t& lane = lane_of_[static_cast<size_t>(rank) * ranks_ + receiver];
    if (lane < 0) {
      lane = static_cast<int32_t>(walk_.receivers.size());
      walk_.receivers.push_back(static_cast<int32_t>(receiver));
    }
    event.lane = lane;
    Add(event, rank == 0 || receiver == 0);
    sent_[rank].push_back({receiver, position_of_[Index(forward, to, send.micro_batch)]});
    has_exchanged_[rank] = has_exchanged_[receiver] = true;
  }

  int32_t SlotOf(size_t index) {
    if (slot_of_[index] < 0) slot_of_[index] = walk_.messages++;
    return slot_of_[index];
  }

  void Compute(int rank, const Action& action) {
    PipelineEvent event;
    event.rank = static_cast<int32_t>(rank);
    event.stage = static_cast<int32_t>(action.stage);
    event.follows_messages = has_exchanged_[rank];
    has_exchanged_[rank] = false;
    if (action.kind == ActionKind::kForward) {
      event.is_first = done_[action.stage].forwards++ == 0;
    } else {
      event.kind = PipelineEvent::Kind::kBackward;
      event.backward = KindOf(action.kind);
      CountBackward(event);
    }
    if (action.kind != ActionKind::kWeightGradient) HandOver(action, event);
    Add(event, rank == 0);
  }

  void Add(const PipelineEvent& event, bool is_of_first) {
    if (is_of_first) walk_.of_first_rank.push_back(static_cast<int32_t>(walk_.events.size()));
    walk_.events.push_back(event);
  }

  void CountBackward(PipelineEvent& event) {
    Done& done = done_[event.stage];
    walk_.splits_backwards |= event.backward != BackwardKind::kWhole;
    const bool has_inputs = event.backward != BackwardKind::kWeights,
               has_weights = event.backward != BackwardKind::kInputs;
    event.is_first = has_inputs ? done.inputs == 0 : done.weights == 0;
    mixes_kinds_ |= has_inputs && has_weights && (done.inputs == 0) != (done.weights == 0);
    done.inputs += has_inputs;
    done.weights += has_weights;
    event.is_last = (has_inputs ? done.inputs : done.weights) == micro_batches_;
    mixes_kinds_ |=
        has_inputs && has_weights && (done.inputs == micro_batches_) != (done.weights == micro_batches_);
    const BackwardPass pass{static_cast<int16_t>(event.stage / ranks_), event.backward};
    PassOrder& order = walk_.passes[event.rank];
    if (event.is_first) order.first.push_back(pass);
    if (event.is_last) order.last.push_back(pass);
    if (!has_inputs) return;
    // As PipelineRank does.
    std::vector<Backward>& backwards = backwards_of_[event.rank];
    backwards.push_back({pass.chunk, event.is_last});
    const int due = static_cast<int>(backwards.size()) - 1 - event.rank;
    if (due >= 0 && backwards[due].is_last) event.reduces = backwards[due].chunk;
  }

  // Notes the message that an action waits for, and the one that it makes. Stages of one rank hand over
  // without.
  void HandOver(const Action& action, PipelineEvent& event) {
    const bool forward = action.kind == ActionKind::kForward;
    const int from = forward ? action.stage - 1 : action.stage + 1,
              to = forward ? action.stage + 1 : action.stage - 1;
    const auto is_elsewhere = [&](int stage) {
      return stage >= 0 && stage < stages_ && schedule_.rank_of_stage[stage] != event.rank;
    };
    if (is_elsewhere(from)) {
      const size_t made = Index(forward, from, action.micro_batch);
      event.in = SlotOf(made);
      event.released = Release(event.rank, schedule_.rank_of_stage[from], position_of_[made]);
    }
    if (is_elsewhere(to)) event.out = SlotOf(Index(forward, action.stage, action.micro_batch));
  }

  // Everything that `from` needed for its computation at `position` has arrived there, and so has what was
  // sent there before. Returns the number of messages released.
  int32_t Release(int rank, int from, int32_t position) {
    std::vector<Sent>& sent = sent_[rank];
    const auto last = std::find_if(sent.rbegin(), sent.rend(), [&](const Sent& message) {
      return message.to == from && message.needed <= position;
    });
    const auto end =
        std::remove_if(sent.begin(), last.base(), [&](const Sent& message) { return message.to == from; });
    const auto released = static_cast<int32_t>(last.base() - end);
    sent.erase(end, last.base());
    return released;
  }

  const Schedule& schedule_;
  const int ranks_, stages_;
  const int64_t micro_batches_;
  PipelineWalk walk_;
  std::vector<int32_t> slot_of_, position_of_, lane_of_;
  std::vector<Done> done_;  // by stage
  std::vector<std::vector<Sent>> sent_;
  std::vector<std::vector<Backward>> backwards_of_;  // by rank
  std::vector<bool> has_exchanged_;                  // by rank: since its last computation
  bool mixes_kinds_ = false;  // some whole backward writes only some of its gradients first, or last
};

}  // namespace

Result<PipelineWalk> MakePipelineWalk(const Scenario& scenario) {
  if (scenario.parallel.pipeline.size == 1) return OnePiece(scenario.batch.accumulate);
  WT_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(scenario));
  const int ranks = static_cast<int>(schedule.ranks.size());
  const int stages_per_rank = schedule.stages() / ranks;
  const bool is_v = stages_per_rank == 2 && schedule.rank_of_stage == VPlacement(ranks);
  if (!is_v && schedule.rank_of_stage != LoopPlacement(ranks, stages_per_rank))
    return Unsupported("stages that are placed neither in a loop nor in a V");
  if (stages_per_rank > std::numeric_limits<int16_t>::max())
    return Unsupported("tens of thousands of stages a rank");
  return Walker(schedule).Run();
}

bool HasWholePasses(const PipelineSpec& pipeline) {
  constexpr std::array<std::string_view, 5> kWhole = {"none", "gpipe", "1f1b", "interleaved", "looped_bfs"};
  return pipeline.size == 1 || std::find(kWhole.begin(), kWhole.end(), pipeline.schedule) != kWhole.end();
}

}  // namespace windtunnel::composed
