#include "reports/html/timeline_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace windtunnel {
namespace {

bool IsShown(const Op& op) { return !std::holds_alternative<Receive>(op.kind); }

std::string NameOf(const std::string& first, int64_t operators) {
  return operators == 1 ? first : fmt::format("{} and {} more", first, operators - 1);
}

std::vector<TimelineBar> EveryOperator(const Timeline& timeline, const Program& program) {
  struct Open {
    TimelineBar bar;
    int64_t operators = 0;
  };
  std::map<StreamId, Open> open;
  std::vector<TimelineBar> bars;
  const auto close = [&](Open& o) {
    if (o.operators == 0) return;
    o.bar.name = NameOf(o.bar.name, o.operators);
    bars.push_back(o.bar);
  };
  for (const Span& span : timeline.spans) {
    const Op& op = program.ops[span.op];
    if (!IsShown(op)) continue;
    const OperatorGroup* group = &OperatorGroupOf(op.kind);
    Open& o = open[span.stream];
    if (o.bar.group == group && span.start <= o.bar.end) {
      o.bar.end = std::max(o.bar.end, span.end);
      o.bar.busy = o.bar.end - o.bar.start;
      ++o.operators;
      continue;
    }
    close(o);
    o = {{span.stream, group, op.name, span.start, span.end, span.end - span.start}, 1};
  }
  for (auto& [stream, o] : open) close(o);
  return bars;
}

// What runs in a slice of a stream's time.
struct Interval {
  std::map<const OperatorGroup*, Duration> busy;
  int64_t operators = 0;  // that begin in it
  std::string first;

  const OperatorGroup* Main() const {
    const auto longest = std::max_element(busy.begin(), busy.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    return longest == busy.end() ? nullptr : longest->first;
  }
  Duration Sum() const {
    Duration sum;
    for (const auto& [group, time] : busy) sum += time;
    return sum;
  }
};

using Intervals = std::map<StreamId, std::vector<Interval>>;

Intervals Cut(const Timeline& timeline, const Program& program, size_t count, Duration width) {
  Intervals slices;
  for (const Span& span : timeline.spans) {
    const Op& op = program.ops[span.op];
    if (!IsShown(op)) continue;
    std::vector<Interval>& of_stream = slices[span.stream];
    of_stream.resize(count);
    const auto at = [&](Duration time) {
      return std::min(static_cast<size_t>(time.picoseconds() / width.picoseconds()), count - 1);
    };
    Interval& first = of_stream[at(span.start)];
    if (first.operators++ == 0) first.first = op.name;
    for (size_t i = at(span.start); i <= at(span.end); ++i) {
      const Duration begin = std::max(span.start, width * static_cast<int64_t>(i));
      const Duration end =
          i + 1 == count ? span.end : std::min(span.end, width * static_cast<int64_t>(i + 1));
      if (end > begin) of_stream[i].busy[&OperatorGroupOf(op.kind)] += end - begin;
    }
  }
  return slices;
}

std::vector<TimelineBar> InSlices(const Timeline& timeline, const Program& program, size_t most) {
  std::vector<StreamId> streams;
  for (const Span& span : timeline.spans)
    if (std::find(streams.begin(), streams.end(), span.stream) == streams.end())
      streams.push_back(span.stream);
  const size_t count = std::max<size_t>(most / std::max<size_t>(streams.size(), 1), 1);
  const Duration width =
      std::max(timeline.end / static_cast<int64_t>(count) + Picoseconds(1), Picoseconds(1));
  std::vector<TimelineBar> bars;
  for (const auto& [stream, slices] : Cut(timeline, program, count, width)) {
    TimelineBar bar;
    int64_t operators = 0;
    const auto close = [&] {
      if (bar.group == nullptr) return;
      bar.name = operators == 0 ? std::string(bar.group->name) : NameOf(bar.name, operators);
      bars.push_back(bar);
    };
    for (size_t i = 0; i < slices.size(); ++i) {
      const OperatorGroup* group = slices[i].Main();
      const Duration begin = width * static_cast<int64_t>(i);
      if (group == nullptr || group != bar.group) {
        close();
        bar = {stream, group, "", begin, begin, {}};
        operators = 0;
      }
      if (group == nullptr) continue;
      if (operators == 0) bar.name = slices[i].first;
      operators += slices[i].operators;
      bar.end = std::min(begin + width, timeline.end);
      bar.busy += slices[i].Sum();
    }
    close();
  }
  return bars;
}

}  // namespace

std::vector<TimelineBar> TimelineBars(const Timeline& timeline, const Program& program, size_t most) {
  std::vector<TimelineBar> bars = EveryOperator(timeline, program);
  return bars.size() <= most ? bars : InSlices(timeline, program, most);
}

}  // namespace windtunnel
