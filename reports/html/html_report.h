// One self-contained HTML file: predicted against measured with intervals, where the error comes from,
// timeline, memory by category, bubbles by stage, scaling, and where the costs come from. It loads nothing
// from elsewhere; the plots are drawn by Vega-Lite, which is inlined.
#pragma once

#include <string>
#include <vector>

#include "reports/outcome.h"
#include "reports/scaling.h"

namespace windtunnel {

// `scalings` has one entry for each outcome, in the same order.
std::string HtmlReport(const std::vector<Outcome>& outcomes, const std::vector<Scaling>& scalings);

// The report of a search: what it found (`search` is windtunnel/search/1), and the whole report of the best
// configuration if that was predicted in full.
std::string SearchHtmlReport(const std::string& search, const std::vector<Outcome>& best,
                             const std::vector<Scaling>& scalings);

}  // namespace windtunnel
