// Fits a framework's residual factors (cost_models/framework_profile.h) to measured steps.
//
// With x the logarithms of the named factors and g those of layers' shapes (layer_factors.h), p_i(x, g) the predicted and m_i the measured
// times, r_i = log(m_i / p_i(x, g)):
//
//   x, g minimise sum of rho(r_i) + lambda |x|^2 + mu g^T C^-1 g,   rho Huber's, quadratic up to 0.03, C the shapes' correlations
//
// so a few bad rows count little, and what the rows do not tell stays at 1 (lambda and mu: named factors are within 35 % of 1, `launch`,
// which is 1 or 2, within twice that, layers of a shape within 10 % of what those say; errors of rows 5 %). Each round takes the derivatives
// of all predictions by finite differences of whole steps. A factor that moves no row by as much as a fiftieth of its own change stays 1.
// Intervals are of 90 %, from the spread of what remains, or of errors of 5 % where less remains: they hold what the pull towards 1 takes
// off, too.
//
//   Two rows of nothing but matrix products, both 20 % longer than predicted: gemm is 1.18; the others 1.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost_models/framework_profile.h"

namespace windtunnel {

inline constexpr size_t kFewestRows = 3;

struct ResidualEstimate {
  double value = 1, low = 1, high = 1;
  bool is_identified = false;
  bool is_at_limit = false;  // of what factors may be: the rows want more
};

struct ResidualFit {
  ResidualFactors factors;
  std::map<std::string, ResidualEstimate> estimates;  // of every named factor
  double before = 0, after = 0;                       // mean absolute error of the rows, untuned and fitted
  std::vector<double> errors;                         // of each row, fitted: predicted over measured, less 1
};

// The predicted times of all rows, seconds, in their order.
using PredictRows = std::function<Result<std::vector<double>>(const ResidualFactors&)>;

// `shapes`: of each row's layers; empty: layers have no factors of their own.
// Errors: InvalidInput with fewer rows than kFewestRows; those of `predict`.
Result<ResidualFit> FitResiduals(const std::vector<double>& measured, const std::vector<LayerShape>& shapes,
                                 const PredictRows& predict);

}  // namespace windtunnel
