#include "runtime/run_length.h"

#include <algorithm>

namespace windtunnel {

RunLength LengthOf(const Plan& plan) {
  const RunSpec& run = plan.scenario.run;
  const int64_t startup = plan.roles.front().FirstSteadyStep();  // the same in all roles
  const int64_t warmup = std::max(run.warmup, startup);
  return {warmup, warmup + run.steps};
}

}  // namespace windtunnel
