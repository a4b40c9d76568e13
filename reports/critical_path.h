// The chain of operators, over all ranks, that decided when a step ended.
//
// Walking back from the end: an operator's predecessor is whichever of these ended last before it started:
// the operator before it on its stream, its dependencies, and (for communication) the compute operator before
// it in the program, since the host issues in program order, and what the host waited for before it issued. A collective starts in earnest when its last
// rank arrives, and a message when both ends are there, so the walk goes on at whichever came last.
#pragma once

#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

struct PathSegment {
  int rank = 0;
  OpIndex op = -1;  // of the rank's steady program; -1: nothing ran (dispatch)
  Duration start, end;
};

// In time order without gaps, from 0 to the step's end. Empty without spans.
std::vector<PathSegment> CriticalPath(const Plan& plan, const std::vector<Timeline>& timelines);

}  // namespace windtunnel
