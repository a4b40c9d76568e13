#include "reports/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/format.h"
#include "plan/program_graph.h"
#include "reports/communication.h"
#include "reports/critical_path.h"
#include "reports/pipeline_actions.h"
#include "reports/words.h"

namespace windtunnel {
namespace {

constexpr size_t kListedCommunications = 40;
constexpr size_t kListedStretches = 40;  // of the critical path

std::string Share(Duration part, Duration whole) {
  return fmt::format("{:>8}", FormatPercent(ShareOf(part, whole)));
}

// "all_reduce bucket 1"; where the operator's name is that of its kind, it appears once.
std::string Label(const Op& op) {
  std::string name(OperatorName(op.kind));
  return op.name.empty() || op.name == name ? name : name + " " + op.name;
}

// Busy time of the first rank's compute stream by phase, in the order of the step, and by operator within a
// phase.
std::string TimeByPhase(const Plan& plan, const Timeline& timeline, Ink ink) {
  const Program& program = plan.RoleOf(timeline.rank).steady;
  std::map<Phase, std::map<std::string, Duration>> phases;
  for (const Span& span : timeline.spans)
    if (span.stream == kComputeStream) {
      const Op& op = program.ops.at(span.op);
      phases[op.phase][std::string(OperatorName(op.kind))] += span.end - span.start;
    }
  std::string text = "\n" + ink.Bold(fmt::format("computing, rank {}", timeline.rank)) + "\n";
  for (const auto& [phase, operators] : phases) {
    Duration total;
    std::vector<std::pair<std::string, Duration>> rows(operators.begin(), operators.end());
    for (const auto& [name, time] : rows) total += time;
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    text += fmt::format("  {:<28}{:>12}{}\n", Name(phase), FormatDuration(total), Share(total, timeline.end));
    for (const auto& [name, time] : rows)
      text += fmt::format("    {:<26}{:>12}{}\n", name, FormatDuration(time), Share(time, timeline.end));
  }
  return text;
}

// The longest chain of the program graph with the predicted times of the operators: without waiting, dispatch
// and shared resources.
std::string DescribeLongestPath(const Plan& plan, const Timeline& timeline) {
  const Program& program = plan.RoleOf(timeline.rank).steady;
  std::vector<Duration> lengths(program.ops.size());
  for (const Span& span : timeline.spans) lengths[span.op] = span.end - span.start;
  Duration length = ProgramGraph(program).CriticalPath(lengths).length;
  return fmt::format("  the program's longest path alone takes {} ({:.1f} % of the step)\n",
                     FormatDuration(length), 100 * (length / timeline.end));
}

// A segment of the critical path in words. `kind`: where it ran and what kind of operator it was. `name`:
// which one, for communication.
struct PathLabel {
  std::string kind, name;
};

PathLabel LabelOf(const Plan& plan, const PathSegment& segment) {
  if (segment.op < 0) return {};
  const Role& role = plan.RoleOf(segment.rank);
  const Op& op = role.steady.ops[segment.op];
  Action action;
  if (plan.pipeline && ActionLookup(plan, plan.mesh.PlaceOf(segment.rank).pipeline).Find(op, action))
    return {fmt::format("rank {}: {}", segment.rank, FormatAction(action)), ""};
  const std::string where = fmt::format("rank {} {}: ", segment.rank, role.streams[op.stream].name);
  if (!IsCommunication(op.kind)) return {where + std::string(Name(op.phase)), ""};
  const std::string kind(OperatorName(op.kind));
  return {where + kind, op.name == kind ? "" : op.name};
}

struct PathStretch {
  std::string kind, first, last;  // of its operators
  Duration start, end, dispatch;
  int operators = 0;

  // "rank 0 data: all_gather bucket 3 … bucket 0"
  std::string Text() const {
    return kind + (first.empty() ? "" : " " + first) + (last == first ? "" : " … " + last);
  }
};

// Neighbours of one kind are one stretch; gaps belong to the stretch before them.
std::vector<PathStretch> Stretches(const Plan& plan, const std::vector<PathSegment>& path) {
  std::vector<PathStretch> stretches;
  for (const PathSegment& segment : path) {
    const PathLabel label = LabelOf(plan, segment);
    const bool is_gap = segment.op < 0;
    // A gap before the first operator waits for its label.
    const bool waits = !stretches.empty() && stretches.back().kind.empty();
    if (stretches.empty() || (!is_gap && !waits && stretches.back().kind != label.kind))
      stretches.push_back({label.kind, label.name, label.name, segment.start, segment.end, {}});
    PathStretch& stretch = stretches.back();
    if (!is_gap && waits) {
      stretch.kind = label.kind;
      stretch.first = label.name;
    }
    stretch.end = segment.end;
    if (is_gap) {
      stretch.dispatch += segment.end - segment.start;
    } else {
      stretch.last = label.name;
      ++stretch.operators;
    }
  }
  return stretches;
}

// Consecutive stretches: a cycle of kinds, `repeats` times in a row.
struct PathCycle {
  size_t begin = 0, length = 1, repeats = 1;

