#include "sim/composed/rank_walk.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/time_for.h"

namespace windtunnel::composed {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

int32_t EndOfStretch(const RankStrategy& strategy, int32_t begin) {
  const auto meets = std::find_if(strategy.ops.begin() + begin, strategy.ops.end(),
                                  [](const StrategyOp& op) { return op.meets_ranks; });
  return static_cast<int32_t>(meets - strategy.ops.begin());
}

// Whether all operators [begin, end) wait for the last kernel of the tail before them, directly or through
// other operators.
bool FollowsKernels(const RankStrategy& strategy, int32_t begin, int32_t end) {
  int32_t last = begin - 1;
  while (last >= strategy.after_backwards && strategy.ops[last].stream != kCompute) --last;
  if (last < strategy.after_backwards) return false;
  std::array<bool, kLocalStreams> has_begun{};
  has_begun[kCompute] = true;
  for (int32_t i = begin; i < end; ++i) {
    const StrategyOp& op = strategy.ops[i];
    const int32_t* dependencies = strategy.dependencies.data() + op.first_dependency;
    const bool waits = std::any_of(dependencies, dependencies + op.dependencies,
                                   [&](int32_t on) { return on == last || on >= begin; });
    if (!waits && !has_begun[op.stream]) return false;
    has_begun[op.stream] = true;
  }
  return true;
}

}  // namespace

void RunCopiesAhead(RankStrategy& strategy) {
  const auto size = static_cast<int32_t>(strategy.ops.size());
  for (int32_t begin = strategy.after_backwards; begin < size; ++begin) {
    if (strategy.ops[begin].stream != kCopies || strategy.ops[begin].meets_ranks) continue;
    const int32_t end = EndOfStretch(strategy, begin);
    RankStrategy::Stretch stretch;
    stretch.begin = begin;
    if (FollowsKernels(strategy, begin, end)) {
      int64_t host = 0;
      for (int32_t i = begin; i < end; ++i) host -= strategy.ops[i].host;
      std::vector<int64_t> op_ends(strategy.ops.size());
      SharedDevice(strategy, begin, end, host, 0, Lanes(), stretch.queue_ends, op_ends).Run();
      stretch.op_ends.assign(op_ends.begin() + begin, op_ends.begin() + end);
      strategy.copies.push_back(std::move(stretch));
    }
    begin = end - 1;
  }
}

void RankWalk::Reset(const RankStrategy* strategy) {
  host_ = 0;
  ends_ = {};
  history_ = {};
  issued_ = {};
  flights_end_ = 0;
  beside_ = {};
  for (int stream = 0; stream < kLocalStreams; ++stream) Clear(stream);
  Adopt(strategy);
  tail_ = -1;
  ignores_host_ = false;
  is_idle_ = false;
  gathered_ahead_ = 0;
  for (int32_t s = 0; strategy != nullptr && s < strategy->opening; ++s) Issue(s, 0);
}

void RankWalk::Adopt(const RankStrategy* strategy) {
  strategy_ = strategy;
  strategy_ends_.assign(strategy == nullptr ? 0 : strategy->ops.size(), 0);
  unreduced_ = strategy == nullptr ? 0 : strategy->reductions.size();
}

void RankWalk::AwaitAll(int64_t arrived) {
  host_ = std::max(End(), arrived);
  ClearAll();
  is_idle_ = true;
}

void RankWalk::ClearAll() {
  for (uint32_t lanes = busy_lanes_; lanes != 0; lanes &= lanes - 1) Clear(__builtin_ctz(lanes));
}

void RankWalk::Clear(int stream) {
  lanes_[stream].flights.clear();
  lanes_[stream].head = 0;
  busy_lanes_ &= ~(1u << stream);
}

// Whether no communication that slows kernels down, of what was issued so far, is in flight from `begin` on.
bool RankWalk::IsAlone(int64_t begin) {
  if (begin < flights_end_) return false;
  if (busy_lanes_ != 0) ClearAll();
  return true;
}

// Whether everything issued so far that could affect computation is done by `begin`.
bool RankWalk::IsQuiet(int64_t begin) {
  for (int stream = kTensor; stream < kModelStreams; ++stream)
    if (ends_[stream] > begin) return false;
  return IsAlone(begin);
}

namespace {

std::vector<const TimedOp*> OpsOf(const StageAction& action) {
  std::vector<const TimedOp*> ops;
  for (const PartRun& run : action.runs)
    for (int64_t i = 0; i < run.count; ++i)
      for (const TimedOp& op : run.part->ops) ops.push_back(&op);
  return ops;
}

}  // namespace

