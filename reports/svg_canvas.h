// What the pictures of a step have in common: the page, the time axis, panels with a title and the step's
// end, and legends. Lengths are in pixels; `y()` is the top of the next element.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "plan/timeline.h"

namespace windtunnel {

class SvgCanvas {
 public:
  static constexpr double kWidth = 1200, kLabels = 120, kMargin = 24;

  // `total` is the time that the axis covers. The first line of the header is the title. `right` pixels stay
  // free beside the plot.
  SvgCanvas(std::vector<std::string> header, Duration total, double right = 0);

  double y() const { return y_; }
  void Down(double pixels) { y_ += pixels; }
  double X(Duration time) const { return kLabels + kMargin + plot_ * (time / total_); }
  double right() const { return kLabels + kMargin + plot_; }

  // Escapes `text`; copies `attributes` into the element unchanged.
  void Text(double x, double y, std::string_view text, std::string_view attributes);
  void Rect(double x, double y, double width, double height, std::string_view attributes);
  void Append(std::string_view element) { body_ += element; }

  void PanelTitle(std::string_view title);
  // A dashed line at the end of a panel that began at `top`.
  void EndLine(Duration end, double top);
  void Axis();

  // Entries stand side by side and wrap at the page's edge. An entry has one swatch of width `width` for each
  // of `swatches` (attributes of a rectangle), or none.
  void BeginLegend() { legend_x_ = kLabels + kMargin; }
  void LegendEntry(const std::vector<std::string>& swatches, std::string_view text, double width = 12);
  void EndLegend();

  // The whole SVG. `style`: further CSS rules.
  std::string Finish(std::string_view style = "") const;

 private:
  std::vector<std::string> header_;
  Duration total_;
  double plot_, y_, legend_x_ = 0;
  std::string body_;
};

// The latest end of the timelines.
Duration LongestOf(const std::vector<Timeline>& timelines);

}  // namespace windtunnel
