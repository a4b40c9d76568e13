// Combines what each rank measured into the Measurement of the run.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "runtime/job.h"
#include "runtime/measurement.h"

namespace windtunnel {

// `runs` by rank. Failed when the ranks disagree on the number of steps.
Result<Measurement> Assemble(const Plan& plan, std::vector<RankRun> runs);

}  // namespace windtunnel