int64_t RankWalk::Do(const StageAction& action, int64_t arrived) {
  if (std::exchange(is_idle_, false) && action.is_regular_from_idle) {
    const int64_t begin = std::exchange(host_, host_ + action.host_from_idle);
    ends_[kCompute] = begin + action.duration_from_idle;
    history_[kCompute][(issued_[kCompute] - 1) % kHistory] = ends_[kCompute];
    return begin + action.made_from_idle;
  }
  const int64_t begin = std::max(ends_[kCompute], arrived);
  if (!action.is_regular || host_ - begin > action.slack || !IsQuiet(begin)) return Walk(action, arrived);
  host_ += action.host;
  ends_[kCompute] = begin + action.duration;
  history_[kCompute][(issued_[kCompute] - 1) % kHistory] = ends_[kCompute];
  return begin + action.made;
}

// Includes the operators of the template's strategy.
int64_t RankWalk::Walk(const StageAction& action, int64_t arrived) {
  int64_t made = 0;
  int32_t number = 0;
  for (const PartRun& run : action.runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      for (const TimedOp& op : run.part->ops) {
        const int64_t end = Issue(op, arrived);
        if (op.stream == kCompute) arrived = 0;  // everything up to the first computation waits for messages
        else if (op.gathers_message) arrived = end;
        if (!op.is_strategy && number++ == action.made_at) made = end;
      }
    }
  }
  Await(arrived);
  return made;
}

void RankWalk::Await(int64_t arrived) {
  ends_[kCompute] = std::max(ends_[kCompute], arrived);
  history_[kCompute][(issued_[kCompute] - 1) % kHistory] = ends_[kCompute];
}

// Includes the operators of the rank's strategy instead.
int64_t RankWalk::DoWithGroups(const StageAction& action, int64_t arrived,
                               const std::vector<RankStrategy::Group>& groups, size_t& group) {
  is_idle_ = false;
  int64_t made = 0;
  int32_t number = 0;
  for (const PartRun& run : action.runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      for (const TimedOp& op : run.part->ops) {
        if (op.is_strategy) continue;
        const RankStrategy::Group* around = op.has_gradients ? &groups[group++] : nullptr;
        for (int32_t s = around ? around->begin : 0; around && s < around->marker; ++s)
          Issue(s, std::exchange(arrived, 0));
        const int64_t end = Issue(op, arrived);
        if (op.stream == kCompute) arrived = 0;
        else if (op.gathers_message) arrived = end;
        if (number++ == action.made_at) made = end;
        if (around == nullptr) continue;
        strategy_ends_[around->marker] = end;
        for (int32_t s = around->marker + 1; s < around->end; ++s) Issue(s, 0);
      }
    }
  }
  if (group > 0) FollowComputation(groups[group - 1]);
  Await(arrived);
  return made;
}

// What the strategy issues behind the pass waits for the pass's last computation, which in the strategy's
// operators is the last that there is in `last`.
void RankWalk::FollowComputation(const RankStrategy::Group& last) {
  int32_t op = last.end - 1;
  while (op > last.marker && strategy_->ops[op].stream != kCompute) --op;
  strategy_ends_[op] = ends_[kCompute];
}

void RankWalk::Reduce(size_t stage) {
  while (unreduced_ > stage) {
    const RankStrategy::Reduction& reduction = strategy_->reductions[--unreduced_];
    for (int32_t s = reduction.begin; s < reduction.end; ++s) {
      is_idle_ = false;
      Issue(s, 0);
    }
  }
}

int64_t RankWalk::DoWithValues(const StageAction& action, int64_t arrived, size_t& group) {
  is_idle_ = false;
  Course course{.has_values = true, .arrived = arrived};
  for (const TimedOp* op : OpsOf(action)) Issue(*op, action, group, course);
  return course.made;
}

// What the host issues between two of its waits runs beside operators that were issued before the first wait
// and have not ended. So the gathers in between are issued before the rest.
int64_t RankWalk::DoHeld(const StageAction& action, int64_t arrived, bool has_values, size_t& group,
                         std::span<const LaterForward> later) {
  is_idle_ = false;
  const std::vector<const TimedOp*> ops = OpsOf(action);
  const auto last_hold =
      std::find_if(ops.rbegin(), ops.rend(), [](const TimedOp* op) { return op->holds_host; });
  const size_t behind_holds = static_cast<size_t>(ops.rend() - last_hold);
  Course course{.has_values = has_values, .arrived = arrived};
  const bool has_begun = has_values && gathered_ahead_ > 0;
  if (has_begun) --gathered_ahead_;
  for (size_t i = 0; i < ops.size(); ++i) {
    const std::span<const TimedOp* const> left = std::span(ops).subspan(i);
    const bool goes_on = i == 0 ? !has_begun : ops[i - 1]->holds_host;
    if (goes_on && has_values) {
      const int64_t host = host_;
      GatherUntilHeld(left, group);
      host_ = host;
    }
    if (i == behind_holds && !later.empty()) GatherForLater(left, has_values, group, later);
    Issue(*ops[i], action, group, course);
  }
  return course.made;
}

