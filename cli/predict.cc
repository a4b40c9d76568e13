#include "cli/commands.h"
#include "cli/load_plan.h"
#include "cli/outcomes.h"

namespace windtunnel {

Result<int> PredictCommand(const Options& options) {
  WT_RETURN_IF_ERROR(CheckReports(options));
  WT_ASSIGN_OR_RETURN(Plan plan, LoadPlan(options, options.files.front(), PlanFor::kPrediction));
  std::vector<Outcome> outcomes(1);
  WT_ASSIGN_OR_RETURN(outcomes[0], PredictOutcome(options, std::move(plan)));
  outcomes[0].train_tokens = options.tokens;
  WT_RETURN_IF_ERROR(Report(options, outcomes));
  return 0;
}

}  // namespace windtunnel
