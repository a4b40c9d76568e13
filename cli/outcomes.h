// Outcomes of the commands that take scenarios: predicting one, and writing them to where the options say.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/costs.h"
#include "cli/options.h"
#include "plan/plan.h"
#include "reports/outcome.h"
#include "reports/scaling.h"

namespace windtunnel {

// Whether one of the outputs goes to standard output.
bool PrintsAnOutput(const Options& options);

// Errors: InvalidInput if the options ask for reports that cannot be made of these files, or that could not
// be written.
Status CheckReports(const Options& options);

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

}  // namespace windtunnel
