#include "cli/outcomes.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/parallel.h"
#include "cli/elapsed.h"
#include "cli/load_plan.h"
#include "cli/notes.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "reports/html/html_report.h"
#include "reports/ink.h"
#include "reports/result.h"
#include "reports/svg.h"
#include "reports/table.h"
#include "reports/trace.h"
#include "runtime/live.h"

namespace windtunnel {
namespace {

Status PrintTables(const Options& options, const std::vector<Outcome>& outcomes) {
  if (PrintsAnOutput(options)) return Ok();
  Ink ink = StandardInk();
  std::string text;
  if (!options.quiet)
    for (size_t i = 0; i < outcomes.size(); ++i) text += (i > 0 ? "\n" : "") + OutcomeTable(outcomes[i], ink);
  if (options.quiet || outcomes.size() > 1) {
    if (!options.quiet) text += "\n";
    for (const Outcome& outcome : outcomes)
      if (const std::string verdict = VerdictLine(outcome, ink); !verdict.empty()) text += verdict + "\n";
  }
  return Print(text);
}

// All but the HTML report, which takes seconds.
Status WriteData(const Options& options, const std::vector<Outcome>& outcomes) {
  if (!options.json.empty()) WT_RETURN_IF_ERROR(WriteText(options.json, ResultJson(outcomes)));
  if (!options.trace.empty()) WT_RETURN_IF_ERROR(WriteText(options.trace, TraceJson(outcomes.front())));
  if (!options.svg.empty()) WT_RETURN_IF_ERROR(WriteText(options.svg, TimelineSvg(outcomes.front())));
  return Ok();
}

Status WriteHtmlReport(const Options& options, const std::vector<Outcome>& outcomes) {
  if (options.html.empty()) return Ok();
  return WriteText(options.html, HtmlReport(outcomes, ScalingsOf(outcomes)));
}

}  // namespace

bool PrintsAnOutput(const Options& options) {
  return options.json == "-" || options.html == "-" || options.trace == "-" || options.svg == "-";
}

Status CheckReports(const Options& options) {
  if (options.files.size() > 1 && !(options.trace.empty() && options.svg.empty()))
    return InvalidInput("--trace and --svg take one scenario, {} were given", options.files.size());
  int to_stdout =
      (options.json == "-") + (options.trace == "-") + (options.svg == "-") + (options.html == "-");
  if (to_stdout > 1)
    return InvalidInput("only one of --json, --html, --trace and --svg can go to standard output");
  // In a job on several nodes, or of another launcher, only the first node or rank writes outputs.
  const bool is_first = options.node_rank.value_or(0) == 0 && (!JoinsJob(options) || IsFirstRankOfJob());
  return is_first ? CheckOutputFiles(options) : Ok();
}

Result<Outcome> PredictOutcome(const Options& options, const Costs& costs, Plan plan) {
  NoteCosts(options, costs, plan.scenario);
  const auto begin = std::chrono::steady_clock::now();
  WT_ASSIGN_OR_RETURN(Prediction prediction, PredictFrom(costs, plan, options.fold, Cores()));
  Outcome outcome;
  outcome.prediction_wall = TimeSince(begin);
  outcome.plan = std::move(plan);
  outcome.profile = costs.profile;
  outcome.prediction = std::move(prediction);
  return outcome;
}

Result<Outcome> PredictOutcome(const Options& options, Plan plan) {
  WT_ASSIGN_OR_RETURN(const Costs costs, FindCosts(options, plan));
  return PredictOutcome(options, costs, std::move(plan));
}

// Files come first: whoever reads the tables may stop reading, and a closed pipe ends this process.
Status Report(const Options& options, const std::vector<Outcome>& outcomes) {
  const Status written = WriteData(options, outcomes);
  WT_RETURN_IF_ERROR(PrintTables(options, outcomes));
  WT_RETURN_IF_ERROR(written);
  return WriteHtmlReport(options, outcomes);
}

Status WriteReports(const Options& options, const std::vector<Outcome>& outcomes) {
  WT_RETURN_IF_ERROR(WriteData(options, outcomes));
  return WriteHtmlReport(options, outcomes);
}

std::vector<Scaling> ScalingsOf(const std::vector<Outcome>& outcomes) {
  std::vector<Scaling> scalings;
  for (const Outcome& outcome : outcomes) {
    Scaling& scaling = scalings.emplace_back();
    if (!outcome.prediction || !outcome.profile.hardware) continue;
    Costs costs;
    costs.profile = outcome.profile;
    scaling =
        PredictScaling(outcome.plan.scenario, [&](const Plan& plan) { return PredictFrom(costs, plan); });
  }
  return scalings;
}

}  // namespace windtunnel
