// A timeline as bars to draw, of limited number.
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
  Duration busy;  // the part of the bar in which operators run
};

// One bar per operator; neighbours of one group that touch share a bar. If that gives more than `most` bars,
// the timeline is cut into as many slices as there is room for, and each slice gets the group that runs
// longest in it. Receives are left out because they are posted early: the send shows when its message went.
std::vector<TimelineBar> TimelineBars(const Timeline& timeline, const Program& program, size_t most);

}  // namespace windtunnel
