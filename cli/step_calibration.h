// `calibrate --steps` and `validate --cross-fit`: residual factors of a framework's profile, fitted to measured steps.
#pragma once

#include "base/result.h"
#include "cli/options.h"
#include "cli/row_predictions.h"

namespace windtunnel {

// Fits to the rows of options.steps, prints each factor with its interval, and writes a framework profile to options.out.
// Errors: InvalidInput where rows are too few, of several frameworks, or cannot be predicted.
Result<int> CalibrateSteps(const Options& options);

// Of each source: fitted to a share of its rows (options.cross_fit, at least three) drawn by a seed, the errors of its other rows, for seeds
// 0 to options.seeds - 1.
Result<int> CrossFit(const Options& options, const RowPredictor& predictor,
                     const std::vector<SourcedRow>& rows);

}  // namespace windtunnel
