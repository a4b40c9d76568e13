// What `windtunnel run` reports of steps while they run.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"

namespace windtunnel {

struct StepReporting {
  int64_t every = 1;             // reports the first step of this run, and those whose number this divides
  bool lines = false;            // on standard error
  std::string tensorboard = {};  // a directory for event files; empty: none
  FlopRate peak = {};            // a device's dense peak, for MFU; 0: not known
  bool is_restart = false;       // of a job that has failed before: what it wrote then of these steps is void

  bool any() const { return lines || !tensorboard.empty(); }
};

}  // namespace windtunnel
