// `calibrate --steps` and `validate --cross-fit`: residual factors of a framework's profile, fitted to
// measured steps.
#pragma once

#include "base/result.h"
#include "cli/options.h"
#include "cli/row_predictions.h"

namespace windtunnel {

// Fits to the rows of options.steps, prints each factor with its interval, and writes a framework profile to
// options.out. Errors: InvalidInput if there are too few rows, if they are of several frameworks, or if one
// cannot be predicted.
Result<int> CalibrateSteps(const Options& options);

// For each source and each seed from 0 to options.seeds - 1: draws a share of the source's rows
// (options.cross_fit, at least three), fits to it, and prints the errors of the source's other rows.
Result<int> CrossFit(const Options& options, const RowPredictor& predictor,
                     const std::vector<SourcedRow>& rows);

}  // namespace windtunnel
