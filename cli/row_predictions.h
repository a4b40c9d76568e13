// Predictions of validation rows, on all cores: what `validate` reports and `calibrate --steps` fits to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/costs.h"
#include "cli/options.h"
#include "cli/validation_rows.h"
#include "cost_models/framework_profile.h"
#include "reports/validation.h"
#include "scenarios/overrides.h"

namespace windtunnel {

// A row with the file that it is from.
struct SourcedRow {
  std::string source;  // "foundry_a100"
  ValidationRow row;
};
Result<std::vector<SourcedRow>> LoadRows(const std::vector<std::string>& files);
// Whether one was measured, or something that it follows from.
bool HasStepTime(const PublishedMeasurement& measured);

// What became of one row.
struct RowOutcome {
  std::vector<ValidatedValue> values;
  std::optional<Error> error;
};

class RowPredictor {
 public:
  // `options` must outlive it. Errors: of the profiles that they name, which all rows need.
  static Result<RowPredictor> Make(const Options& options);

  // Errors: what the scenario cannot be predicted for. With `residuals`, instead of those of the framework's profile, memory is
  // left out, which they do not change, where a step time was measured too.
  Result<std::vector<ValidatedValue>> Predict(
      const SourcedRow& row, const std::optional<ResidualFactors>& residuals = std::nullopt) const;
  // On all cores; outcomes are by row, whichever came first. `label` is shown with the progress.
  std::vector<RowOutcome> PredictAll(const std::vector<SourcedRow>& rows, const std::string& label,
                                     const std::optional<ResidualFactors>& residuals = std::nullopt) const;
  // An override that no row can take: InvalidInput.
  Status CheckOverrides(const SourcedRow& row) const;
  // An output that one of the rows' scenarios reads: InvalidInput.
  Status CheckOutputs(const std::vector<SourcedRow>& rows) const;
  Result<Scenario> ScenarioFor(const SourcedRow& row) const;
  // The framework that the row's costs are of: the one named, or the scenario's.
  Result<FrameworkProfile> FrameworkFor(const SourcedRow& row) const;
  // The JSON that it was read from; empty: it is a known one.
  Result<std::string> FrameworkTextFor(const SourcedRow& row) const;

 private:
  RowPredictor(const Options& options, std::vector<Override> overrides, NamedCosts named)
      : options_(options),
        overrides_(std::move(overrides)),
        named_(std::move(named)),
        shelf_(std::make_unique<Shelf>()) {}

  // Profiles by name: rows by the hundred share a few.
  struct Shelf {
    std::mutex mutex;
    std::map<std::string, Costs> costs;
  };
  Result<const Costs*> CostsOf(const Plan& plan) const;

  const Options& options_;
  std::vector<Override> overrides_;
  NamedCosts named_;
  std::unique_ptr<Shelf> shelf_;
};

Validation Collect(const std::vector<SourcedRow>& rows, std::vector<RowOutcome> outcomes);

}  // namespace windtunnel
