// Predictions of validation rows on all cores: `validate` reports them, and `calibrate --steps` fits to them.
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

// A row, and the source that it is from.
struct SourcedRow {
  std::string source;  // "foundry_a100"
  ValidationRow row;
};
Result<std::vector<SourcedRow>> LoadRows(const std::vector<std::string>& files);
// Whether a step time was measured, or a quantity that it follows from.
bool HasStepTime(const PublishedMeasurement& measured);

// The result of one row.
struct RowOutcome {
  std::vector<ValidatedValue> values;
  std::optional<Error> error;
};

class RowPredictor {
 public:
  // `options` must outlive the predictor. Errors: those of the profiles that the options name, which all rows
  // need.
  static Result<RowPredictor> Make(const Options& options);

  // Errors: the reason why the scenario cannot be predicted. `residuals` replace those of the framework's
  // profile. They do not change memory, so with them memory is left out if a step time was measured, too.
  Result<std::vector<ValidatedValue>> Predict(
      const SourcedRow& row, const std::optional<ResidualFactors>& residuals = std::nullopt) const;
  // On all cores. Outcomes are indexed by row, in whatever order rows finish. `label` is shown with the
  // progress.
  std::vector<RowOutcome> PredictAll(const std::vector<SourcedRow>& rows, const std::string& label,
                                     const std::optional<ResidualFactors>& residuals = std::nullopt) const;
  // Errors: InvalidInput for an override that no row accepts.
  Status CheckOverrides(const SourcedRow& row) const;
  // Errors: InvalidInput for an output that one of the rows' scenarios reads.
  Status CheckOutputs(const std::vector<SourcedRow>& rows) const;
  Result<Scenario> ScenarioFor(const SourcedRow& row) const;
  // The framework that the row's costs are for: the one named by the options, or the scenario's.
  Result<FrameworkProfile> FrameworkFor(const SourcedRow& row) const;
  // The JSON of the framework's profile; empty for a built-in one.
  Result<std::string> FrameworkTextFor(const SourcedRow& row) const;

 private:
  RowPredictor(const Options& options, std::vector<Override> overrides, NamedCosts named)
      : options_(options),
        overrides_(std::move(overrides)),
        named_(std::move(named)),
        shelf_(std::make_unique<Shelf>()) {}

  // Profiles by name, since hundreds of rows share a few.
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
