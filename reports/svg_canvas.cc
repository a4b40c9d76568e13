#include "reports/svg_canvas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace windtunnel {
namespace {

constexpr double kHeader = 22, kHeaderLine = 20, kPanelTitle = 26, kLegend = 30, kLegendLine = 20;

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
double TickWithin(double total) {
  double step = std::pow(10, std::floor(std::log10(total)));
  for (double factor : {1.0, 0.5, 0.2, 0.1})
    if (total / (step * factor) >= 5) return step * factor;
  return step * 0.1;
}

}  // namespace

SvgCanvas::SvgCanvas(std::vector<std::string> header, Duration total, double right)
    : header_(std::move(header)),
      total_(total),
      plot_(kWidth - kLabels - 2 * kMargin - right),
      y_(kHeader + kHeaderLine * static_cast<double>(header_.size())) {}

void SvgCanvas::Text(double x, double y, std::string_view text, std::string_view attributes) {
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, Escape(text));
}

void SvgCanvas::Rect(double x, double y, double width, double height, std::string_view attributes) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}/>\n", x, y,
                       width, height, attributes);
}

void SvgCanvas::PanelTitle(std::string_view title) {
  Text(kMargin, y_ + 17, title, "class=\"t\"");
  y_ += kPanelTitle;
}

void SvgCanvas::EndLine(Duration end, double top) {
  body_ += fmt::format("<line class=\"e\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                       X(end), top + kPanelTitle - 4, y_);
}

void SvgCanvas::Axis() {
  const bool is_long = total_ >= Seconds(10);
  const Duration unit = is_long ? Seconds(1) : Milliseconds(1);
  const double total = total_ / unit;
  const double tick = TickWithin(total);
  for (int i = 0; i * tick <= total; ++i) {
    const double x = X(unit.Scaled(i * tick));
    body_ += fmt::format("<line class=\"g\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                         x, y_, y_ + 5);
    Text(x, y_ + 18,
         fmt::format("{:g}{}", i * tick,
                     i > 0     ? ""
                     : is_long ? " s"
                               : " ms"),
         "text-anchor=\"middle\"");
  }
  y_ += 30;
}

void SvgCanvas::LegendEntry(const std::vector<std::string>& swatches, std::string_view text, double width) {
  const double swatch = width * static_cast<double>(swatches.size());
  const double words = 7 * static_cast<double>(text.size());
  if (legend_x_ + swatch + 5 + words > kWidth) {
    BeginLegend();
    y_ += kLegendLine;
  }
  for (const std::string& attributes : swatches) {
    body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:g}\" height=\"12\" {}/>\n", legend_x_, y_,
                         width, attributes);
    legend_x_ += width;
  }
  Text(legend_x_ + 5, y_ + 10, text, "");
  legend_x_ += 26 + words;
}

void SvgCanvas::EndLegend() { y_ += kLegend; }

std::string SvgCanvas::Finish(std::string_view style) const {
  std::string page = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Helvetica, "
      "Arial, "
      "sans-serif\" font-size=\"12\">\n<style>.t{{font-size:14px;font-weight:bold}}.h{{font-size:18px;"
      "font-weight:bold}}.e{{stroke:#333;stroke-dasharray:4 "
      "3}}.g{{stroke:#999}}text{{fill:#222}}{2}</style>\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
      kWidth, y_, style);
  for (size_t line = 0; line < header_.size(); ++line)
    page += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\"{}>{}</text>\n", kMargin,
                        30 + kHeaderLine * static_cast<double>(line), line == 0 ? " class=\"h\"" : "",
                        Escape(header_[line]));
  return page + body_ + "</svg>\n";
}

Duration LongestOf(const std::vector<Timeline>& timelines) {
  Duration end;
  for (const Timeline& timeline : timelines) end = std::max(end, timeline.end);
  return end;
}

}  // namespace windtunnel