  size_t end() const { return begin + length * repeats; }
};

// The cycle at `begin` that covers the most stretches, and the shortest of those; a single stretch if no cycle
// repeats at least three times. A stretch repeats another if both have the same kind and number of operators.
PathCycle CycleAt(const std::vector<PathStretch>& stretches, size_t begin) {
  constexpr size_t kLongest = 8, kFewestRepeats = 3;
  const auto repeats = [&](size_t i, size_t length) {
    return i + length < stretches.size() && stretches[i].kind == stretches[i + length].kind &&
           stretches[i].operators == stretches[i + length].operators;
  };
  PathCycle best{begin};
  for (size_t length = 1; length <= kLongest; ++length) {
    size_t alike = 0;
    while (repeats(begin + alike, length)) ++alike;
    const PathCycle cycle{begin, length, 1 + alike / length};
    if (cycle.repeats >= kFewestRepeats && cycle.end() > best.end()) best = cycle;
  }
  return best;
}

// All of a cycle as one: "79 × (rank 0 compute: backward, rank 0 compute: recompute)".
PathStretch Joined(const std::vector<PathStretch>& stretches, const PathCycle& cycle) {
  if (cycle.repeats == 1) return stretches[cycle.begin];
  PathStretch joined;
  joined.start = stretches[cycle.begin].start;
  joined.end = stretches[cycle.end() - 1].end;
  std::vector<std::string> kinds;
  for (size_t i = cycle.begin; i < cycle.end(); ++i) {
    joined.dispatch += stretches[i].dispatch;
    joined.operators += stretches[i].operators;
    if (i >= cycle.begin + cycle.length) continue;
    PathStretch all = stretches[i];
    all.last = stretches[i + cycle.length * (cycle.repeats - 1)].last;
    kinds.push_back(all.Text());
  }
  joined.kind = fmt::format("{} × ({})", cycle.repeats, fmt::join(kinds, ", "));
  return joined;
}

std::vector<PathStretch> WithCyclesJoined(const std::vector<PathStretch>& stretches) {
  std::vector<PathStretch> joined;
  for (size_t i = 0; i < stretches.size();) {
    const PathCycle cycle = CycleAt(stretches, i);
    joined.push_back(Joined(stretches, cycle));
    i = cycle.end();
  }
  return joined;
}

std::string DescribeCriticalPath(const Plan& plan, const Prediction& prediction, Ink ink) {
  std::vector<PathSegment> path = CriticalPath(plan, prediction.timelines);
  std::string text = "\n" + ink.Bold("critical path") + "\n";
  text += ink.Dim(fmt::format("  {:>12}{:>12}{:>9}{:>7}{:>12}  {}", "from", "time", "share", "ops",
                              "dispatch", "where")) +
          "\n";
  const std::vector<PathStretch> stretches = WithCyclesJoined(Stretches(plan, path));
  for (size_t i = 0; i < stretches.size(); ++i) {
    if (stretches.size() > kListedStretches && i == kListedStretches / 2) {
      const size_t left_out = stretches.size() - kListedStretches;
      text += fmt::format("  … and {} more\n", left_out);
      i += left_out;
    }
    const PathStretch& stretch = stretches[i];
    Duration time = stretch.end - stretch.start;
    text += fmt::format("  {:>12}{:>12}{:>9}{:>7}{:>12}  {}\n", FormatDuration(stretch.start),
                        FormatDuration(time), Share(time, path.back().end), stretch.operators,
                        FormatDuration(stretch.dispatch), stretch.Text());
  }
  return text;
}

std::string DescribeCommunication(const Plan& plan, const Timeline& timeline, Ink ink) {
  const Role& role = plan.RoleOf(timeline.rank);
  std::vector<CommunicationUse> uses = CommunicationUses(role, timeline);
  if (uses.empty()) return "";
  std::string text = "\n" + ink.Bold(fmt::format("communication, rank {}", timeline.rank)) + "\n";
  if (uses.size() > kListedCommunications) {
    return text + fmt::format("  {} operators: by group below, one by one in --trace\n", uses.size());
  }
  text += ink.Dim(fmt::format("  {:<26}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}", "", "bytes", "ready", "start",
                              "end", "hidden", "exposed")) +
          "\n";
  for (const CommunicationUse& use : uses) {
    const Op& op = role.steady.ops[use.op];
    Duration time = use.end - use.start;
    text += fmt::format("  {:<26}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n", Label(op),
                        FormatBytes(MessageBytes(op.kind)), FormatDuration(use.ready),
                        FormatDuration(use.start), FormatDuration(use.end),
                        time > Duration() ? fmt::format("{:.0f} %", 100 * (use.hidden / time)) : "",
                        FormatDuration(time - use.hidden));
  }
  return text;
}

std::string DescribeBreakdown(const Plan& plan, const Prediction& prediction, Ink ink) {
  const StepBreakdown& b = prediction.breakdown;
  std::string text = ink.Bold(ink.Cyan(plan.scenario.name)) + "  " + ModelInWords(plan) + ", " +
                     ParallelismInWords(plan.scenario) + (plan.pipeline ? ", " + PipelineInWords(plan) : "") +
                     "\n";
  text += "step " + FormatDuration(prediction.p50);
  if (prediction.p10 != prediction.p90)
    text +=
        fmt::format(" (p10 – p90: {} – {})", FormatDuration(prediction.p10), FormatDuration(prediction.p90));
  text += "\n";
  auto row = [&](const char* label, Duration part) {
    text += fmt::format("  {:<28}{:>12}{}\n", label, FormatTime(part), Share(part, b.step));
  };
  row("compute", b.compute);
  row("exposed communication", b.exposed_communication);
  row("bubble", b.bubble);
  row("host", b.host);
  if (prediction.slowed > Duration()) row("(compute slowed by comm.)", prediction.slowed);
  return text;
}

}  // namespace

std::string ExplainTime(const Plan& plan, const Prediction& prediction, Ink ink) {
  std::string text = DescribeBreakdown(plan, prediction, ink);
  if (prediction.timelines.empty()) return text;
  const Timeline& first = prediction.timelines.front();
  text += TimeByPhase(plan, first, ink);
  text += DescribeCriticalPath(plan, prediction, ink);
  text += DescribeLongestPath(plan, first);
  text += DescribeCommunication(plan, first, ink);
  return text;
}

}  // namespace windtunnel
