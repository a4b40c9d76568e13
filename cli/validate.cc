#include <algorithm>

#include "cli/commands.h"
#include "cli/outcomes.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "cli/row_predictions.h"
#include "cli/step_calibration.h"
#include "cli/terminal.h"
#include "reports/validation_report.h"
#include "scenarios/characters.h"

namespace windtunnel {

Result<int> ValidateCommand(const Options& options) {
  WT_RETURN_IF_ERROR(CheckOutputFiles(options));
  if (options.json == "-" && options.svg == "-")
    return InvalidInput("only one of --json and --svg can go to standard output");
  if (options.cross_fit && !(options.json.empty() && options.svg.empty()))
    return InvalidInput("--cross-fit prints a table of its own, expected it without --json and --svg");
  WT_ASSIGN_OR_RETURN(const std::vector<SourcedRow> rows, LoadRows(options.files));
  WT_ASSIGN_OR_RETURN(const RowPredictor predictor, RowPredictor::Make(options));
  WT_RETURN_IF_ERROR(predictor.CheckOverrides(rows.front()));
  WT_RETURN_IF_ERROR(predictor.CheckOutputs(rows));
  if (options.cross_fit) return CrossFit(options, predictor, rows);
  const Validation validation = Collect(rows, predictor.PredictAll(rows, "predicting rows"));
  // Files come first: whoever reads the table may stop reading, and a closed pipe ends this process.
  if (!options.json.empty()) WT_RETURN_IF_ERROR(WriteText(options.json, ValidationJson(validation)));
  if (!options.svg.empty()) WT_RETURN_IF_ERROR(WriteText(options.svg, ValidationSvg(validation)));
  if (!PrintsAnOutput(options)) {
    Ink ink = StandardInk();
    WT_RETURN_IF_ERROR(
        Print(options.quiet ? ValidationSummary(validation, ink) : ValidationTable(validation, ink)));
  }
  if (options.quiet && !validation.refused.empty()) {
    const RefusedRow& first = validation.refused.front();
    fmt::print(stderr, "windtunnel: {} of {} rows {} refused, first '{}' of {}: {}\n",
               validation.refused.size(), rows.size(), validation.refused.size() == 1 ? "is" : "are",
               Printable(first.id), first.source, Printable(first.reason));
  }
  const ErrorStatistics all = StatisticsOf(validation, "");
  return all.rows > 0 && all.within_tolerance == all.rows ? 0 : kOutsideTolerance;
}

}  // namespace windtunnel
