#include "reports/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/format.h"
#include "reports/operator_groups.h"
#include "reports/svg_canvas.h"
#include "reports/svg_pipeline.h"
#include "reports/words.h"

namespace windtunnel {
namespace {

// In pixels.
constexpr double kLane = 20, kLaneGap = 4;
// Neighbours of one colour closer than this are drawn as one rectangle: it keeps the file small.
constexpr double kMergeBelow = 0.35;

class Drawing {
 public:
  Drawing(const Plan& plan, Duration total)
      : plan_(plan),
        canvas_({plan.scenario.name, ModelInWords(plan) + " · " + ParallelismInWords(plan.scenario)}, total) {
  }

  void Panel(std::string_view title, const std::vector<Timeline>& timelines, int max_ranks) {
    const double top = canvas_.y();
    const Duration end = LongestOf(timelines);
    canvas_.PanelTitle(fmt::format("{}: {}", title, FormatDuration(end)));
    for (size_t i = 0; i < timelines.size() && static_cast<int>(i) < max_ranks; ++i) Rank(timelines[i]);
    canvas_.EndLine(end, top);
    canvas_.Down(8);
  }

  std::string Finish() {
    canvas_.Axis();
    canvas_.BeginLegend();
    for (const OperatorGroup& group : OperatorGroups()) {
      if (!used_.contains(group.name)) continue;
      canvas_.LegendEntry({fmt::format("rx=\"2\" fill=\"{}\"", group.colour)}, group.name);
    }
    canvas_.EndLegend();
    return canvas_.Finish();
  }

 private:
  void Rank(const Timeline& timeline) {
    const Role& role = plan_.RoleOf(timeline.rank);
    for (size_t stream = 0; stream < role.streams.size(); ++stream) {
      const double left = canvas_.X(Duration());
      canvas_.Rect(left, canvas_.y(), canvas_.X(timeline.end) - left, kLane, "fill=\"#f4f4f4\"");
      canvas_.Text(SvgCanvas::kMargin, canvas_.y() + 14,
                   fmt::format("rank {} {}", timeline.rank, role.streams[stream].name), "");
      Lane(timeline, role.steady, static_cast<StreamId>(stream));
      canvas_.Down(kLane + kLaneGap);
    }
  }

  // Draws the rectangles of one stream; those of one colour that touch are merged.
  void Lane(const Timeline& timeline, const Program& program, StreamId stream) {
    const OperatorGroup* group = nullptr;
    double left = 0, right = 0;
    auto flush = [&] {
      if (group != nullptr)
        canvas_.Append(
            fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"/>\n",
                        left, canvas_.y(), std::max(right - left, 0.2), kLane, group->colour));
    };
    for (const Span& span : timeline.spans) {
      if (span.stream != stream) continue;
      const OperatorGroup* next = &OperatorGroupOf(program.ops.at(span.op).kind);
      used_.insert(next->name);
      if (next != group || canvas_.X(span.start) - right > kMergeBelow) {
        flush();
        group = next;
        left = canvas_.X(span.start);
      }
      right = canvas_.X(span.end);
    }
    flush();
  }

  const Plan& plan_;
  SvgCanvas canvas_;
  std::set<std::string_view> used_;
};

Duration LongestStep(const Outcome& outcome) {
  Duration end = Picoseconds(1);
  if (outcome.prediction) end = std::max(end, LongestOf(outcome.prediction->timelines));
  if (outcome.measurement) end = std::max(end, LongestOf(outcome.measurement->timelines));
  return end;
}

}  // namespace

std::string TimelineSvg(const Outcome& outcome, int max_ranks) {
  if (outcome.plan.pipeline) return PipelineSvg(outcome, LongestStep(outcome));
  Drawing drawing(outcome.plan, LongestStep(outcome));
  if (outcome.prediction) drawing.Panel("predicted", outcome.prediction->timelines, max_ranks);
  if (outcome.measurement) drawing.Panel("measured", outcome.measurement->timelines, max_ranks);
  return drawing.Finish();
}

}  // namespace windtunnel
