#include "sim/composed/step_course.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace windtunnel::composed {
namespace {

constexpr size_t kEventsOfRank = 16;        // with fewer, copying a rank's state may cost more than it saves
constexpr int32_t kMostSlots = 1 << 20;     // of a state that is kept: 8 MiB

// Runs what follows the backwards on all ranks, which meet at some operators.
class Tails {
 public:
  Tails(std::vector<RankWalk>& ranks, const std::vector<int64_t>& sent,
        const std::vector<const RankStrategy*>& strategies)
      : ranks_(ranks),
        sent_(sent),
        strategies_(strategies),
        waiting_(ranks.size(), -1),
        arrivals_(ranks.size()) {}

  void Run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) Advance(rank);
    while (Meet(kEmbedding) || Meet(kPipeline) || Meet(kWorld)) {
    }
    for (int32_t op : waiting_) WT_CHECK_EQ(op, -1);
  }

 private:
  void Advance(size_t rank) { waiting_[rank] = ranks_[rank].RunTail(sent_[rank], arrivals_[rank]); }

  // Runs a collective of the stream if all its ranks have arrived; false if not.
  bool Meet(LocalStream stream) {
    std::vector<size_t> here;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (waiting_[rank] >= 0 && strategies_[rank]->ops[waiting_[rank]].stream == stream)
        here.push_back(rank);
    }
    if (here.size() < (stream == kEmbedding ? 2 : ranks_.size())) return false;
    int64_t start = 0;
    for (size_t rank : here) start = std::max(start, arrivals_[rank]);
    for (size_t rank : here) {
      ranks_[rank].Met(waiting_[rank], start);
      Advance(rank);
    }
    return true;
  }

  std::vector<RankWalk>& ranks_;
  const std::vector<int64_t>& sent_;
  const std::vector<const RankStrategy*>& strategies_;
  std::vector<int32_t> waiting_;
  std::vector<int64_t> arrivals_;
};

}  // namespace

// ---- beginnings -------------------------------------------------------------------------------------------

StepBeginnings::Key StepBeginnings::KeyOf(const AssembledStep& step) {
  return {step.walk.get(), step.actions,      step.message_times,
          step.send_host,  step.receive_host, step.host_awaits_messages};
}

std::shared_ptr<const StepState> StepBeginnings::Find(const AssembledStep& step) {
  const Key key = KeyOf(step);
  std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const Known& of) { return of.key == key; });
  return found == known_.end() ? nullptr : found->state;
}

void StepBeginnings::Keep(const AssembledStep& step, const StepState& state) {
  auto kept = std::make_shared<StepState>(state);
  for (RankWalk& rank : kept->ranks) rank.Adopt(nullptr);
  Known known{KeyOf(step), std::move(kept)};
  std::lock_guard lock(mutex_);
  std::swap(known_[next_], known);
  next_ = (next_ + 1) % known_.size();
}

// ---- the course -------------------------------------------------------------------------------------------

StepCourse::StepCourse(const AssembledStep& step)
    : step_(step),
      order_(*step.walk),
      next_use_(order_.ranks),
      next_first_(order_.ranks),
      next_last_(order_.ranks),
      holds_(step.gathers_with_forward && step.HoldsHosts()) {
  for (int rank = 0; rank < order_.ranks; ++rank) strategies_.push_back(step.ClassOf(rank).strategy.get());
  for (const auto& [from, to] : order_.lanes) message_times_.push_back(step.MessageTime(from, to));
  if (holds_) later_ = step.LaterForwards();
}

Duration StepCourse::Run(StepBeginnings& beginnings) {
  const size_t shared = order_.before_last_backwards;
  const bool is_shared = BeginsAlike() && order_.message_slots <= kMostSlots &&
                         shared >= kEventsOfRank * static_cast<size_t>(order_.ranks);
  if (const auto known = is_shared ? beginnings.Find(step_) : nullptr) {
    state_ = *known;
    for (size_t rank = 0; rank < state_.ranks.size(); ++rank) state_.ranks[rank].Adopt(strategies_[rank]);
  } else {
    state_.ranks.resize(order_.ranks);
    for (size_t rank = 0; rank < state_.ranks.size(); ++rank) state_.ranks[rank].Reset(strategies_[rank]);
    state_.messages.resize(static_cast<size_t>(order_.message_slots));
    state_.lane_ends.resize(order_.lanes.size());
    state_.exchanged.resize(order_.ranks);
    if (step_.gathers_with_forward && !step_.host_awaits_messages && !holds_) step_.GatherAhead(state_.ranks);
    GoOn(0, shared);
    if (is_shared) beginnings.Keep(step_, state_);
  }
  GoOn(shared, order_.events.size());
  return Finish();
}

