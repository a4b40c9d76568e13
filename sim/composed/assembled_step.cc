#include "sim/composed/assembled_step.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace windtunnel::composed {

size_t AssembledStep::GroupsOf(const StageAction& action) const {
  size_t groups = 0;
  for (const PartRun& run : action.runs)
    groups += run.part->gradients.size() * static_cast<size_t>(run.count);
  return groups;
}

size_t AssembledStep::FirstGroup(const RankClass& of, size_t pass) const {
  size_t group = 0;
  for (size_t i = 0; i < pass; ++i) {
    const BackwardPass before = of.passes.first[i];
    const auto stage = static_cast<size_t>(of.stages[static_cast<size_t>(before.chunk)]);
    group += GroupsOf(actions[stage]->Backward(before.kind, /*is_first=*/true));
  }
  return group;
}

bool AssembledStep::GathersAreKnown() const {
  std::vector<bool> has_begun(static_cast<size_t>(walk->ranks));
  std::vector<int> forwards(has_begun.size());  // that were the first of their stage
  for (const PipelineEvent& event : walk->events) {
    if (event.kind == PipelineEvent::Kind::kMessage) continue;
    const auto rank = static_cast<size_t>(event.rank);
    const bool is_backward = event.kind == PipelineEvent::Kind::kBackward;
    const bool is_first_forward = !is_backward && event.is_first;
    forwards[rank] += is_first_forward;
    if (!host_awaits_messages && is_backward && forwards[rank] < walk->stages_per_rank) return false;
    if (host_awaits_messages && is_first_forward && has_begun[rank] && !event.follows_messages) return false;
    has_begun[rank] = true;
  }
  return true;
}

bool AssembledStep::HoldsHosts() const {
  return std::any_of(walk->events.begin(), walk->events.end(), [&](const PipelineEvent& event) {
    return event.kind == PipelineEvent::Kind::kForward && ActionsOf(event).forward.holds_host;
  });
}

std::vector<std::vector<RankWalk::LaterForward>> AssembledStep::LaterForwards() const {
  struct Course {
    size_t since = 0;      // the event after which the host runs freely
    bool is_open = false;  // true until the host waits again
    bool has_begun = false;
    int64_t host = 0;  // host time since the previous first forward
  };
  std::vector<std::vector<RankWalk::LaterForward>> later(walk->events.size());
  std::vector<Course> courses(static_cast<size_t>(walk->ranks));
  for (size_t i = 0; i < walk->events.size(); ++i) {
    const PipelineEvent& event = walk->events[i];
    Course& course = courses[static_cast<size_t>(event.rank)];
    if (event.kind == PipelineEvent::Kind::kMessage) {
      course.host += send_host;
      courses[static_cast<size_t>(walk->receivers[event.lane])].host += receive_host;
      continue;
    }
    if (event.kind == PipelineEvent::Kind::kBackward) {
      // No first forward follows it (GathersAreKnown), or only with messages that the host awaits.
      course.is_open = false;
      continue;
    }
    const StageAction& forward = ActionsOf(event).forward;
    const bool waits = host_awaits_messages && event.follows_messages;
    if (waits) course.is_open = false;
    if (course.is_open && event.is_first) {
      later[course.since].push_back({&forward, course.host});
      course.host = 0;
    } else {
      course.host += forward.host;
    }
    if (forward.holds_host || waits || !course.has_begun) course = {i, true, true, 0};
  }
  return later;
}

void AssembledStep::GatherAhead(std::vector<RankWalk>& ranks) const {
  std::vector<int64_t> host;
  for (const RankWalk& rank : ranks) host.push_back(rank.host());
  std::vector<size_t> group(ranks.size());
  std::vector<int> left(ranks.size(), walk->stages_per_rank);
  int stages = this->stages();
  for (const PipelineEvent& event : walk->events) {
    if (stages == 0) return;
    const auto rank = static_cast<size_t>(event.rank);
    if (event.kind == PipelineEvent::Kind::kMessage) {
      host[rank] += send_host;
      host[static_cast<size_t>(walk->receivers[event.lane])] += receive_host;
    } else if (left[rank] > 0) {
      const StageAction& forward = ActionsOf(event).forward;
      host[rank] = event.is_first ? ranks[rank].GatherAhead(forward, host[rank], group[rank])
                                  : host[rank] + forward.host;
      if (!event.is_first) continue;
      --left[rank];
      --stages;
    }
  }
}

