// What the scenario commands share: loading a plan, and putting outcomes where the options ask for them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/costs.h"
#include "cli/options.h"
#include "plan/plan.h"
#include "reports/ink.h"
#include "reports/outcome.h"
#include "reports/progress.h"
#include "reports/scaling.h"
#include "runtime/live.h"
#include "scenarios/overrides.h"

namespace windtunnel {

// Whether this process is a rank of a job that something else launched: only `run` joins one, whatever the environment of others says.
bool JoinsJob(const Options& options);

// --set and --seed.
Result<std::vector<Override>> OverridesOf(const Options& options);
// The scenario of `file` with --set and --seed applied; and compiled.
Result<Scenario> LoadWithOverrides(const Options& options, const std::string& file);
// What a plan is for: one that nothing will run takes less memory (CompileOptions::predicts).
enum class PlanFor { kRun, kPrediction };
// A pipeline's layers are balanced by the costs that the options name, where they are known already.
Result<Plan> CompileBalanced(const Options& options, Scenario scenario, PlanFor what);
Result<Plan> LoadPlan(const Options& options, const std::string& file, PlanFor what);

// Errors: InvalidInput when the options ask for reports that cannot be made of these files, or that could not be written.
Status CheckReports(const Options& options);

// What ranks of a live run read, before any begins. Errors: MakeDataSource's, with the place.
Status CheckData(const Options& options, const Plan& plan);

// The error with the place of the key of the scenario `file` that it begins with, if it does: "FILE:LINE:COLUMN: parallel.data.wrap: …".
Error Placed(const Options& options, const std::string& file, Error error);

// The prediction of `plan` with the time it took.
Result<Outcome> PredictOutcome(const Options& options, Plan plan);

// Tables to standard output (nothing when JSON goes there, only verdicts when quiet), then the files asked for.
Status Report(const Options& options, const std::vector<Outcome>& outcomes);
// The files alone.
Status WriteReports(const Options& options, const std::vector<Outcome>& outcomes);
// For --html, from the same costs as the outcomes; of a live run alone, which has none, nothing is predicted.
std::vector<Scaling> ScalingsOf(const std::vector<Outcome>& outcomes);

// Colours when standard output is a terminal that shows them and NO_COLOR is not set.
Ink StandardInk();

// Shows live work on `progress`; both arguments must outlive what is returned.
LiveOptions LiveOptionsFor(const Options& options, Progress& progress);
bool ShowsProgress(const Options& options);

// --threads; by default one for each core.
int ThreadsFor(const Options& options);
double SecondsSince(std::chrono::steady_clock::time_point begin);

// What of the scenario the costs do not follow, in notes.
void NoteCosts(const Options& options, const Costs& costs, const Scenario& scenario);

// A line on standard error, unless quiet.
void Note(const Options& options, const std::string& line);

}  // namespace windtunnel
