// A stage's forward or backward of a micro-batch, as an action of a pipeline's schedule.
#pragma once

#include <cstdint>
#include <span>

#include "sim/composed/stage_memory.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

struct StageAction {
  PartRuns runs;
  int32_t made_at = -1;  // index of the model's operator that makes the message; -1: none
  int64_t host = 0;      // picoseconds of all its operators
  // Whether it takes the same time whenever it begins, if the host is far enough ahead (the host's time minus
  // the action's beginning is at most `slack`), nothing else is in flight and the other queues that models
  // use are idle. Otherwise it has to be walked. `made`: when its message is made.
  bool is_regular = false;
  int64_t duration = 0, made = 0, slack = 0;
  // The same for an action that begins when the host has waited for the device, so that the host's work
  // begins with it. False unless requested (`from_idle`).
  bool is_regular_from_idle = false;
  int64_t duration_from_idle = 0, made_from_idle = 0;
  int64_t host_from_idle = 0;  // when all is issued; more than `host` if the host waits on the way
  bool holds_host = false;     // some operator does (TimedOp::holds_host)
  ActionMemory memory;
};

// `units`: how often each unit of the stage occurs. `from_idle`: hosts wait for messages. The stage or pass
// must outlive the action.
StageAction MakeForward(const StageTemplate& stage, std::span<const LayerUnit> units, bool from_idle);
StageAction MakeBackward(const StagePass& pass, std::span<const LayerUnit> units, bool from_idle);

}  // namespace windtunnel::composed
