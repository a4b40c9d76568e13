// A picture of a step: the predicted timeline above the measured one on one time axis, a lane per rank and
// stream, operators coloured by group. For a pipeline it is the schedule as papers draw it
// (reports/svg_pipeline.h). The SVG is self-contained and on a white ground, for a README or a slide.
#pragma once

#include <string>

#include "reports/outcome.h"

namespace windtunnel {

// Draws at most `max_ranks` ranks of each side, or every pipeline rank of a pipeline.
std::string TimelineSvg(const Outcome& outcome, int max_ranks = 8);

}  // namespace windtunnel
