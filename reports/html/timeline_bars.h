// A timeline as bars to draw, no more than there is room for.
#pragma once

#include <string>
#include <vector>

#include "plan/timeline.h"
#include "reports/operator_groups.h"

namespace windtunnel {

struct TimelineBar {
  StreamId stream = -1;
  const OperatorGroup* group = nullptr;
  std::string name;
  Duration start, end;
  Duration busy;  // of which operators run
};

// One of each operator, neighbours of one group that touch together; where those are more than `most`, the timeline in as many slices as
// there is room for, each of the group that runs most of it. Without receives, which are posted early: the send says when its message
// went.
std::vector<TimelineBar> TimelineBars(const Timeline& timeline, const Program& program, size_t most);

}  // namespace windtunnel