// One pass over the events, which tracks what each rank holds.
void AssembledStep::FindPeak(int begin, int end, int64_t capacity) {
  struct Held {
    int64_t now = 0, peak = 0;
    int64_t left = 0;  // to tensor ranks (StageTemplate::left)
    void Add(const MemoryPass& pass) {
      peak = std::max(peak, now + pass.peak);
      now += pass.net;
    }
  };
  std::vector<Held> held(static_cast<size_t>(end - begin));
  for (int rank = begin; rank < end; ++rank) {
    const RankClass& of = ClassOf(rank);
    held[rank - begin] = {.now = of.resident - of.strategy->freed, .peak = of.resident};
  }
  // First backwards, by class of rank and PassOrder::first; and how many of them each rank has had.
  std::vector<std::vector<std::optional<ActionMemory>>> firsts(classes.size());
  std::vector<size_t> passed(static_cast<size_t>(walk->ranks));
  const auto memory_of = [&](const PipelineEvent& event) -> const ActionMemory& {
    const StageActions& of = ActionsOf(event);
    if (event.kind == PipelineEvent::Kind::kForward) return of.forward.memory;
    const StageAction& backward = of.Backward(event.backward, event.is_first);
    if (!event.is_first) return backward.memory;
    const RankClass& rank = ClassOf(event.rank);
    auto& of_class = firsts[static_cast<size_t>(class_of[event.rank])];
    of_class.resize(rank.passes.first.size());
    const size_t pass = passed[static_cast<size_t>(event.rank)]++;
    if (!of_class[pass])
      of_class[pass] = MemoryOfFirst(backward.runs, *rank.strategy, FirstGroup(rank, pass));
    return *of_class[pass];
  };
  const bool is_first_alone = begin == 0 && end == 1;
  const size_t events = is_first_alone ? walk->of_first_rank.size() : walk->events.size();
  for (size_t i = 0; i < events; ++i) {
    const PipelineEvent& event =
        walk->events[is_first_alone ? static_cast<size_t>(walk->of_first_rank[i]) : i];
    const bool is_message = event.kind == PipelineEvent::Kind::kMessage;
    const int32_t rank = is_message ? walk->receivers[event.lane] : event.rank;
    if (rank < begin || rank >= end) continue;
    Held& of = held[rank - begin];
    if (is_message) {
      of.Add({received, received});
      continue;
    }
    const ActionMemory& memory = memory_of(event);
    of.Add(memory.lead);
    of.now -= event.released * message;
    if (of.left > 0 && memory.awaits_tensor) {
      of.Add(memory.until_awaited);
      of.now -= std::exchange(of.left, 0);
      of.Add(memory.behind);
    } else {
      of.Add(memory.rest);
    }
    if (event.kind == PipelineEvent::Kind::kForward) of.left += ActionsOf(event).stage->left;
    if (of.peak <= capacity) continue;
    peak = of.peak;
    return;
  }
  for (int rank = begin; rank < end; ++rank) {
    const RankStrategy& strategy = *ClassOf(rank).strategy;
    Held& of = held[rank - begin];
    of.Add({strategy.net_before, strategy.peak_before});
    of.now -= walk->unreleased[rank] * message;
    of.Add({0, strategy.peak_after});
    peak = std::max(peak, of.peak);
  }
}

