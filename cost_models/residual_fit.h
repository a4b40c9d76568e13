// Fits a framework's residual factors (cost_models/framework_profile.h) to measured steps.
//
// With x the logarithms of the named factors, p_i(x) the predicted and m_i the measured times, r_i = log(m_i / p_i(x)):
//
//   x minimises sum of rho(r_i) + lambda |x|^2,   rho Huber's, quadratic up to 0.03
//
// so a few bad rows count little, and what the rows do not tell stays at 1 (lambda: factors are within 35 % of 1, `launch`, which is 1 or 2,
// within twice that; errors of rows 5 %). Each round takes the derivatives of all predictions by finite differences of whole steps. A factor
// that moves no row by as much as a fiftieth of its own change stays 1. Intervals are of 90 %, from the spread of what remains, or of errors
// of 5 % where less remains: they hold what the pull towards 1 takes off, too.
//
// Then, with these x, the logarithms g of layers' factors by their shapes (layer_factors.h), of which C are the correlations:
//
//   g minimises sum of rho(r_i) + mu g^T C^-1 g
//
// (mu: within 10 % of 1), each at most 0.4 away from 0, in the same way; unless nothing is gained.
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

// Of the logarithms of layers' factors.
inline constexpr double kMostOfLayers = 0.4;

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
