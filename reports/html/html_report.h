// One self-contained HTML file: predicted against measured with intervals, where the error comes from, timeline, memory by category, bubbles by
// stage, scaling, where the costs come from. Nothing is loaded from anywhere; the plots are Vega-Lite's, inlined.
#pragma once

#include <string>
#include <vector>

#include "reports/outcome.h"
#include "reports/scaling.h"

namespace windtunnel {

// `scalings` are those of the outcomes, in their order.
std::string HtmlReport(const std::vector<Outcome>& outcomes, const std::vector<Scaling>& scalings);

}  // namespace windtunnel
