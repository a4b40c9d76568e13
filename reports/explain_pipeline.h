// What `windtunnel explain` says about a pipeline: its stages and how balanced they are, what each rank
// holds, and why it idles as long as it does.
#pragma once

#include <string>

#include "plan/plan.h"
#include "reports/ink.h"
#include "sim/predict.h"

namespace windtunnel {

// Empty without a pipeline.
std::string ExplainPipeline(const Plan& plan, const Prediction& prediction, Ink ink);

}  // namespace windtunnel
