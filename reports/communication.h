// What each collective of a step waited for and how much of it computation hid.
#pragma once

#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

struct CommunicationUse {
  OpIndex op = -1;
  Duration ready;       // when its last dependency was done
  Duration start, end;  // on its stream
  Duration hidden;      // the part of end - start in which the compute stream was busy
};

// The communication operators of the rank's steady program, in program order.
std::vector<CommunicationUse> CommunicationUses(const Role& role, const Timeline& timeline);

}  // namespace windtunnel
