#include "reports/explain.h"

#include "cli/commands.h"
#include "cli/session.h"
#include "scenarios/load.h"

namespace windtunnel {

Result<int> ExplainCommand(const Options& options) {
  WT_ASSIGN_OR_RETURN(Scenario scenario, LoadWithOverrides(options, options.files.front()));
  if (options.resolved) {
    fmt::print("{}", ResolvedYaml(scenario));
    return 0;
  }
  WT_ASSIGN_OR_RETURN(Plan plan, CompilePlan(scenario));
  Ink ink = StandardInk();
  WT_ASSIGN_OR_RETURN(std::string memory, ExplainMemory(plan, ink));
  if (options.memory) {
    fmt::print("{}", memory);
    return 0;
  }
  std::string buckets = ExplainBuckets(plan, ink);
  WT_ASSIGN_OR_RETURN(Outcome outcome, PredictOutcome(options, std::move(plan)));
  fmt::print("{}{}{}", ExplainTime(outcome.plan, *outcome.prediction, ink), buckets, memory);
  return 0;
}

}  // namespace windtunnel
