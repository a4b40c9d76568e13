#include "sim/composed/rank_walk.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace windtunnel::composed {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// As StepExecutor: work done is rounded down, time up.
int64_t WorkDone(int64_t elapsed, double speed) {
  return static_cast<int64_t>(static_cast<double>(elapsed) * speed);
}
int64_t TimeFor(int64_t work, double speed) {
  const double exact = static_cast<double>(work) / speed;
  const int64_t whole = static_cast<int64_t>(exact);
  return whole + (static_cast<double>(whole) < exact ? 1 : 0);
}

// ---- memory ----------------------------------------------------------------------------------------------------------

MemoryPass MemoryOf(const Part& part) {
  MemoryPass pass;
  for (const MemoryChange& change : part.memory) pass.Add(change.bytes);
  return pass;
}

int32_t FirstCompute(const Part& part) {
  for (size_t i = 0; i < part.ops.size(); ++i)
    if (part.ops[i].stream == kCompute) return static_cast<int32_t>(i);
  return -1;
}

// Splits the part's memory where messages are freed: before what the first computation allocates.
void SplitMemory(const Part& part, MemoryPass& lead, MemoryPass& rest) {
  const int32_t first = FirstCompute(part);
  bool is_lead = true;
  for (const MemoryChange& change : part.memory) {
    const bool comes_later =
        change.op > first || (change.op == first && (change.is_after || change.bytes > 0));
    is_lead = is_lead && !comes_later;
    (is_lead ? lead : rest).Add(change.bytes);
  }
}

}  // namespace

StageAction MakeAction(std::array<StageAction::Run, 4> runs, int32_t made_by) {
  StageAction action;
  action.runs = runs;
  int64_t ops = 0;
  bool has_begun = false;
  for (const StageAction::Run& run : runs) {
    int64_t of_part = 0, host = 0;
    for (const TimedOp& op : run.part->ops) {
      host += op.host;
      of_part += op.is_strategy ? 0 : 1;
    }
    ops += of_part * run.count;
    action.host += host * run.count;
    if (run.count == 0) continue;
    if (has_begun || run.part->ops.empty()) {
      action.rest = action.rest.Then(MemoryOf(*run.part).Times(run.count));
      continue;
    }
    has_begun = true;
    MemoryPass lead, rest;
    SplitMemory(*run.part, lead, rest);
    action.lead = lead;
    action.rest = action.rest.Then(rest).Then(MemoryOf(*run.part).Times(run.count - 1));
  }
  action.made_at = made_by < 0 ? -1 : static_cast<int32_t>(ops) - 1 - made_by;

  // Walked once without a host; what is in the middle of many layers follows from those before.
  RankWalk walk;
  walk.Reset(nullptr);
  walk.ignores_host_ = true;
  walk.slack_ = kNever;
  constexpr int64_t kWalked = 3;
  StageAction shortened = action;
  int64_t left_out = 0;
  size_t middle = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].count <= kWalked) continue;
    left_out = runs[i].count - kWalked;
    middle = i;
    shortened.runs[i].count = kWalked;
  }
  int64_t shift = 0, host_left_out = 0;
  if (left_out > 0) {
    int64_t of_part = 0;
    for (const TimedOp& op : runs[middle].part->ops) {
      of_part += op.is_strategy ? 0 : 1;
      host_left_out += op.host;
    }
    host_left_out *= left_out;
    if (shortened.made_at >= 0) shortened.made_at -= static_cast<int32_t>(of_part * left_out);
    // How long one takes, once they are all alike.
    std::array<int64_t, kWalked + 1> compute{}, tensor{};
    for (int64_t count = 0; count <= kWalked; ++count) {
      RankWalk part;
      part.Reset(nullptr);
      part.ignores_host_ = true;
      part.slack_ = kNever;
      StageAction prefix = shortened;
      prefix.made_at = -1;
      prefix.runs[middle].count = count;
      for (size_t i = middle + 1; i < runs.size(); ++i) prefix.runs[i].count = 0;
      part.Walk(prefix, 0, nullptr, nullptr);
      compute[count] = part.ends_[kCompute];
      tensor[count] = part.ends_[kTensor];
    }
    const int64_t period = compute[3] - compute[2];
    const bool is_periodic = period == compute[2] - compute[1] &&
                             tensor[3] - compute[3] == tensor[2] - compute[2] &&
                             tensor[2] - compute[2] == tensor[1] - compute[1];
    if (!is_periodic) return action;
    shift = period * left_out;
  }
  // The message is made behind what was left out.
  int64_t behind = 0;
  for (size_t i = middle + 1; i < runs.size(); ++i) {
    for (const TimedOp& op : runs[i].part->ops) behind += op.is_strategy ? 0 : runs[i].count;
  }
  if (left_out > 0 && made_by >= behind) return action;
  const int64_t made = walk.Walk(shortened, 0, nullptr, nullptr);
  action.duration = walk.ends_[kCompute] + shift;
  action.made = made + shift;
  // In what was left out, and behind it, the host gains or loses evenly.
  action.slack = walk.slack_ + std::min<int64_t>(shift - host_left_out, 0);
  action.is_regular = walk.ends_[kTensor] <= walk.ends_[kCompute];
  return action;
}

