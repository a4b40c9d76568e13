// What pictures of a step share: the page, the axis of time, panels with a title and the step's end, and legends. Measures are
// pixels; `y()` is the top of what comes next.
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

  // `total` is the time that the axis covers. Lines of the header: the first is the title. `right` stays free beside the plot.
  SvgCanvas(std::vector<std::string> header, Duration total, double right = 0);

  double y() const { return y_; }
  void Down(double pixels) { y_ += pixels; }
  double X(Duration time) const { return kLabels + kMargin + plot_ * (time / total_); }
  double right() const { return kLabels + kMargin + plot_; }

  // Escapes `text`; `attributes` as they stand in the element.
  void Text(double x, double y, std::string_view text, std::string_view attributes);
  void Rect(double x, double y, double width, double height, std::string_view attributes);
  void Append(std::string_view element) { body_ += element; }

  void PanelTitle(std::string_view title);
  // A dashed line at the end of a panel that began at `top`.
  void EndLine(Duration end, double top);
  void Axis();

  // Entries stand side by side, in a new line where the page ends. An entry has a swatch for each of `swatches` (attributes of a
  // rectangle), `width` wide, or none.
  void BeginLegend() { legend_x_ = kLabels + kMargin; }
  void LegendEntry(const std::vector<std::string>& swatches, std::string_view text, double width = 12);
  void EndLegend();

  // `style`: further rules.
  std::string Finish(std::string_view style = "") const;

 private:
  std::vector<std::string> header_;
  Duration total_;
  double plot_, y_, legend_x_ = 0;
  std::string body_;
};

// The end of the last of them.
Duration LongestOf(const std::vector<Timeline>& timelines);

}  // namespace windtunnel