void RankWalk::GatherForLater(std::span<const TimedOp* const> left, bool has_values, size_t group,
                              std::span<const LaterForward> later) {
  const int64_t host = host_;
  for (const TimedOp* op : left) {
    if (has_values && op->has_values) TakeValues(group);
    host_ += op->host;
  }
  for (const LaterForward& next : later) {
    host_ += next.host;
    group = GatherUntilHeld(OpsOf(*next.forward), group);
  }
  host_ = host;
  gathered_ahead_ += later.size();
}

size_t RankWalk::GatherUntilHeld(std::span<const TimedOp* const> ops, size_t group) {
  for (const TimedOp* op : ops) {
    if (op->has_values) {
      const RankStrategy::Group& before = strategy_->values[group++];
      for (int32_t s = before.begin; s < before.marker; ++s) Issue(s, 0);
    }
    host_ += op->host;
    if (op->holds_host) break;
  }
  return group;
}

int64_t RankWalk::GatherAhead(const StageAction& action, int64_t host, size_t& group) {
  const int64_t own = std::exchange(host_, host);
  group = GatherUntilHeld(OpsOf(action), group);
  return std::exchange(host_, own);
}

int64_t RankWalk::TakeValues(size_t& group) {
  const RankStrategy::Group& before = strategy_->values[group++];
  for (int32_t s = before.begin; s < before.marker; ++s) host_ += strategy_->ops[s].host;
  return EndOfDependencies(strategy_->ops[before.marker]);
}

void RankWalk::Issue(const TimedOp& op, const StageAction& action, size_t& group, Course& course) {
  if (course.has_values && op.has_values) course.gathered = std::max(course.gathered, TakeValues(group));
  const int64_t end = Issue(op, std::max(course.arrived, course.gathered));
  if (op.stream == kCompute) course.arrived = course.gathered = 0;
  else if (op.gathers_message) course.arrived = end;
  if (!op.is_strategy && course.number++ == action.made_at) course.made = end;
}

RankWalk::Rehearsed RankWalk::Rehearse(const StageAction& action, bool ignores_host) {
  RankWalk walk;
  walk.ignores_host_ = ignores_host;
  walk.slack_ = kNever;
  const int64_t made = walk.Walk(action, 0);
  Rehearsed rehearsed{.made = made, .slack = walk.slack_, .host = walk.host_};
  for (int stream = 0; stream < kModelStreams; ++stream) {
    rehearsed.ends[stream] = walk.ends_[stream];
    rehearsed.is_used[stream] = walk.issued_[stream] > 0;
  }
  return rehearsed;
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
  const int64_t end = Begin(op, op.beside_communication, start);
  if (op.holds_host && !ignores_host_) host_ = std::max(host_, end);
  return end;
}

int64_t RankWalk::ArrivalOf(const StrategyOp& op) const {
  return std::max({host_, ends_[op.stream], EndOfDependencies(op)});
}

int64_t RankWalk::EndOfDependencies(const StrategyOp& op) const {
  int64_t end = 0;
  for (int32_t i = 0; i < op.dependencies; ++i)
    end = std::max(end, strategy_ends_[strategy_->dependencies[op.first_dependency + i]]);
  return end;
}

void RankWalk::Issue(int32_t index, int64_t arrived) {
  const StrategyOp& op = strategy_->ops[index];
  host_ += op.host;
  const int64_t start = std::max(ArrivalOf(op), arrived);
  strategy_ends_[index] = Begin(op, 0, start);
}

