// The picture of a pipeline: a lane for each pipeline rank, a block for each forward, backward, input-gradient and
// weight-gradient with its micro-batch's number where that fits, tinted by virtual stage; then what synchronises gradients, and
// the optimizer. Waiting for another stage is left blank: that is the bubble, whose share of the step stands beside the lane.
// Below each lane, in a thin one, what the rank sends and its collectives.
//
// Lanes are of the first data-parallel and the first tensor rank. Blocks too small to be told apart are merged, which keeps sixteen
// ranks with hundreds of micro-batches below a megabyte.
#pragma once

#include <string>

#include "reports/outcome.h"

namespace windtunnel {

// `total`: what the axis covers. REQUIRES: outcome.plan.pipeline.
std::string PipelineSvg(const Outcome& outcome, Duration total);

}  // namespace windtunnel