namespace {

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

int64_t AssembledStep::MessageTime(int from, int to) const {
  const int lower = std::min(from, to);
  const bool is_next = std::max(from, to) == lower + 1;
  return message_times[static_cast<size_t>(is_next ? lower : walk->ranks - 1)];
}

Duration AssembledStep::Time() const {
  const PipelineWalk& order = *walk;
  std::vector<const RankStrategy*> strategies;
  std::vector<RankWalk> ranks(order.ranks);
  for (int rank = 0; rank < order.ranks; ++rank) {
    strategies.push_back(ClassOf(rank).strategy.get());
    ranks[rank].Reset(strategies.back());
  }
  // By message: when it is made, then when it has arrived; each is written before it is read.
  const auto messages = std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(order.messages));
  // `exchanged`, by rank: when its last message ended, sent or received.
  std::vector<int64_t> lane_end(order.receivers.size()), sent(order.ranks), exchanged(order.ranks);
  // Indices of groups (RankStrategy), by rank.
  std::vector<size_t> next_use(order.ranks), next_first(order.ranks), next_last(order.ranks);
  const bool holds = gathers_with_forward && HoldsHosts();
  const auto later = holds ? LaterForwards() : std::vector<std::vector<RankWalk::LaterForward>>();
  if (gathers_with_forward && !host_awaits_messages && !holds) GatherAhead(ranks);
  for (size_t i = 0; i < order.events.size(); ++i) {
    const PipelineEvent& event = order.events[i];
    RankWalk& rank = ranks[event.rank];
    if (event.kind == PipelineEvent::Kind::kMessage) {
      const int32_t to = order.receivers[event.lane];
      RankWalk& receiver = ranks[to];
      rank.AddHost(send_host);
      receiver.AddHost(receive_host);
      const int64_t start =
          std::max({messages[event.out], lane_end[event.lane], rank.host(), receiver.host()});
      const int64_t end = start + MessageTime(event.rank, to);
      messages[event.out] = lane_end[event.lane] = end;
      sent[event.rank] = std::max(sent[event.rank], end);
      for (const int32_t other : {event.rank, to})
        exchanged[other] = std::max(exchanged[other], end);
      continue;
    }
    if (host_awaits_messages && event.follows_messages) rank.AwaitAll(exchanged[event.rank]);
    const StageActions& of = ActionsOf(event);
    const int64_t arrival = event.in >= 0 ? messages[event.in] : 0;
    int64_t end = 0;
    if (event.kind == PipelineEvent::Kind::kForward) {
      const bool gathers = gathers_with_forward && event.is_first;
      if (size_t group = next_use[event.rank]; gathers && host_awaits_messages && !holds)
        rank.GatherAhead(of.forward, rank.host(), group);
      if (holds && (gathers || !later[i].empty()))
        end = rank.DoHeld(of.forward, arrival, gathers, next_use[event.rank], later[i]);
      else if (gathers) end = rank.DoWithValues(of.forward, arrival, next_use[event.rank]);
      else end = rank.Do(of.forward, arrival);
    } else {
      const StageAction& action = of.Backward(event.backward, event.is_first);
      const RankStrategy& strategy = *strategies[event.rank];
      if (event.is_last) end = rank.DoWithGroups(action, arrival, strategy.last, next_last[event.rank]);
      else if (event.is_first && strategy.adds_to_first)
        end = rank.DoWithGroups(action, arrival, strategy.first, next_first[event.rank]);
      else end = rank.Do(action, arrival);
    }
    if (event.out >= 0) messages[event.out] = end;
    if (event.reduces >= 0) rank.Reduce(static_cast<size_t>(event.reduces));
  }
  for (int rank = 0; rank < order.ranks; ++rank)
    if (host_awaits_messages && order.ends_with_messages[rank]) ranks[rank].AwaitAll(exchanged[rank]);
  for (RankWalk& rank : ranks) rank.Reduce(0);
  Tails(ranks, sent, strategies).Run();
  int64_t end = 0;
  for (const RankWalk& rank : ranks) end = std::max(end, rank.End());
  return Picoseconds(end);
}

}  // namespace windtunnel::composed
