#include "sim/composed/pipeline_walk.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "plan/balance.h"
#include "plan/schedule_order.h"

namespace windtunnel::composed {
namespace {

MemoryEvent MemoryOf(const PipelineEvent& action, int chunk, int32_t released) {
  const bool is_backward = action.kind == PipelineEvent::Kind::kBackward;
  MemoryEvent event;
  event.released = released;
  event.chunk = static_cast<int16_t>(chunk);
  event.kind = is_backward ? MemoryEvent::Kind::kBackward : MemoryEvent::Kind::kForward;
  event.backward = action.backward;
  event.is_first = is_backward && action.is_first;
  return event;
}

size_t CountBeforeLastBackwards(const std::vector<PipelineEvent>& events) {
  const auto last = std::find_if(events.begin(), events.end(), [](const PipelineEvent& event) {
    return event.kind == PipelineEvent::Kind::kBackward && event.is_last;
  });
  return static_cast<size_t>(last - events.begin());
}

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
  walk.before_last_backwards = CountBeforeLastBackwards(walk.events);
  std::vector<MemoryEvent> memory;
  for (const PipelineEvent& event : walk.events)
    memory.push_back(MemoryOf(event, /*chunk=*/0, /*released=*/0));
  walk.memory = {Condense(memory, /*period=*/2)};
  walk.passes = {WholePasses(1)};
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
        backwards_of_(ranks_),
        has_exchanged_(ranks_, false),
        memory_(ranks_) {
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
    for (const std::vector<MemoryEvent>& events : memory_) walk_.memory.push_back(MemoryOfRank(events));
    for (size_t lane = 0; lane < unreleased_.size(); ++lane)
      walk_.memory[walk_.lanes[lane].from].unreleased += unreleased_[lane].size();
    walk_.before_last_backwards = CountBeforeLastBackwards(walk_.events);
    walk_.ends_with_messages.assign(has_exchanged_.begin(), has_exchanged_.end());
    if (mixes_kinds_) return Unsupported("gradients that begin or end in backwards of several kinds");
    return std::move(walk_);
  }

 private:
  // The messages of a lane of which the sender does not know yet that they have arrived: for each the first
  // position, in the receiver's actions, of a computation that needs it or a later one. So they never descend.
  class Unreleased {
   public:
    void Add(int32_t needed) {
      for (size_t i = needed_.size(); i > first_ && needed_[i - 1] > needed; --i) needed_[i - 1] = needed;
      needed_.push_back(needed);
    }
    // The receiver has done the computation at `position`. Returns the number of messages that are released.
    int32_t Release(int32_t position) {
      const size_t before = first_;
      while (first_ < needed_.size() && needed_[first_] <= position) ++first_;
      return static_cast<int32_t>(first_ - before);
    }
    int32_t size() const { return static_cast<int32_t>(needed_.size() - first_); }

   private:
    std::vector<int32_t> needed_;
    size_t first_ = 0;
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
    const int to = forward ? send.stage + 1 : send.stage - 1, receiver = schedule_.rank_of_stage[to];
    PipelineEvent event;
    event.kind = PipelineEvent::Kind::kMessage;
    event.rank = static_cast<int16_t>(rank);
    event.out = slot_of_[Index(forward, send.stage, send.micro_batch)];
    int32_t& lane = LaneOf(rank, receiver);
    if (lane < 0) {
      lane = static_cast<int32_t>(walk_.lanes.size());
      walk_.lanes.push_back({static_cast<int16_t>(rank), static_cast<int16_t>(receiver)});
      unreleased_.emplace_back();
    }
    event.in = lane;
    walk_.events.push_back(event);
    memory_[receiver].emplace_back();
    unreleased_[lane].Add(position_of_[Index(forward, to, send.micro_batch)]);
    has_exchanged_[rank] = has_exchanged_[receiver] = true;
  }

