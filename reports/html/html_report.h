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

// Of a search: what it found (`search` is windtunnel/search/1), and the whole report of the best configuration where it was predicted in full.
std::string SearchHtmlReport(const std::string& search, const std::vector<Outcome>& best,
                             const std::vector<Scaling>& scalings);

}  // namespace windtunnel
