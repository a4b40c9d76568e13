// A picture of a step: the predicted timeline above the measured one on one time axis, a lane per rank and
// stream, operators coloured by group. Self-contained SVG on a white ground, for a README or a slide.
#pragma once

#include <string>

#include "reports/outcome.h"

namespace windtunnel {

// At most `max_ranks` ranks of each side are drawn.
std::string TimelineSvg(const Outcome& outcome, int max_ranks = 8);

}  // namespace windtunnel
