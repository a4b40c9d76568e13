// The measuring loops of calibration, on one rank. The fits are in cost_models/fit.h.
#pragma once

#include "base/result.h"
#include "cost_models/fit.h"
#include "runtime/rank_session.h"

namespace windtunnel {

// Measures kernels in the order in which the program issues them, so that each finds caches and memory as a
// step leaves them, with all ranks running and without communication; then each collective, alone and under
// computation. Repeats this `rounds` times, so that slow drift of the machine is part of every
// distribution. Every rank calls it.
// Ranks that share a core take turns on it, so their kernels are timed by thread CPU time.
struct CalibrationOptions {
  int rounds = 4;
  double seconds = 6.0;       // approximate; for kernels and again for collectives
  bool under_compute = true;  // whether collectives are also measured under computation
  int64_t ranks_per_core = 1;
};
Result<CalibrationSamples> MeasureCosts(RankSession& session, Store& store,
                                        const CalibrationOptions& options);

}  // namespace windtunnel