bool StepCourse::BeginsAlike() const {
  return !step_.gathers_with_forward &&
         std::none_of(step_.classes.begin(), step_.classes.end(), [](const AssembledStep::RankClass& of) {
           return of.strategy->adds_to_first || of.strategy->opening > 0;
         });
}

void StepCourse::GoOn(size_t begin, size_t end) {
  RankWalk* const ranks = state_.ranks.data();
  int64_t* const messages = state_.messages.data();
  const bool host_awaits_messages = step_.host_awaits_messages;
  for (size_t i = begin; i < end; ++i) {
    const PipelineEvent& event = order_.events[i];
    if (event.kind == PipelineEvent::Kind::kMessage) {
      int64_t& message = messages[event.out];
      message = Exchange(static_cast<size_t>(event.lane()), message);
      continue;
    }
    RankWalk& rank = ranks[event.rank];
    if (host_awaits_messages && event.follows_messages) rank.AwaitAll(state_.exchanged[event.rank]);
    const int64_t arrival = event.in >= 0 ? messages[event.in] : 0;
    const int64_t made =
        event.kind == PipelineEvent::Kind::kForward ? Forward(i, arrival) : Backward(event, arrival);
    if (event.out >= 0) messages[event.out] = made;
    if (event.reduces >= 0) rank.Reduce(static_cast<size_t>(event.reduces));
  }
}

int64_t StepCourse::Exchange(size_t lane, int64_t made) {
  const auto [from, to] = order_.lanes[lane];
  RankWalk& sender = state_.ranks[from];
  RankWalk& receiver = state_.ranks[to];
  sender.AddHost(step_.send_host);
  receiver.AddHost(step_.receive_host);
  const int64_t end =
      std::max({made, state_.lane_ends[lane], sender.host(), receiver.host()}) + message_times_[lane];
  state_.lane_ends[lane] = end;
  if (step_.host_awaits_messages)
    for (const int16_t rank : {from, to}) state_.exchanged[rank] = std::max(state_.exchanged[rank], end);
  return end;
}

int64_t StepCourse::Forward(size_t index, int64_t arrival) {
  const PipelineEvent& event = order_.events[index];
  RankWalk& rank = state_.ranks[event.rank];
  const StageAction& forward = step_.ActionsOf(event).forward;
  const bool gathers = step_.gathers_with_forward && event.is_first;
  if (size_t group = next_use_[event.rank]; gathers && step_.host_awaits_messages && !holds_)
    rank.GatherAhead(forward, rank.host(), group);
  if (holds_ && (gathers || !later_[index].empty()))
    return rank.DoHeld(forward, arrival, gathers, next_use_[event.rank], later_[index]);
  return gathers ? rank.DoWithValues(forward, arrival, next_use_[event.rank]) : rank.Do(forward, arrival);
}

int64_t StepCourse::Backward(const PipelineEvent& event, int64_t arrival) {
  RankWalk& rank = state_.ranks[event.rank];
  const StageAction& action = step_.ActionsOf(event).Backward(event.backward, event.is_first);
  const RankStrategy& strategy = *strategies_[event.rank];
  if (event.is_last) return rank.DoWithGroups(action, arrival, strategy.last, next_last_[event.rank]);
  if (event.is_first && strategy.adds_to_first)
    return rank.DoWithGroups(action, arrival, strategy.first, next_first_[event.rank]);
  return rank.Do(action, arrival);
}

Duration StepCourse::Finish() {
  for (int rank = 0; rank < order_.ranks; ++rank)
    if (step_.host_awaits_messages && order_.ends_with_messages[rank])
      state_.ranks[rank].AwaitAll(state_.exchanged[rank]);
  for (RankWalk& rank : state_.ranks) rank.Reduce(0);
  std::vector<int64_t> sent(order_.ranks);
  for (size_t i = 0; i < order_.lanes.size(); ++i)
    sent[order_.lanes[i].from] = std::max(sent[order_.lanes[i].from], state_.lane_ends[i]);
  Tails(state_.ranks, sent, strategies_).Run();
  int64_t end = 0;
  for (const RankWalk& rank : state_.ranks) end = std::max(end, rank.End());
  return Picoseconds(end);
}

}  // namespace windtunnel::composed
