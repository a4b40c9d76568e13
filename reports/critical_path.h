// The chain of operators, over all ranks, that decided when a step ended.
//
// The path is found by walking back from the end. An operator's predecessor is whichever of these ended last
// before it started: the operator before it on its stream, its dependencies, what the host waited for before
// it issued the operator, and (for communication) the compute operator before it in the program, since the
// host issues in program order. A collective starts in earnest when its last rank arrives, and a message when
// both ends are there, so the walk goes on at the rank that came last.
#pragma once

#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

struct PathSegment {
  int rank = 0;
  OpIndex op = -1;  // in the rank's steady program; -1: nothing ran (dispatch)
  Duration start, end;
};

// In time order without gaps, from 0 to the step's end. Empty if the timelines have no spans.
std::vector<PathSegment> CriticalPath(const Plan& plan, const std::vector<Timeline>& timelines);

}  // namespace windtunnel