// Runs an operator (a TimedOp or a StrategyOp) that begins at `start`. Returns when it ends. `own_speed`:
// KernelCost's beside_communication.
template <typename AnyOp>
int64_t RankWalk::Begin(const AnyOp& op, double own_speed, int64_t start) {
  const int64_t end =
      op.stream != kCompute || IsAlone(start) ? start + op.work : KernelEnd(start, op.work, own_speed);
  ends_[op.stream] = end;
  if (op.stream < kModelStreams) history_[op.stream][issued_[op.stream]++ % kHistory] = end;
  if (op.stream != kCompute && op.efficiency < 1 && op.work > 0) {
    Lane& lane = lanes_[op.stream];
    busy_lanes_ |= 1u << op.stream;
    // For kernels beside it, communication with equal effects that follows without a gap is the same flight.
    if (!lane.flights.empty() && lane.flights.back().end == start &&
        lane.flights.back().efficiency == op.efficiency &&
        lane.flights.back().holds_multiprocessors == op.holds_multiprocessors)
      lane.flights.back().end = end;
    else lane.flights.push_back({start, end, op.efficiency, op.holds_multiprocessors});
    flights_end_ = std::max(flights_end_, end);
    beside_ = {};
  }
  return end;
}

// The speed of a kernel from `now` on, until `change`.
double RankWalk::SpeedAt(int64_t now, double own_speed, int64_t& change) {
  if (now < beside_.begin || now >= beside_.end) FindBeside(now);
  change = beside_.end;
  return beside_.holds && own_speed > 0 ? std::min(own_speed, beside_.speed) : beside_.speed;
}

void RankWalk::FindBeside(int64_t now) {
  beside_ = {.begin = now, .end = kNever, .speed = 1};
  for (uint32_t lanes = busy_lanes_; lanes != 0; lanes &= lanes - 1) {
    const int stream = __builtin_ctz(lanes);
    Lane& lane = lanes_[stream];
    while (lane.head < lane.flights.size() && lane.flights[lane.head].end <= now) ++lane.head;
    if (lane.head == lane.flights.size()) {
      Clear(stream);
      continue;
    }
    const Lane::Flight& flight = lane.flights[lane.head];
    if (flight.start <= now) {
      beside_.speed *= flight.efficiency;
      beside_.holds |= flight.holds_multiprocessors;
    }
    beside_.end = std::min(beside_.end, flight.start > now ? flight.start : flight.end);
  }
}

int64_t RankWalk::KernelEnd(int64_t start, int64_t work, double own_speed) {
  int64_t now = start;
  auto remaining = static_cast<double>(work);  // picoseconds at speed 1
  while (busy_lanes_ != 0) {
    int64_t change = kNever;
    const double speed = SpeedAt(now, own_speed, change);
    const int64_t end = now + TimeFor(remaining, speed).picoseconds();
    if (end <= change) return end;
    remaining = std::max(remaining - static_cast<double>(change - now) * speed, 0.0);
    now = change;
  }
  return now + TimeFor(remaining, 1).picoseconds();
}

int64_t RankWalk::End() const { return std::max(host_, *std::max_element(ends_.begin(), ends_.end())); }

// ---- the tail ---------------------------------------------------------------------------------------------

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
      tail_ = RunCopies(tail_, sends_arrived) - 1;
      continue;
    }
    Issue(tail_, waits ? sends_arrived : 0);
  }
  return -1;
}

void RankWalk::Met(int32_t op, int64_t start) {
  const StrategyOp& met = strategy_->ops[op];
  strategy_ends_[op] = Begin(met, 0, start);
  tail_ = op + 1;
}

// Runs the tail from `begin`, which is on the copy queue, to the operator where ranks meet, and returns that.
// Uses RankStrategy::copies if the rank is in the state that they hold for.
int32_t RankWalk::RunCopies(int32_t begin, int64_t sends_arrived) {
  const int32_t end = EndOfStretch(*strategy_, begin);
  const int64_t base = ends_[kCompute], from = host_;
  for (int32_t i = begin; i < end; ++i) host_ += strategy_->ops[i].host;
  const auto known = std::find_if(strategy_->copies.begin(), strategy_->copies.end(),
                                  [&](const RankStrategy::Stretch& of) { return of.begin == begin; });
  const bool waits = begin <= strategy_->sends_awaited && end > strategy_->sends_from && sends_arrived > base;
  const bool is_idle =
      !waits && host_ <= base && *std::max_element(ends_.begin(), ends_.end()) <= base && IsQuiet(base);
  if (known == strategy_->copies.end() || !is_idle) {
    SharedDevice(*strategy_, begin, end, from, sends_arrived, lanes_, ends_, strategy_ends_).Run();
    return end;
  }
  for (int32_t i = begin; i < end; ++i)
    strategy_ends_[i] = base + known->op_ends[static_cast<size_t>(i - begin)];
  for (size_t i = 0; i < ends_.size(); ++i)
    if (known->queue_ends[i] > 0) ends_[i] = base + known->queue_ends[i];
  return end;
}

}  // namespace windtunnel::composed
