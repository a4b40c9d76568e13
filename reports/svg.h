// A picture of a step: the predicted timeline above the measured one on one time axis, a lane per rank and
// stream, operators coloured by group. Of a pipeline it is the schedule as papers draw it (reports/svg_pipeline.h). Self-contained
// SVG on a white ground, for a README or a slide.
#pragma once

#include <string>

#include "reports/outcome.h"

namespace windtunnel {

// At most `max_ranks` ranks of each side are drawn; of a pipeline, every pipeline rank.
std::string TimelineSvg(const Outcome& outcome, int max_ranks = 8);

}  // namespace windtunnel
