#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "reports/svg_canvas.h"
#include "reports/validation_report.h"

namespace windtunnel {
namespace {

constexpr std::array<const char*, 8> kColours = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728",
                                                 "#9467bd", "#8c564b", "#17becf", "#7f7f7f"};
constexpr double kSide = 480, kLeft = 100, kErrorsLeft = 680;
constexpr double kBand = 0.2;  // of the dotted lines
constexpr const char* kEqual = "stroke=\"#333\" stroke-dasharray=\"6 4\"";
constexpr const char* kOff = "stroke=\"#999\" stroke-dasharray=\"2 4\"";

// The scale of one side of a panel: gives the position of a value.
struct PlotScale {
  double least = 0, most = 1;
  double Along(double value) const { return kSide * (value - least) / (most - least); }
};

// A square with two scales.
struct Panel {
  double left = 0, top = 0;
  PlotScale across, up;

  double X(double value) const { return left + across.Along(value); }
  double Y(double value) const { return top + kSide - up.Along(value); }
};

// A scale of logarithms: whole decades around all times.
PlotScale DecadesAround(const std::vector<const ValidatedValue*>& values) {
  double least = 1e300, most = 0;
  for (const ValidatedValue* value : values) {
    least = std::min({least, value->predicted, value->measured});
    most = std::max({most, value->predicted, value->measured});
  }
  PlotScale scale{std::floor(std::log10(least)), std::ceil(std::log10(most))};
  scale.most = std::max(scale.most, scale.least + 1);
  return scale;
}

constexpr double kErrorStep = 0.1;
constexpr double kMostError = 0.6;  // larger errors are drawn on the edge

// As far to both sides as the largest error, but at least beyond the dotted lines and at most to kMostError.
PlotScale ErrorsAround(const std::vector<const ValidatedValue*>& values) {
  double most = kBand + kErrorStep;
  for (const ValidatedValue* value : values) most = std::max(most, std::abs(value->error()));
  most = std::min(std::ceil(most / kErrorStep) * kErrorStep, kMostError);
  return {-most, most};
}

void DrawFrame(SvgCanvas& canvas, const Panel& panel, const char* across, const char* up) {
  canvas.Rect(panel.left, panel.top, kSide, kSide, "fill=\"none\" stroke=\"#999\"");
  canvas.Text(panel.left + kSide / 2, panel.top + kSide + 40, across, "text-anchor=\"middle\" class=\"t\"");
  const double x = panel.left - 60, y = panel.top + kSide / 2;
  canvas.Text(
      x, y, up,
      fmt::format("text-anchor=\"middle\" class=\"t\" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y));
}

void DrawLine(SvgCanvas& canvas, double x1, double y1, double x2, double y2, const char* style) {
  canvas.Append(fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                            x2, y2, style));
}

void MarkAcross(SvgCanvas& canvas, const Panel& panel, double value, const std::string& label) {
  const double x = panel.X(value), bottom = panel.top + kSide;
  DrawLine(canvas, x, bottom, x, bottom + 5, "class=\"g\"");
  canvas.Text(x, bottom + 20, label, "text-anchor=\"middle\"");
}

void MarkUp(SvgCanvas& canvas, const Panel& panel, double value, const std::string& label) {
  DrawLine(canvas, panel.left - 5, panel.Y(value), panel.left, panel.Y(value), "class=\"g\"");
  canvas.Text(panel.left - 10, panel.Y(value) + 4, label, "text-anchor=\"end\"");
}

void ForEachDecade(const PlotScale& scale, const std::function<void(double, const std::string&)>& visit) {
  for (double power = scale.least; power <= scale.most; ++power)
    visit(power, fmt::format("{:g} s", std::pow(10, power)));
}

// Draws predicted = factor x measured, as far as it lies within the panel of logarithms.
void DrawFactor(SvgCanvas& canvas, const Panel& panel, double factor, const char* style) {
  const double shift = std::log10(factor);
  const double from = std::max(panel.across.least, panel.across.least - shift);
  const double to = std::min(panel.across.most, panel.across.most - shift);
  DrawLine(canvas, panel.X(from), panel.Y(from + shift), panel.X(to), panel.Y(to + shift), style);
}

Panel DrawTimes(SvgCanvas& canvas, const PlotScale& decades) {
  const Panel panel{kLeft, canvas.y(), decades, decades};
  DrawFrame(canvas, panel, "measured", "predicted");
  ForEachDecade(decades, [&](double power, const std::string& label) {
    MarkAcross(canvas, panel, power, label);
    MarkUp(canvas, panel, power, label);
  });
  DrawFactor(canvas, panel, 1, kEqual);
  for (double factor : {1 - kBand, 1 + kBand}) DrawFactor(canvas, panel, factor, kOff);
  return panel;
}

Panel DrawErrors(SvgCanvas& canvas, const PlotScale& decades, const PlotScale& errors) {
  const Panel panel{kErrorsLeft, canvas.y(), decades, errors};
  DrawFrame(canvas, panel, "measured", "error of the prediction");
  ForEachDecade(decades,
                [&](double power, const std::string& label) { MarkAcross(canvas, panel, power, label); });
  const int steps = static_cast<int>(std::lround(errors.most / kErrorStep));
  for (int i = -steps; i <= steps; ++i)
    MarkUp(canvas, panel, i * kErrorStep, i == 0 ? "0" : fmt::format("{:+.0f} %", 100 * i * kErrorStep));
  const double right = panel.left + kSide;
  for (double error : {-kBand, 0.0, kBand})
    DrawLine(canvas, panel.left, panel.Y(error), right, panel.Y(error), error == 0 ? kEqual : kOff);
  return panel;
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
  const PlotScale decades = DecadesAround(values), errors = ErrorsAround(values);
  const Panel times = DrawTimes(canvas, decades), beside = DrawErrors(canvas, decades, errors);
  for (size_t i = 0; i < validation.sources.size(); ++i) {
    const auto draw = [&](double x, double y) {
      canvas.Append(
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\" fill-opacity=\"0.5\"/>\n", x,
                      y, kColours[i % kColours.size()]));
    };
    for (const ValidatedValue* value : values) {
      if (value->source != validation.sources[i]) continue;
      const double measured = std::log10(value->measured);
      draw(times.X(measured), times.Y(std::log10(value->predicted)));
      draw(beside.X(measured), beside.Y(std::clamp(value->error(), errors.least, errors.most)));
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