StageAction MakeForward(const StageTemplate& stage, int64_t layers) {
  const StagePass& pass = stage.forward;
  return MakeAction({{{&pass.before, 1}, {&pass.first, 1}, {&pass.next, layers - 1}, {&pass.after, 1}}},
                    stage.is_last ? -1 : pass.made_by);
}

StageAction MakeBackward(const StagePass& pass, int64_t layers) {
  return MakeAction({{{&pass.before, 1}, {&pass.next, layers - 1}, {&pass.first, 1}, {&pass.after, 1}}},
                    pass.made_by);
}

void AddGradientMemory(const StageAction& action, const RankStrategy& strategy, size_t group,
                       MemoryPass& lead, MemoryPass& rest) {
  lead = rest = {};
  bool has_begun = false;
  const auto add = [&](int64_t bytes) { (has_begun ? rest : lead).Add(bytes); };
  for (const StageAction::Run& run : action.runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      const Part& part = *run.part;
      const int32_t ops = static_cast<int32_t>(part.ops.size());
      size_t change = 0;
      const RankStrategy::Group* around = nullptr;  // the last one
      int32_t conversions = 0, late = 0;
      for (int32_t op = 0; op <= ops; ++op) {
        if (op < ops && part.ops[op].is_strategy && around != nullptr) {
          for (; late < around->lates; ++late) {
            const RankStrategy::LateAllocation& allocation =
                strategy.late_allocations[around->first_late + late];
            if (allocation.conversions > conversions) break;
            add(allocation.bytes);
          }
          ++conversions;
        }
        if (op < ops && part.ops[op].has_gradients) {
          around = &strategy.first[group++];
          conversions = late = 0;
          add(around->allocates);
        }
        const bool begins = op < ops && part.ops[op].stream == kCompute;
        for (; change < part.memory.size() && part.memory[change].op == op && !part.memory[change].is_after;
             ++change) {
          has_begun |= begins && part.memory[change].bytes > 0;
          add(part.memory[change].bytes);
        }
        has_begun |= begins;
        for (; change < part.memory.size() && part.memory[change].op == op; ++change)
          add(part.memory[change].bytes);
      }
    }
  }
}

// ---- time ------------------------------------------------------------------------------------------------------------

void RankWalk::Reset(const RankStrategy* strategy) {
  host_ = 0;
  ends_ = {};
  history_ = {};
  issued_ = {};
  for (Lane& lane : lanes_) {
    lane.intervals.clear();
    lane.head = 0;
  }
  busy_lanes_ = 0;
  strategy_ = strategy;
  strategy_ends_.assign(strategy == nullptr ? 0 : strategy->ops.size(), 0);
  tail_ = -1;
  ignores_host_ = false;
}

