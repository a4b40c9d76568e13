#include "cli/step_calibration.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/format.h"
#include "base/median.h"
#include "base/random.h"
#include "cli/notes.h"
#include "cli/paths.h"
#include "cost_models/residual_fit.h"

namespace windtunnel {
namespace {

// The measured step time of each row. Errors: InvalidInput for a row that cannot be predicted, or has no step
// time.
Result<std::vector<double>> Measured(const std::vector<SourcedRow>& rows,
                                     const std::vector<RowOutcome>& outcomes) {
  std::vector<double> measured;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (outcomes[i].error) return InvalidInput("{}: {}", rows[i].row.id, outcomes[i].error->message);
    if (outcomes[i].values.front().quantity != kStepTime)
      return InvalidInput("{}: has no step time to fit to", rows[i].row.id);
    measured.push_back(outcomes[i].values.front().measured);
  }
  return measured;
}

double MeanError(const std::vector<RowOutcome>& outcomes) {
  double sum = 0;
  for (const RowOutcome& outcome : outcomes)
    sum += std::fabs(outcome.values.front().predicted / outcome.values.front().measured - 1);
  return sum / static_cast<double>(outcomes.size());
}

// Errors: InvalidInput if no row of `source` is left.
Status LeaveOutRowsWithoutTime(const Options& options, const std::string& source,
                               std::vector<SourcedRow>& rows) {
  const size_t without =
      std::erase_if(rows, [](const SourcedRow& row) { return !HasStepTime(row.row.measured); });
  if (rows.empty()) return InvalidInput("{}: no row has a step time to fit to", source);
  if (without > 0)
    Note(options, fmt::format("{} without a step time {} left out",
                              Counted(static_cast<int64_t>(without), "row"), without == 1 ? "is" : "are"));
  return Ok();
}

Result<ResidualFit> Fit(const RowPredictor& predictor, const std::vector<SourcedRow>& rows) {
  const std::vector<RowOutcome> before = predictor.PredictAll(rows, "fitting");
  WT_ASSIGN_OR_RETURN(const std::vector<double> measured, Measured(rows, before));
  const auto predict = [&](const ResidualFactors& factors) -> Result<std::vector<double>> {
    const std::vector<RowOutcome> outcomes = predictor.PredictAll(rows, "fitting", factors);
    std::vector<double> times;
    for (const RowOutcome& outcome : outcomes) {
      if (outcome.error) return tl::make_unexpected(*outcome.error);
      times.push_back(outcome.values.front().predicted);
    }
    return times;
  };
  std::vector<LayerShape> shapes;
  for (const SourcedRow& row : rows) {
    WT_ASSIGN_OR_RETURN(const Scenario scenario, predictor.ScenarioFor(row));
    shapes.push_back(LayerShapeOf(scenario));
  }
  WT_ASSIGN_OR_RETURN(ResidualFit fit, FitResiduals(measured, shapes, predict));
  fit.before = MeanError(before);  // with the framework profile's own residuals, which the fit replaces
  return fit;
}

std::string EstimateText(const ResidualEstimate& estimate) {
  if (!estimate.is_identified) return "1 (these rows do not tell)";
  return fmt::format("{:.3f} ({:.3f} to {:.3f}){}", estimate.value, estimate.low, estimate.high,
                     estimate.is_at_limit ? ", at its limit" : "");
}

// "12 shapes: 0.830 (4 x 1024 tokens, hidden 1024, 2 tensor ranks) to 1.190 (…)"
std::string LayersText(const LayerFactors& layers) {
  const auto by_factor = [](const auto& a, const auto& b) { return a.factor < b.factor; };
  const auto text = [](const LayerFactors::Known& known) {
    const LayerShape& shape = known.shape;
    return fmt::format("{:.3f} ({} x {} tokens, hidden {}, {})", known.factor, shape.micro, shape.seq_len,
                       shape.hidden, Counted(shape.tensor, "tensor rank"));
  };
  if (layers.empty()) return "1 (nothing is gained by their shape)";
  const auto [least, most] = std::minmax_element(layers.known().begin(), layers.known().end(), by_factor);
  const std::string range =
      least == most ? text(*least)
                    : fmt::format("{} shapes: {} to {}", layers.known().size(), text(*least), text(*most));
  const double furthest = std::max(std::fabs(std::log(least->factor)), std::fabs(std::log(most->factor)));
  return range + (furthest > 0.999 * kMostOfLayers ? ", at their limit" : "");
}

// "0.83-1.19"
std::string RangeOf(const LayerFactors& layers) {
  double least = 1, most = 1;
  for (const LayerFactors::Known& known : layers.known()) {
    least = std::min(least, known.factor);
    most = std::max(most, known.factor);
  }
  return fmt::format("{:.2f}-{:.2f}", least, most);
}

// Errors above this share cannot be explained by factors: the times are of something else, or in another
// unit.
constexpr double kUnexplained = 0.5;

// "a (+9900 %), b (-98 %)": the rows with the largest errors among those that no factors explain; empty if
// there are none.
std::string Unexplained(const std::vector<SourcedRow>& rows, const ResidualFit& fit) {
  constexpr size_t kNamed = 3;
  const auto distance = [&](size_t row) { return std::fabs(std::log1p(fit.errors[row])); };
  std::vector<size_t> far;
  for (size_t i = 0; i < rows.size(); ++i)
    if (distance(i) > std::log1p(kUnexplained)) far.push_back(i);
  std::stable_sort(far.begin(), far.end(), [&](size_t a, size_t b) { return distance(a) > distance(b); });
  std::string text;
  for (size_t i = 0; i < std::min(far.size(), kNamed); ++i)
    text += fmt::format("{}{} ({:+.3g} %)", i > 0 ? ", " : "", rows[far[i]].row.id, 100 * fit.errors[far[i]]);
  return far.size() > kNamed ? text + fmt::format(" and {} more", far.size() - kNamed) : text;
}

// Errors: Failed if half of the rows are not explained.
Status CheckExplained(const std::vector<SourcedRow>& rows, const ResidualFit& fit) {
  std::vector<double> errors;
  for (double error : fit.errors) errors.push_back(std::fabs(std::log1p(error)));
  if (Median(std::move(errors)) <= std::log1p(kUnexplained)) return Ok();
  return Failed(
      "half of the rows stay more than {:.0f} % off whatever is fitted: {}; are the times seconds, and of "
      "these scenarios?",
      100 * kUnexplained, Unexplained(rows, fit));
}

std::string PairOrderText(const std::optional<double>& order) { return order ? FormatPercent(*order) : "-"; }

// The rows' framework. Errors: InvalidInput if they are of several.
Result<std::string> OneFramework(const RowPredictor& predictor, const std::vector<SourcedRow>& rows) {
  std::string name;
  for (const SourcedRow& row : rows) {
    WT_ASSIGN_OR_RETURN(const FrameworkProfile framework, predictor.FrameworkFor(row));
    if (!name.empty() && framework.name != name)
      return InvalidInput("rows are of {} and {} ({}): a profile is of one framework{}", name, framework.name,
                          row.row.id,
                          name.ends_with("fsdp1") || framework.name.ends_with("fsdp1")
                              ? " (pytorch_fsdp1 is framework: pytorch with parallel.data {kind: fsdp, "
                                "version: 1}, the PyTorch of its time)"
                              : "");
    name = framework.name;
  }
  return name;
}

// A random draw of `count` of the numbers 0 … n - 1, the same on every machine, in ascending order.
std::vector<size_t> Draw(size_t n, size_t count, uint64_t seed) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  RandomStream random(seed, 0);
  for (size_t i = 0; i < count; ++i) {
    const size_t left = n - i;
    const size_t at =
        i + std::min(left - 1, static_cast<size_t>(random.Uniform() * static_cast<double>(left)));
    std::swap(order[i], order[at]);
  }
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

struct CrossFitResult {
  double mape = 0;
  std::optional<double> pair_order;
  ResidualFit fit;
};

Result<CrossFitResult> FitAndHoldOut(const RowPredictor& predictor, const std::vector<SourcedRow>& rows,
                                     double share, uint64_t seed) {
  const size_t wanted = static_cast<size_t>(std::llround(share * static_cast<double>(rows.size())));
  const std::vector<size_t> drawn =
      Draw(rows.size(), std::min(std::max(wanted, kFewestRows), rows.size()), seed);
  std::vector<SourcedRow> fitted, others;
  if (drawn.size() == rows.size())
    return InvalidInput(
        "{}: {} of {} rows are fitted to, expected fewer, so that there are others to predict",
        rows.front().source, drawn.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    (std::binary_search(drawn.begin(), drawn.end(), i) ? fitted : others).push_back(rows[i]);
  CrossFitResult result;
  WT_ASSIGN_OR_RETURN(result.fit, Fit(predictor, fitted));
  const Validation after =
      Collect(others, predictor.PredictAll(others, "predicting the others", result.fit.factors));
  const ErrorStatistics statistics = StatisticsOf(after, "");
  result.mape = statistics.mape;
  result.pair_order = statistics.pair_order;
  return result;
}

}  // namespace

// The framework profile to write. For a built-in framework: that framework with the residuals. For one from a
// file: everything that the file says, with these residuals.
Result<std::string> CalibratedText(const RowPredictor& predictor, const SourcedRow& row,
                                   const ResidualFactors& factors,
                                   const std::map<std::string, std::string>& sources) {
  WT_ASSIGN_OR_RETURN(const FrameworkProfile framework, predictor.FrameworkFor(row));
  const std::string name = framework.name + (framework.name.ends_with("-calibrated") ? "" : "-calibrated");
  WT_ASSIGN_OR_RETURN(const std::string text, predictor.FrameworkTextFor(row));
  if (text.empty()) return CalibratedFrameworkJson(name, framework.name, factors, sources);
  return CalibratedFrameworkJson(text, framework.name, name, factors, sources);
}

Result<int> CalibrateSteps(const Options& options) {
  WT_ASSIGN_OR_RETURN(std::vector<SourcedRow> rows, LoadRows(options.steps));
  WT_RETURN_IF_ERROR(LeaveOutRowsWithoutTime(options, options.steps.front(), rows));
  WT_ASSIGN_OR_RETURN(const RowPredictor predictor, RowPredictor::Make(options));
  WT_ASSIGN_OR_RETURN(const std::string base, OneFramework(predictor, rows));
  WT_ASSIGN_OR_RETURN(const ResidualFit fit, Fit(predictor, rows));
  WT_RETURN_IF_ERROR(CheckExplained(rows, fit));
  std::map<std::string, std::string> sources;
  for (const auto& [name, estimate] : fit.estimates)
    sources["residuals." + name] =
        fmt::format("{}; fitted to {} measured steps", EstimateText(estimate), rows.size());
  sources["residuals.layers"] = fmt::format("{}; of what the other residuals leave of {} measured steps",
                                            LayersText(fit.factors.layers), rows.size());
  if (!options.out.empty()) {
    WT_ASSIGN_OR_RETURN(const std::string text,
                        CalibratedText(predictor, rows.front(), fit.factors, sources));
    WT_RETURN_IF_ERROR(WriteText(options.out, text));
  }
  if (options.quiet || options.out == "-") return 0;
  std::string text = fmt::format("{} rows of {}: mean error {:.1f} % before, {:.1f} % after\n\n", rows.size(),
                                 base, 100 * fit.before, 100 * fit.after);
  for (const char* name : kResidualNames)
    text += fmt::format("  {:<10} {}\n", name, EstimateText(fit.estimates.at(name)));
  text += fmt::format("  {:<10} {}\n", "layers", LayersText(fit.factors.layers));
  if (const std::string far = Unexplained(rows, fit); !far.empty())
    text += fmt::format("\nno factors explain {}\n", far);
  if (fit.after >= fit.before)
    text += "\nnothing is gained: these rows do not say what the framework's profile has wrong\n";
  if (!options.out.empty()) text += fmt::format("\n{}: predict with --framework-profile\n", options.out);
  WT_RETURN_IF_ERROR(Print(text));
  return 0;
}

Result<int> CrossFit(const Options& options, const RowPredictor& predictor,
                     const std::vector<SourcedRow>& rows) {
  std::vector<std::string> sources;
  for (const SourcedRow& row : rows)
    if (sources.empty() || sources.back() != row.source) sources.push_back(row.source);
  bool has_head = false;  // printed with the first row, so that no table without rows precedes an error
  for (const std::string& source : sources) {
    std::vector<SourcedRow> own;
    for (const SourcedRow& row : rows)
      if (row.source == source) own.push_back(row);
    WT_RETURN_IF_ERROR(LeaveOutRowsWithoutTime(options, source, own));
    double sum = 0;
    std::vector<double> orders;  // of the draws that leave pairs of rows
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      WT_ASSIGN_OR_RETURN(const CrossFitResult result,
                          FitAndHoldOut(predictor, own, *options.cross_fit, static_cast<uint64_t>(seed)));
      const size_t fitted =
          std::max(static_cast<size_t>(std::llround(*options.cross_fit * static_cast<double>(own.size()))),
                   kFewestRows);
      std::string text;
      if (!has_head)
        text = fmt::format("{:<18} {:>5} {:>7} {:>6} {:>8} {:>11}\n", "source", "seed", "fitted", "rows",
                           "MAPE", "pair order");
      has_head = true;
      text += fmt::format("{:<18} {:>5} {:>7} {:>6} {:>6.1f} % {:>11}", source, seed, fitted,
                          own.size() - fitted, 100 * result.mape, PairOrderText(result.pair_order));
      ResidualFactors factors = result.fit.factors;
      for (const char* name : kResidualNames)
        text += fmt::format("  {} {:.2f}", name, Residual(factors, name));
      WT_RETURN_IF_ERROR(Print(text + fmt::format("  layers {}\n", RangeOf(factors.layers))));
      sum += result.mape;
      if (result.pair_order) orders.push_back(*result.pair_order);
    }
    const double seeds = static_cast<double>(options.seeds);
    std::optional<double> order;
    if (!orders.empty())
      order = std::accumulate(orders.begin(), orders.end(), 0.0) / static_cast<double>(orders.size());
    WT_RETURN_IF_ERROR(Print(fmt::format("{:<18} {:>5} {:>7} {:>6} {:>6.1f} % {:>11}\n", source, "mean", "",
                                         "", 100 * sum / seeds, PairOrderText(order))));
  }
  return 0;
}

}  // namespace windtunnel
