// How many steps a live run has.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace windtunnel {

struct RunLength {
  int64_t warmup = 0;  // not measured: run.warmup, or as many as differ from the later ones if those are more
  int64_t steps = 0;   // of the whole run: the warm-up, and run.steps
};

// Of a plan compiled with CompileOptions::starts_up. Two ranks with ddp, run.warmup: 0 and run.steps: 4
// -> {2, 6}.
RunLength LengthOf(const Plan& plan);

}  // namespace windtunnel