// Whether what was issued is done by `begin`, as far as computation could feel it.
bool RankWalk::IsQuiet(int64_t begin) {
  if (ends_[kTensor] > begin) return false;
  for (uint32_t lanes = busy_lanes_; lanes != 0; lanes &= lanes - 1) {
    const int stream = __builtin_ctz(lanes);
    Lane& lane = lanes_[stream];
    if (!lane.intervals.empty() && lane.intervals.back().end > begin) return false;
    lane.intervals.clear();
    lane.head = 0;
    busy_lanes_ &= ~(1u << stream);
  }
  return true;
}

int64_t RankWalk::Do(const StageAction& action, int64_t arrived) {
  const int64_t begin = std::max(ends_[kCompute], arrived);
  if (!action.is_regular || host_ - begin > action.slack || !IsQuiet(begin))
    return Walk(action, arrived, nullptr, nullptr);
  host_ += action.host;
  ends_[kCompute] = begin + action.duration;
  history_[kCompute][(issued_[kCompute] - 1) % kHistory] = ends_[kCompute];
  return begin + action.made;
}

int64_t RankWalk::DoWithGroups(const StageAction& action, int64_t arrived,
                               const std::vector<RankStrategy::Group>& groups, size_t& group) {
  return Walk(action, arrived, &groups, &group);
}

int64_t RankWalk::Walk(const StageAction& action, int64_t arrived,
                       const std::vector<RankStrategy::Group>* groups, size_t* group) {
  int64_t made = 0;
  int32_t number = 0;
  // What comes up to the first computation waits for messages.
  int64_t after = arrived;
  for (const StageAction::Run& run : action.runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      for (const TimedOp& op : run.part->ops) {
        if (groups == nullptr) {
          const int64_t end = Issue(op, after);
          if (op.stream == kCompute) after = 0;
          if (!op.is_strategy && number++ == action.made_at) made = end;
          continue;
        }
        if (op.is_strategy) continue;
        const RankStrategy::Group* around = op.has_gradients ? &(*groups)[(*group)++] : nullptr;
        if (around != nullptr)
          for (int32_t s = around->begin; s < around->marker; ++s) Issue(s, std::exchange(after, 0));
        const int64_t end = Issue(op, after);
        if (op.stream == kCompute) after = 0;
        if (number++ == action.made_at) made = end;
        if (around == nullptr) continue;
        strategy_ends_[around->marker] = end;
        for (int32_t s = around->marker + 1; s < around->end; ++s) Issue(s, 0);
      }
    }
  }
  return made;
}

int64_t RankWalk::Issue(const TimedOp& op, int64_t arrived) {
  host_ += op.host;
  int64_t start = std::max(ends_[op.stream], arrived);
  for (int i = 0; i < op.dependency_count; ++i) {
    const TimedOp::Dependency& dependency = op.dependencies[i];
    start = std::max(
        start, history_[dependency.stream][(issued_[dependency.stream] - 1 - dependency.back) % kHistory]);
  }
  if (ignores_host_) slack_ = std::min(slack_, start - host_);
  else start = std::max(start, host_);
  const int64_t end = Begin(op.stream, op.work, op.efficiency, start);
  return end;
}

int64_t RankWalk::ArrivalOf(const StrategyOp& op) const {
  int64_t start = std::max(host_, ends_[op.stream]);
  for (int32_t i = 0; i < op.dependencies; ++i)
    start = std::max(start, strategy_ends_[strategy_->dependencies[op.first_dependency + i]]);
  return start;
}

void RankWalk::Issue(int32_t index, int64_t arrived) {
  const StrategyOp& op = strategy_->ops[index];
  host_ += op.host;
  const int64_t start = std::max(ArrivalOf(op), arrived);
  strategy_ends_[index] = Begin(op.stream, op.work, op.efficiency, start);
}

