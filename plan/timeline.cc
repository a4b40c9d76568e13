#include "plan/timeline.h"

#include <algorithm>
#include <functional>

namespace windtunnel {
namespace {

// A stretch of the compute stream's time and its cause: an operator that ran (`waited` false), an operator
// that was waited for, or dispatch (op -1).
struct Stretch {
  Duration length;
  OpIndex op = -1;
  bool waited = false;
};

// When each operator of the program ended on this rank; -1 ps where it has no span.
std::vector<Duration> EndsByOperator(const Timeline& timeline, const Program& program) {
  std::vector<Duration> ends(program.ops.size(), Picoseconds(-1));
  for (const Span& span : timeline.spans) ends[span.op] = span.end;
  return ends;
}

// Splits the gap [from, to) before an operator: until the last awaited operator ends it is waiting for them,
// in order of their ends; the rest is dispatch.
void SplitGap(Duration from, Duration to, std::vector<OpIndex> awaited, const std::vector<Duration>& ends,
              const std::function<void(const Stretch&)>& emit) {
  std::sort(awaited.begin(), awaited.end(),
            [&](OpIndex a, OpIndex b) { return ends[a] != ends[b] ? ends[a] < ends[b] : a < b; });
  for (OpIndex op : awaited) {
    const Duration until = std::min(ends[op], to);
    if (until <= from) continue;
    emit({until - from, op, true});
    from = until;
  }
  if (to > from) emit({to - from, -1, false});
}

}  // namespace

void AwaitedOnIssue::Until(OpIndex op, std::vector<OpIndex>& awaited) {
  for (; next_ < op; ++next_) {
    const Op& passed = program_.ops[next_];
    if (!std::holds_alternative<HostWait>(passed.kind)) continue;
    for (const OpIndex dependency : passed.dependencies) awaited.push_back(dependency);
  }
}

namespace {

// Calls `emit` for every stretch of the compute stream, in order; the lengths add up to timeline.end.
void ForEachStretch(const Timeline& timeline, const Role& role, const Program& program,
                    const std::function<void(const Stretch&)>& emit) {
  const std::vector<Duration> ends = EndsByOperator(timeline, program);
  auto on_compute = [&](StreamId stream) {
    const StreamKind kind = role.streams[stream].kind;
    return timeline.host_computes ? kind != StreamKind::kCommunication : kind == StreamKind::kCompute;
  };
  Duration now;
  AwaitedOnIssue by_host(program);
  for (const Span& span : timeline.spans) {
    if (!on_compute(span.stream)) continue;
    std::vector<OpIndex> awaited = program.ops[span.op].dependencies;
    by_host.Until(span.op, awaited);
    std::erase_if(awaited, [&](OpIndex op) { return on_compute(program.ops[op].stream); });
    SplitGap(now, span.start, std::move(awaited), ends, emit);
    emit({span.end - std::max(span.start, now), span.op, false});
    now = span.end;
  }
  std::vector<OpIndex> tail;
  for (const Span& span : timeline.spans) {
    if (!on_compute(span.stream) && span.end > now) tail.push_back(span.op);
  }
  SplitGap(now, timeline.end, std::move(tail), ends, emit);
}

}  // namespace

namespace {

// Whether it is part of StepBreakdown::communication.
bool Counts(const OpKind& kind) {
  const auto* collective = std::get_if<Collective>(&kind);
  const bool is_barrier = collective != nullptr && collective->kind == CollectiveKind::kBarrier;
  return !is_barrier && !std::holds_alternative<Receive>(kind);
}

constexpr Duration StepBreakdown::*kParts[] = {
    &StepBreakdown::step,   &StepBreakdown::compute, &StepBreakdown::exposed_communication,
    &StepBreakdown::bubble, &StepBreakdown::host,    &StepBreakdown::communication};

}  // namespace

void BreakdownMean::Add(const StepBreakdown& breakdown, int64_t ranks) {
  for (size_t i = 0; i < std::size(kParts); ++i)
    sums_[i] += static_cast<Wide>((breakdown.*kParts[i]).picoseconds()) * ranks;
  ranks_ += ranks;
}

StepBreakdown BreakdownMean::Mean() const {
  StepBreakdown mean;
  for (size_t i = 0; i < std::size(kParts); ++i)
    mean.*kParts[i] = Picoseconds(static_cast<int64_t>(sums_[i] / ranks_));
  return mean;
}

StepBreakdown BreakDown(const Timeline& timeline, const Role& role, const Program& program) {
  StepBreakdown result;
  result.step = timeline.end;
  ForEachStretch(timeline, role, program, [&](const Stretch& stretch) {
    if (stretch.op < 0) {
      result.host += stretch.length;
    } else if (!stretch.waited) {
      result.compute += stretch.length;
    } else if (role.streams[program.ops[stretch.op].stream].between_stages) {
      result.bubble += stretch.length;
    } else {
      result.exposed_communication += stretch.length;
    }
  });
  for (const Span& span : timeline.spans) {
    const StreamKind kind = role.streams[span.stream].kind;
    const bool moves =
        kind == StreamKind::kCommunication || (kind == StreamKind::kCopy && !timeline.host_computes);
    if (moves && Counts(program.ops[span.op].kind)) result.communication += span.end - span.start;
  }
  return result;
}

std::vector<RankBreakdown> BreakDown(const Plan& plan, const std::vector<Timeline>& timelines) {
  std::vector<RankBreakdown> breakdowns;
  for (const Timeline& timeline : timelines) {
    const Role& role = plan.RoleOf(timeline.rank);
    breakdowns.push_back({timeline.rank, timeline.stands_for, BreakDown(timeline, role, role.steady)});
  }
  return breakdowns;
}

StepBreakdown MeanOf(const std::vector<RankBreakdown>& breakdowns) {
  BreakdownMean mean;
  for (const RankBreakdown& breakdown : breakdowns) mean.Add(breakdown.parts, breakdown.stands_for);
  return mean.Mean();
}

void ScaleMeanTo(Duration step, std::vector<RankBreakdown>& breakdowns) {
  const Duration mean = MeanOf(breakdowns).step;
  if (mean == step || mean <= Duration()) return;
  for (RankBreakdown& breakdown : breakdowns)
    for (Duration StepBreakdown::*part : kParts)
      breakdown.parts.*part = (breakdown.parts.*part).Scaled(step / mean);
}

std::map<std::string, Duration> AttributeTime(const Timeline& timeline, const Role& role,
                                              const Program& program) {
  std::map<std::string, Duration> result;
  ForEachStretch(timeline, role, program, [&](const Stretch& stretch) {
    std::string name = "dispatch";
    if (stretch.op >= 0) name = OperatorName(program.ops[stretch.op].kind);
    if (stretch.waited) name = "wait " + name;
    result[name] += stretch.length;
  });
  return result;
}

void MemoryPeak::Include(const MemoryPeak& later) {
  if (later.allocated > allocated) {
    allocated = later.allocated;
    std::copy(std::begin(later.by_category), std::end(later.by_category), by_category);
  }
  if (later.host_allocated > host_allocated) {
    host_allocated = later.host_allocated;
    std::copy(std::begin(later.host_by_category), std::end(later.host_by_category), host_by_category);
  }
  if (later.reserved > reserved) {
    reserved = later.reserved;
    allocated_at_reserved = later.allocated_at_reserved;
  } else if (later.reserved == reserved) {
    allocated_at_reserved = std::max(allocated_at_reserved, later.allocated_at_reserved);
  }
  requested = std::max(requested, later.requested);
  largest_unserved = later.largest_unserved;
  retries = later.retries;
}

}  // namespace windtunnel
