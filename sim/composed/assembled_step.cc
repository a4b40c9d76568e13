#include "sim/composed/assembled_step.h"

#include <algorithm>
#include <span>
#include <utility>

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

ActionMemory AssembledStep::MemoryOfFirst(const RankClass& of, size_t pass,
                                          const StageAction& backward) const {
  const size_t first = FirstGroup(of, pass);
  const auto groups = std::span(of.strategy->first).subspan(first, GroupsOf(backward));
  const bool allocates = std::any_of(groups.begin(), groups.end(), [](const RankStrategy::Group& group) {
    return group.allocates > 0 || group.lates > 0;
  });
  return allocates ? composed::MemoryOfFirst(backward.runs, *of.strategy, first) : backward.memory;
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
      courses[static_cast<size_t>(walk->lanes[event.lane()].to)].host += receive_host;
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
      host[static_cast<size_t>(walk->lanes[event.lane()].to)] += receive_host;
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

namespace {

// What a rank holds, and the most that it has held.
struct Held {
  int64_t now = 0, peak = 0;
  int64_t left = 0;      // to tensor ranks (StageTemplate::left)
  int64_t released = 0;  // sent messages that have arrived and are freed by the next computation

  void Add(const MemoryPass& pass) {
    peak = std::max(peak, now + pass.peak);
    now += pass.net;
  }
  // `arrived`: bytes of sent messages that are known to have arrived when the action begins.
  void Do(const ActionMemory& action, int64_t arrived) {
    Add(action.lead);
    released += arrived;
    if (action.computes) now -= std::exchange(released, 0);
    if (left > 0 && action.awaits_tensor) {
      Add(action.until_awaited);
      now -= std::exchange(left, 0);
      Add(action.behind);
    } else {
      Add(action.rest);
    }
  }
  // Does the same `count` times.
  template <typename Once>
  void Repeat(int32_t count, Once do_once) {
    for (; count > 0; --count) {
      const Held before = *this;
      do_once();
      if (count < 3 || left != before.left || released != before.released) continue;
      // From here on each time changes memory by as much, so the highest level is in this one or the last.
      now += (count - 2) * (now - before.now);
      count = 2;
    }
  }
};

}  // namespace

void AssembledStep::FindPeak(int begin, int end, int64_t capacity) {
  // First backwards, by class of rank and PassOrder::first.
  std::vector<std::vector<ActionMemory>> firsts(classes.size());
  for (int rank = begin; rank < end; ++rank) {
    const RankClass& of = ClassOf(rank);
    std::vector<ActionMemory>& of_class = firsts[static_cast<size_t>(class_of[rank])];
    size_t passes = 0;  // first backwards so far
    Held held = {.now = of.resident - of.strategy->freed, .peak = of.resident};
    const auto do_event = [&](const MemoryEvent& event) {
      if (event.kind == MemoryEvent::Kind::kMessage) {
        held.Add({received, received});
        return;
      }
      const StageActions& stage = *actions[static_cast<size_t>(of.stages[static_cast<size_t>(event.chunk)])];
      const int64_t arrived = event.released * message;
      if (event.kind == MemoryEvent::Kind::kForward) {
        held.Do(stage.forward.memory, arrived);
        held.left += stage.stage->left;
        return;
      }
      const StageAction& backward = stage.Backward(event.backward, event.is_first);
      if (!event.is_first) {
        held.Do(backward.memory, arrived);
        return;
      }
      const size_t pass = passes++;
      if (of_class.size() == pass) of_class.push_back(MemoryOfFirst(of, pass, backward));
      held.Do(of_class[pass], arrived);
    };
    const MemoryTrace& trace = walk->memory[static_cast<size_t>(rank)];
    for (const MemoryTrace::Run& run : trace.runs) {
      const auto begins = trace.events.begin() + run.begin;
      held.Repeat(run.count, [&] { std::for_each(begins, begins + run.length, do_event); });
      if (held.peak <= capacity) continue;
      peak = held.peak;
      return;
    }
    held.Add({of.strategy->net_before, of.strategy->peak_before});
    held.now -= held.released + trace.unreleased * message;
    held.Add({0, of.strategy->peak_after});
    peak = std::max(peak, held.peak);
  }
}

int64_t AssembledStep::MessageTime(int from, int to) const {
  const int lower = std::min(from, to);
  const bool is_next = std::max(from, to) == lower + 1;
  return message_times[static_cast<size_t>(is_next ? lower : walk->ranks - 1)];
}

}  // namespace windtunnel::composed