// Runs an operator that begins at `start`; when it ends.
int64_t RankWalk::Begin(uint8_t stream, int64_t work, double efficiency, int64_t start) {
  const int64_t end = stream == kCompute ? KernelEnd(start, work) : start + work;
  ends_[stream] = end;
  if (stream <= kTensor) history_[stream][issued_[stream]++ % kHistory] = end;
  if (stream != kCompute && efficiency < 1 && work > 0) {
    Lane& lane = lanes_[stream];
    busy_lanes_ |= 1u << stream;
    // One that follows without a gap changes nothing for what runs beside it.
    if (!lane.intervals.empty() && lane.intervals.back().end == start &&
        lane.intervals.back().efficiency == efficiency)
      lane.intervals.back().end = end;
    else lane.intervals.push_back({start, end, efficiency});
  }
  return end;
}

int64_t RankWalk::KernelEnd(int64_t start, int64_t work) {
  int64_t now = start, remaining = work;
  while (busy_lanes_ != 0) {
    double speed = 1;
    int64_t change = kNever;
    for (uint32_t lanes = busy_lanes_; lanes != 0; lanes &= lanes - 1) {
      const int stream = __builtin_ctz(lanes);
      Lane& lane = lanes_[stream];
      while (lane.head < lane.intervals.size() && lane.intervals[lane.head].end <= now) ++lane.head;
      if (lane.head == lane.intervals.size()) {
        lane.intervals.clear();
        lane.head = 0;
        busy_lanes_ &= ~(1u << stream);
        continue;
      }
      const Interval& interval = lane.intervals[lane.head];
      if (interval.start > now) {
        change = std::min(change, interval.start);
      } else {
        speed *= interval.efficiency;
        change = std::min(change, interval.end);
      }
    }
    const int64_t end = now + TimeFor(remaining, speed);
    if (end <= change) return end;
    remaining = std::max<int64_t>(remaining - WorkDone(change - now, speed), 0);
    now = change;
  }
  return now + remaining;
}

int64_t RankWalk::End() const { return std::max(host_, *std::max_element(ends_.begin(), ends_.end())); }

// ---- the tail --------------------------------------------------------------------------------------------------------

int32_t RankWalk::RunTail(int64_t sends_arrived, int64_t& arrival) {
  const int32_t size = static_cast<int32_t>(strategy_->ops.size());
  if (tail_ < 0) tail_ = strategy_->after_backwards;
  for (; tail_ < size; ++tail_) {
    const StrategyOp& op = strategy_->ops[tail_];
    const bool waits = tail_ >= strategy_->sends_from && tail_ <= strategy_->sends_awaited;
    if (op.meets_ranks) {
      host_ += op.host;
      arrival = ArrivalOf(op);
      if (waits) arrival = std::max(arrival, sends_arrived);
      return tail_;
    }
    if (op.stream == kCopies) {
      int32_t end = tail_;
      while (end < size && !strategy_->ops[end].meets_ranks) ++end;
      RunAlone(tail_, end);
      tail_ = end - 1;
      continue;
    }
    Issue(tail_, waits ? sends_arrived : 0);
  }
  return -1;
}

void RankWalk::Met(int32_t op, int64_t start) {
  const StrategyOp& met = strategy_->ops[op];
  strategy_ends_[op] = Begin(met.stream, met.work, met.efficiency, start);
  tail_ = op + 1;
}

