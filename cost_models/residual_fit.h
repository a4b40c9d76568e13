// Fits a framework's residual factors (cost_models/framework_profile.h) to measured steps.
//
// Let x be the logarithms of the named factors, p_i(x) the predicted and m_i the measured times, and
// r_i = log(m_i / p_i(x)):
//
//   x minimises sum of rho(r_i) + lambda |x|^2,   rho Huber's, quadratic up to 0.03
//
// A few bad rows therefore count little, and factors that the rows do not determine stay at 1. (lambda
// assumes that factors are within 35 % of 1, `launch`, which is 1 or 2, within twice that, and that rows have
// errors of 5 %.) Each round takes the derivatives of all predictions by finite differences of whole steps. A
// factor stays 1 if it moves no row by as much as a fiftieth of its own change. Intervals are of 90 %, from
// the spread of the remaining errors, or from errors of 5 % if less remains. They hold what the pull towards
// 1 takes off.
//
// Then, with these x, the fit finds the logarithms g of layers' factors by their shapes (layer_factors.h),
// whose correlations are C:
//
//   g minimises sum of rho(r_i) + mu g^T C^-1 g
//
// (mu assumes that they are within 10 % of 1), each at most 0.4 away from 0, in the same way. If nothing is
// gained, layers have no factors.
//
//   Three rows of nothing but matrix products, all 20 % longer than predicted: gemm is 1.1985; the others 1.
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
  bool is_at_limit = false;  // at the limit of what factors may be: the rows want more
};

// The largest logarithm of a layer's factor, in absolute value.
inline constexpr double kMostOfLayers = 0.4;

struct ResidualFit {
  ResidualFactors factors;
  std::map<std::string, ResidualEstimate> estimates;  // of every named factor
  double before = 0, after = 0;  // mean absolute error of the rows: not fitted, and fitted
  std::vector<double> errors;    // of each row, fitted: predicted over measured, less 1
};

// The predicted times of all rows, seconds, in their order.
using PredictRows = std::function<Result<std::vector<double>>(const ResidualFactors&)>;

// `shapes`: the layers' shape of each row; if empty, layers have no factors of their own.
// Errors: InvalidInput with fewer rows than kFewestRows; those of `predict`.
Result<ResidualFit> FitResiduals(const std::vector<double>& measured, const std::vector<LayerShape>& shapes,
                                 const PredictRows& predict);

}  // namespace windtunnel
