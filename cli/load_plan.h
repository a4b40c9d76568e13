// From a scenario file and the options to a scenario or a plan, with errors that name the place of a key.
//
//   WT_ASSIGN_OR_RETURN(Plan plan, LoadPlan(options, file, PlanFor::kPrediction));
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "plan/plan.h"
#include "scenarios/overrides.h"

namespace windtunnel {

// Whether this process is a rank of a job that another launcher started. Only `run` joins one; for other
// commands the environment does not count.
bool JoinsJob(const Options& options);

// Those of --set and --seed.
Result<std::vector<Override>> OverridesOf(const Options& options);
// The scenario of `file` with --set and --seed applied. LoadPlan also compiles it.
Result<Scenario> LoadWithOverrides(const Options& options, const std::string& file);
// The use of a plan. One that will not be run takes less memory (CompileOptions::predicts).
enum class PlanFor { kRun, kPrediction };
// Compiles the scenario. A pipeline's layers are balanced by the costs that the options name, if those are
// known already.
Result<Plan> CompileBalanced(const Options& options, Scenario scenario, PlanFor what);
// Also notes what of the scenario has no effect.
Result<Plan> LoadPlan(const Options& options, const std::string& file, PlanFor what);

// Checks the data that ranks of a live run read, before any begins. Errors: MakeDataSource's, with the place.
Status CheckData(const Options& options, const Plan& plan);

// If `error` begins with a key of the scenario `file`, prefixes the key's place: "FILE:LINE:COLUMN:
// parallel.data.wrap: …".
Error Placed(const Options& options, const std::string& file, Error error);

}  // namespace windtunnel
