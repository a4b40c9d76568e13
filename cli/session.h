// What the commands that take a scenario share: loading a plan, and writing outcomes to where the options
// say.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
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

// Whether one of the outputs goes to standard output.
bool PrintsAnOutput(const Options& options);

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
Result<Plan> LoadPlan(const Options& options, const std::string& file, PlanFor what);

// Errors: InvalidInput if the options ask for reports that cannot be made of these files, or that could not
// be written.
Status CheckReports(const Options& options);

// Checks the data that ranks of a live run read, before any begins. Errors: MakeDataSource's, with the place.
Status CheckData(const Options& options, const Plan& plan);

// If `error` begins with a key of the scenario `file`, prefixes the key's place: "FILE:LINE:COLUMN:
// parallel.data.wrap: …".
Error Placed(const Options& options, const std::string& file, Error error);

// The prediction of `plan`, and the time that it took, from the costs that the options name or from `costs`.
Result<Outcome> PredictOutcome(const Options& options, Plan plan);
Result<Outcome> PredictOutcome(const Options& options, const Costs& costs, Plan plan);

// Prints tables to standard output (nothing if an output such as JSON goes there, only verdicts if quiet),
// then writes the files asked for.
Status Report(const Options& options, const std::vector<Outcome>& outcomes);
// Writes the files only.
Status WriteReports(const Options& options, const std::vector<Outcome>& outcomes);
// For --html, predicted from the outcomes' costs. The entry is empty for a live run without a prediction,
// which has no costs, and for measured costs, which know no collectives of other numbers of ranks.
std::vector<Scaling> ScalingsOf(const std::vector<Outcome>& outcomes);

// Colours when standard output is a terminal that shows them and NO_COLOR is not set.
Ink StandardInk();

// Shows live work on `progress`. Both arguments must outlive the result.
LiveOptions LiveOptionsFor(const Options& options, Progress& progress);
bool ShowsProgress(const Options& options);

// --threads; by default one per core.
int ThreadsFor(const Options& options);
double SecondsSince(std::chrono::steady_clock::time_point begin);
Duration TimeSince(std::chrono::steady_clock::time_point begin);

// Notes the keys that the scenario gives and nothing reads.
void NoteKeysWithoutEffect(const Options& options, const Scenario& scenario);

// Notes where the costs do not follow the scenario.
void NoteCosts(const Options& options, const Costs& costs, const Scenario& scenario);

// Prints a line on standard error, unless quiet.
void Note(const Options& options, const std::string& line);

}  // namespace windtunnel