  int32_t NewSlot(size_t index) {
    int32_t& slot = slot_of_[index];
    if (free_slots_.empty()) return slot = walk_.message_slots++;
    slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  void Compute(int rank, const Action& action) {
    PipelineEvent event;
    event.rank = static_cast<int16_t>(rank);
    event.stage = static_cast<int16_t>(action.stage);
    event.follows_messages = has_exchanged_[rank];
    has_exchanged_[rank] = false;
    if (action.kind == ActionKind::kForward) {
      event.is_first = done_[action.stage].forwards++ == 0;
    } else {
      event.kind = PipelineEvent::Kind::kBackward;
      event.backward = KindOf(action.kind);
      CountBackward(event);
    }
    const int32_t released = action.kind == ActionKind::kWeightGradient ? 0 : HandOver(action, event);
    walk_.events.push_back(event);
    memory_[rank].push_back(MemoryOf(event, action.stage / ranks_, released));
  }

  // Schedules repeat after each micro-batch, or where ranks have several stages after as many as there are
  // ranks; those with all forwards first repeat a message and what it is needed for.
  MemoryTrace MemoryOfRank(const std::vector<MemoryEvent>& events) const {
    const size_t micro_batches = walk_.stages_per_rank == 1 ? 1 : static_cast<size_t>(ranks_);
    const size_t period = events.size() / static_cast<size_t>(micro_batches_) * micro_batches;
    MemoryTrace trace = Condense(events, static_cast<int32_t>(period));
    if (2 * trace.events.size() <= events.size()) return trace;
    MemoryTrace by_pairs = Condense(events, /*period=*/2);
    return by_pairs.events.size() < trace.events.size() ? by_pairs : trace;
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
  // without. Returns the number of messages that the rank knows then to have arrived.
  int32_t HandOver(const Action& action, PipelineEvent& event) {
    const bool forward = action.kind == ActionKind::kForward;
    const int from = forward ? action.stage - 1 : action.stage + 1,
              to = forward ? action.stage + 1 : action.stage - 1;
    const auto is_elsewhere = [&](int stage) {
      return stage >= 0 && stage < stages_ && schedule_.rank_of_stage[stage] != event.rank;
    };
    if (is_elsewhere(to)) event.out = NewSlot(Index(forward, action.stage, action.micro_batch));
    if (!is_elsewhere(from)) return 0;
    const size_t made = Index(forward, from, action.micro_batch);
    event.in = slot_of_[made];
    free_slots_.push_back(event.in);  // event.out, which is written later, has another
    return Release(event.rank, schedule_.rank_of_stage[from], position_of_[made]);
  }

  // Everything that `from` needed for its computation at `position` has arrived there, and so has what was
  // sent there before. Returns the number of messages released.
  int32_t Release(int rank, int from, int32_t position) {
    const int32_t lane = LaneOf(rank, from);
    return lane < 0 ? 0 : unreleased_[lane].Release(position);
  }

  int32_t& LaneOf(int from, int to) { return lane_of_[static_cast<size_t>(from) * ranks_ + to]; }

  const Schedule& schedule_;
  const int ranks_, stages_;
  const int64_t micro_batches_;
  PipelineWalk walk_;
  std::vector<int32_t> slot_of_, position_of_, lane_of_, free_slots_;
  std::vector<Done> done_;  // by stage
  std::vector<Unreleased> unreleased_;               // by lane
  std::vector<std::vector<Backward>> backwards_of_;  // by rank
  std::vector<char> has_exchanged_;                  // by rank: whether it has since its last computation
  std::vector<std::vector<MemoryEvent>> memory_;     // by rank
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
  if (schedule.stages() > std::numeric_limits<int16_t>::max())
    return Unsupported("tens of thousands of stages");
  return Walker(schedule).Run();
}

bool HasWholePasses(const PipelineSpec& pipeline) {
  constexpr std::array<std::string_view, 5> kWhole = {"none", "gpipe", "1f1b", "interleaved", "looped_bfs"};
  return pipeline.size == 1 || std::find(kWhole.begin(), kWhole.end(), pipeline.schedule) != kWhole.end();
}

}  // namespace windtunnel::composed
