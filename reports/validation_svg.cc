#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/svg_canvas.h"
#include "reports/validation_report.h"

namespace windtunnel {
namespace {

constexpr std::array<const char*, 8> kColours = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728",
                                                 "#9467bd", "#8c564b", "#17becf", "#7f7f7f"};
constexpr double kSide = 640, kLeft = 170;
constexpr double kBand = 0.2;  // of the dotted lines

// A square whose sides are the same decades of seconds.
struct Square {
  int first = 0, last = 1;  // powers of ten
  double top = 0;

  double Along(double seconds) const { return kSide * (std::log10(seconds) - first) / (last - first); }
  double X(double seconds) const { return kLeft + Along(seconds); }
  double Y(double seconds) const { return top + kSide - Along(seconds); }
};

Square SquareAround(const std::vector<const ValidatedValue*>& values, double top) {
  double least = 1e300, most = 0;
  for (const ValidatedValue* value : values) {
    least = std::min({least, value->predicted, value->measured});
    most = std::max({most, value->predicted, value->measured});
  }
  Square square{.first = static_cast<int>(std::floor(std::log10(least))),
                .last = static_cast<int>(std::ceil(std::log10(most))),
                .top = top};
  square.last = std::max(square.last, square.first + 1);
  return square;
}

void DrawFrame(SvgCanvas& canvas, const Square& square) {
  canvas.Rect(kLeft, square.top, kSide, kSide, "fill=\"none\" stroke=\"#999\"");
  for (int power = square.first; power <= square.last; ++power) {
    const double at = std::pow(10, power);
    canvas.Append(
        fmt::format("<line class=\"g\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                    square.X(at), square.top + kSide, square.top + kSide + 5));
    canvas.Append(
        fmt::format("<line class=\"g\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>\n",
                    kLeft - 5, kLeft, square.Y(at)));
    const std::string label = fmt::format("{:g} s", at);
    canvas.Text(square.X(at), square.top + kSide + 20, label, "text-anchor=\"middle\"");
    canvas.Text(kLeft - 10, square.Y(at) + 4, label, "text-anchor=\"end\"");
  }
  canvas.Text(kLeft + kSide / 2, square.top + kSide + 40, "measured", "text-anchor=\"middle\" class=\"t\"");
  canvas.Text(kLeft - 70, square.top + kSide / 2, "predicted", "text-anchor=\"end\" class=\"t\"");
}

// predicted = factor x measured, where it lies within the square.
void DrawLine(SvgCanvas& canvas, const Square& square, double factor, const char* style) {
  const double least = std::pow(10, square.first), most = std::pow(10, square.last);
  const double from = std::max(least, least / factor), to = std::min(most, most / factor);
  canvas.Append(fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n",
                            square.X(from), square.Y(factor * from), square.X(to), square.Y(factor * to),
                            style));
}

}  // namespace

std::string ValidationSvg(const Validation& validation) {
  std::vector<const ValidatedValue*> values;
  for (const ValidatedValue& value : validation.values)
    if (value.quantity == kStepTime && value.predicted > 0 && value.measured > 0) values.push_back(&value);
  SvgCanvas canvas({"Step times, predicted over measured",
                    fmt::format("{} rows; dashed: equal; dotted: {:.0f} % off", values.size(), 100 * kBand)},
                   Seconds(1));
  if (values.empty()) return canvas.Finish();
  canvas.Down(10);
  const Square square = SquareAround(values, canvas.y());
  DrawFrame(canvas, square);
  DrawLine(canvas, square, 1, "stroke=\"#333\" stroke-dasharray=\"6 4\"");
  for (double factor : {1 - kBand, 1 + kBand})
    DrawLine(canvas, square, factor, "stroke=\"#999\" stroke-dasharray=\"2 4\"");
  for (size_t i = 0; i < validation.sources.size(); ++i) {
    for (const ValidatedValue* value : values) {
      if (value->source != validation.sources[i]) continue;
      canvas.Append(
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\" fill-opacity=\"0.5\"/>\n",
                      square.X(value->measured), square.Y(value->predicted), kColours[i % kColours.size()]));
    }
  }
  canvas.Down(kSide + 60);
  canvas.BeginLegend();
  for (size_t i = 0; i < validation.sources.size(); ++i) {
    const ErrorStatistics statistics = StatisticsOf(validation, validation.sources[i]);
    canvas.LegendEntry(
        {fmt::format("fill=\"{}\"", kColours[i % kColours.size()])},
        fmt::format("{} ({} rows, {:.1f} %)", validation.sources[i], statistics.rows, 100 * statistics.mape));
  }
  canvas.EndLegend();
  return canvas.Finish();
}

}  // namespace windtunnel
