#include "reports/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "reports/svg_canvas.h"
#include "reports/svg_pipeline.h"
#include "reports/words.h"

namespace windtunnel {
namespace {

// Measures in pixels.
constexpr double kLane = 20, kLaneGap = 4;
// Neighbours of one colour closer than this are drawn as one rectangle: it keeps the file small.
constexpr double kMergeBelow = 0.35;

struct Colour {
  std::string_view group, fill;
};
// Vega's "tableau10" scheme and two tints of it: distinguishable side by side, also in grey.
constexpr std::array<Colour, 12> kColours = {{{"gemm", "#4c78a8"},
                                              {"attention", "#f58518"},
                                              {"norm", "#72b7b2"},
                                              {"activation", "#54a24b"},
                                              {"embedding", "#eeca3b"},
                                              {"loss", "#b279a2"},
                                              {"optimizer", "#9d755d"},
                                              {"copy", "#bab0ac"},
                                              {"data", "#d6a5c9"},
                                              {"collective", "#e45756"},
                                              {"barrier", "#ffbfb5"},
                                              {"other", "#d8d8d8"}}};

std::string_view GroupOf(const OpKind& kind) {
  // Small operators are drawn as the larger ones that they serve.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kServes = {
      {{"bias_gradient", "gemm"},
       {"rope", "attention"},
       {"scale", "copy"},
       {"fill", "copy"},
       {"gradient_norm", "optimizer"},
       {"clip", "optimizer"}}};
  std::string_view name = OperatorName(kind);
  if (name == "barrier") return "barrier";
  if (IsCommunication(kind)) return "collective";
  for (const auto& [small, large] : kServes)
    if (small == name) return large;
  for (const Colour& colour : kColours)
    if (colour.group == name) return colour.group;
  return "other";
}

std::string_view FillOf(std::string_view group) {
  for (const Colour& colour : kColours)
    if (colour.group == group) return colour.fill;
  return kColours.back().fill;
}

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
    for (const Colour& colour : kColours) {
      if (!used_.contains(colour.group)) continue;
      canvas_.LegendEntry({fmt::format("rx=\"2\" fill=\"{}\"", colour.fill)}, colour.group);
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

  // Rectangles of one stream; those of one colour that touch are merged.
  void Lane(const Timeline& timeline, const Program& program, StreamId stream) {
    std::string_view group;
    double left = 0, right = 0;
    auto flush = [&] {
      if (!group.empty())
        canvas_.Append(
            fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"/>\n",
                        left, canvas_.y(), std::max(right - left, 0.2), kLane, FillOf(group)));
    };
    for (const Span& span : timeline.spans) {
      if (span.stream != stream) continue;
      std::string_view next = GroupOf(program.ops.at(span.op).kind);
      used_.insert(next);
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