// Operators [begin, end), with kernels on two queues, which share the device evenly: event by event.
void RankWalk::RunAlone(int32_t begin, int32_t end) {
  struct Queue {
    std::vector<int32_t> ops;
    size_t next = 0;
    bool in_flight = false;
    int64_t remaining = 0, since = 0, finish = 0;
    double speed = 0;
    uint64_t order = 0;  // of events at one instant: as they were scheduled
  };
  std::array<Queue, kLocalStreams> queues;
  std::vector<int64_t> issue(static_cast<size_t>(end - begin));
  std::vector<bool> done(static_cast<size_t>(end - begin));
  uint64_t order = 0;
  for (int32_t i = begin; i < end; ++i) {
    const StrategyOp& op = strategy_->ops[i];
    host_ += op.host;
    issue[i - begin] = host_;
    queues[op.stream].ops.push_back(i);
  }
  int64_t now = kNever;
  const auto arrival_of = [&](const Queue& queue, int stream) {
    const int32_t index = queue.ops[queue.next];
    const StrategyOp& op = strategy_->ops[index];
    int64_t at = std::max(issue[index - begin], ends_[stream]);
    for (int32_t i = 0; i < op.dependencies; ++i) {
      const int32_t dependency = strategy_->dependencies[op.first_dependency + i];
      if (dependency >= begin && !done[dependency - begin]) return kNever;
      at = std::max(at, strategy_ends_[dependency]);
    }
    return at;
  };
  const auto update_speeds = [&] {
    int kernels = 0;
    double efficiency = 1;
    for (int stream = 0; stream < kLocalStreams; ++stream) {
      const Queue& queue = queues[stream];
      const bool is_kernel = stream == kCompute || stream == kCopies;
      if (queue.in_flight && is_kernel) ++kernels;
      if (queue.in_flight && !is_kernel) efficiency *= strategy_->ops[queue.ops[queue.next]].efficiency;
      for (const Interval& interval : lanes_[stream].intervals)
        if (interval.start <= now && now < interval.end) efficiency *= interval.efficiency;
    }
    for (int stream = 0; stream < kLocalStreams; ++stream) {
      Queue& queue = queues[stream];
      if (!queue.in_flight) continue;
      const bool is_kernel = stream == kCompute || stream == kCopies;
      const double speed = is_kernel ? efficiency / kernels : 1;
      if (queue.speed == speed) continue;
      queue.remaining = std::max<int64_t>(queue.remaining - WorkDone(now - queue.since, queue.speed), 0);
      queue.since = now;
      queue.speed = speed;
      queue.finish = now + TimeFor(queue.remaining, speed);
      queue.order = order++;
    }
  };
  for (int stream = 0; stream < kLocalStreams; ++stream)
    if (!queues[stream].ops.empty()) now = std::min(now, arrival_of(queues[stream], stream));
  for (;;) {
    // What begins now.
    for (int stream = 0; stream < kLocalStreams; ++stream) {
      Queue& queue = queues[stream];
      if (queue.in_flight || queue.next == queue.ops.size() || arrival_of(queue, stream) > now) continue;
      queue.in_flight = true;
      queue.remaining = strategy_->ops[queue.ops[queue.next]].work;
      queue.since = now;
      queue.speed = 0;
    }
    update_speeds();
    // What comes next.
    int64_t next = kNever;
    int finishing = -1;
    for (int stream = 0; stream < kLocalStreams; ++stream) {
      const Queue& queue = queues[stream];
      if (queue.in_flight) {
        const bool is_earlier = queue.finish < next || (queue.finish == next && finishing >= 0 &&
                                                        queue.order < queues[finishing].order);
        if (!is_earlier && !(queue.finish == next && finishing < 0)) continue;
        next = queue.finish;
        finishing = stream;
      } else if (queue.next < queue.ops.size()) {
        const int64_t at = arrival_of(queue, stream);
        if (at > now && at < next) {
          next = at;
          finishing = -1;
        }
      }
      for (const Interval& interval : lanes_[stream].intervals) {
        for (int64_t at : {interval.start, interval.end}) {
          if (at > now && at < next) {
            next = at;
            finishing = -1;
          }
        }
      }
    }
    if (next == kNever) break;
    now = next;
    if (finishing < 0) continue;
    Queue& queue = queues[finishing];
    const int32_t index = queue.ops[queue.next++];
    queue.in_flight = false;
    done[index - begin] = true;
    strategy_ends_[index] = ends_[finishing] = now;
  }
  for (const Queue& queue : queues) WT_CHECK_EQ(queue.next, queue.ops.size());
}

}  // namespace windtunnel::composed
