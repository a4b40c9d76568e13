// The picture of a pipeline. It has a lane for each pipeline rank and a block for each forward, backward,
// input-gradient and weight-gradient, tinted by virtual stage, with its micro-batch's number where that fits;
// then come blocks for the synchronisation of gradients and for the optimizer. Waiting for another stage is
// left blank: that is the bubble, whose share of the step stands beside the lane. A thin lane below each
// shows what the rank sends and its collectives.
//
// The lanes are those of the first data-parallel and the first tensor rank. Blocks too small to be told apart
// are merged, which keeps sixteen ranks with hundreds of micro-batches below a megabyte.
#pragma once

#include <string>

#include "reports/outcome.h"

namespace windtunnel {

// `total` is the time that the axis covers. REQUIRES: outcome.plan.pipeline.
std::string PipelineSvg(const Outcome& outcome, Duration total);

}  // namespace windtunnel
