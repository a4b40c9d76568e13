#include "reports/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "reports/words.h"

namespace windtunnel {
namespace {

// Measures in pixels.
constexpr double kWidth = 1200, kLabels = 120, kMargin = 24, kLane = 20, kLaneGap = 4, kHeader = 62,
                 kPanelTitle = 26;
constexpr double kPlot = kWidth - kLabels - 2 * kMargin;
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

std::string Escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

// The largest of 1, 2, 5 times a power of ten that gives at least five ticks.
double TickMilliseconds(double total) {
  double step = std::pow(10, std::floor(std::log10(total)));
  for (double factor : {1.0, 0.5, 0.2, 0.1})
    if (total / (step * factor) >= 5) return step * factor;
  return step * 0.1;
}

class Drawing {
 public:
  Drawing(const Plan& plan, Duration total) : plan_(plan), total_(total) {}

  void Panel(std::string_view title, const std::vector<Timeline>& timelines, int max_ranks) {
    double top = y_;
    Text(kMargin, y_ + 17, fmt::format("{}: {}", title, FormatDuration(Longest(timelines))), "class=\"t\"");
    y_ += kPanelTitle;
    for (size_t i = 0; i < timelines.size() && static_cast<int>(i) < max_ranks; ++i) Rank(timelines[i]);
    double x = X(Longest(timelines));
    body_ += fmt::format("<line class=\"e\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", x,
                         x, top + kPanelTitle - 4, y_);
    y_ += 8;
  }

  void Axis() {
    double total = total_ / Milliseconds(1);
    double tick = TickMilliseconds(total);
    for (int i = 0; i * tick <= total; ++i) {
      double x = X(Milliseconds(i * tick));
      body_ += fmt::format(
          "<line class=\"g\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n", x, y_, y_ + 5);
      Text(x, y_ + 18, fmt::format("{:g}{}", i * tick, i == 0 ? " ms" : ""), "text-anchor=\"middle\"");
    }
    y_ += 30;
  }

  void Legend() {
    double x = kLabels + kMargin;
    for (const Colour& colour : kColours) {
      if (!used_.contains(colour.group)) continue;
      body_ +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>\n",
                      x, y_, colour.fill);
      Text(x + 17, y_ + 10, colour.group, "");
      x += 38 + 7 * static_cast<double>(colour.group.size());
    }
    y_ += 30;
  }

  std::string Finish() const {
    std::string head = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Helvetica, "
        "Arial, "
        "sans-serif\" font-size=\"12\">\n<style>.t{{font-size:14px;font-weight:bold}}.h{{font-size:18px;"
        "font-weight:bold}}.e{{stroke:#333;stroke-dasharray:4 3}}.g{{stroke:#999}}text{{fill:#222}}</style>\n"
        "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
        kWidth, y_);
    head += fmt::format("<text x=\"{:.0f}\" y=\"30\" class=\"h\">{}</text>\n", kMargin,
                        Escape(plan_.scenario.name));
    head += fmt::format("<text x=\"{:.0f}\" y=\"50\">{} · {}</text>\n", kMargin, Escape(ModelInWords(plan_)),
                        Escape(ParallelismInWords(plan_.scenario)));
    return head + body_ + "</svg>\n";
  }

 private:
  static Duration Longest(const std::vector<Timeline>& timelines) {
    Duration end;
    for (const Timeline& timeline : timelines) end = std::max(end, timeline.end);
    return end;
  }

  double X(Duration time) const { return kLabels + kMargin + kPlot * (time / total_); }

  void Text(double x, double y, std::string_view text, std::string_view attributes) {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, Escape(text));
  }

  void Rank(const Timeline& timeline) {
    const Role& role = plan_.RoleOf(timeline.rank);
    for (size_t stream = 0; stream < role.streams.size(); ++stream) {
      body_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#f4f4f4\"/>\n",
          X(Duration()), y_, X(timeline.end) - X(Duration()), kLane);
      Text(kMargin, y_ + 14, fmt::format("rank {} {}", timeline.rank, role.streams[stream].name), "");
      Lane(timeline, role.steady, static_cast<StreamId>(stream));
      y_ += kLane + kLaneGap;
    }
  }

  // Rectangles of one stream; those of one colour that touch are merged.
  void Lane(const Timeline& timeline, const Program& program, StreamId stream) {
    std::string_view group;
    double left = 0, right = 0;
    auto flush = [&] {
      if (!group.empty())
        body_ +=
            fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"/>\n",
                        left, y_, std::max(right - left, 0.2), kLane, FillOf(group));
    };
    for (const Span& span : timeline.spans) {
      if (span.stream != stream) continue;
      std::string_view next = GroupOf(program.ops.at(span.op).kind);
      used_.insert(next);
      if (next != group || X(span.start) - right > kMergeBelow) {
        flush();
        group = next;
        left = X(span.start);
      }
      right = X(span.end);
    }
    flush();
  }

  const Plan& plan_;
  Duration total_;
  double y_ = kHeader;
  std::string body_;
  std::set<std::string_view> used_;
};

Duration LongestStep(const Outcome& outcome) {
  Duration end = Picoseconds(1);
  if (outcome.prediction)
    for (const Timeline& timeline : outcome.prediction->timelines) end = std::max(end, timeline.end);
  if (outcome.measurement)
    for (const Timeline& timeline : outcome.measurement->timelines) end = std::max(end, timeline.end);
  return end;
}

}  // namespace

std::string TimelineSvg(const Outcome& outcome, int max_ranks) {
  Drawing drawing(outcome.plan, LongestStep(outcome));
  if (outcome.prediction) drawing.Panel("predicted", outcome.prediction->timelines, max_ranks);
  if (outcome.measurement) drawing.Panel("measured", outcome.measurement->timelines, max_ranks);
  drawing.Axis();
  drawing.Legend();
  return drawing.Finish();
}

}  // namespace windtunnel
