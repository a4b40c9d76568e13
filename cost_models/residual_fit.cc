#include "cost_models/residual_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <eigen3/Eigen/Cholesky>
#include <eigen3/Eigen/Core>
#include <optional>

#include "base/check.h"

namespace windtunnel {
namespace {

using Eigen::Index, Eigen::MatrixXd, Eigen::VectorXd;

constexpr Index kFactors = std::size(kResidualNames);
constexpr int kRounds = 3;
constexpr double kStep = 0.05;          // of a factor's logarithm
constexpr double kHuber = 0.03;         // of a row's error
constexpr double kRowDeviation = 0.05;  // of a row's error, and of factors: see the header
constexpr double kFactorDeviation = 0.35, kSwitchDeviation = 0.7, kLayerDeviation = 0.1;
constexpr double kMostLog = 1.2;  // factors within [0.3, 3.3]
constexpr double kLeastSensitivity = 0.02;
constexpr double kNormal90 = 1.645, kMadToDeviation = 1.4826;

constexpr double Ridge(double deviation) { return (kRowDeviation / deviation) * (kRowDeviation / deviation); }
// A launch waits or does not: 1 or 2.
double RidgeOf(Index factor) {
  return Ridge(std::string_view(kResidualNames[factor]) == "launch" ? kSwitchDeviation : kFactorDeviation);
}
double LeastLog(Index factor) {
  const std::optional<double> least = LeastResidual(kResidualNames[factor]);
  return least ? std::log(*least) : -kMostLog;
}

bool IsOfLayers(std::string_view name) {
  return std::ranges::find(kLayerResidualNames, name) != std::end(kLayerResidualNames);
}

ResidualFactors FactorsOf(const VectorXd& x) {
  ResidualFactors factors;
  for (Index k = 0; k < kFactors; ++k) Residual(factors, kResidualNames[k]) = std::exp(x(k));
  return factors;
}

VectorXd ErrorsOf(const std::vector<double>& measured, const std::vector<double>& predicted) {
  VectorXd errors(measured.size());
  for (size_t i = 0; i < measured.size(); ++i) errors(i) = std::log(measured[i] / predicted[i]);
  return errors;
}

double MeanAbsoluteError(const std::vector<double>& measured, const std::vector<double>& predicted) {
  double sum = 0;
  for (size_t i = 0; i < measured.size(); ++i) sum += std::fabs(predicted[i] / measured[i] - 1);
  return sum / static_cast<double>(measured.size());
}

// How each row's logarithm follows each factor's: by row.
Result<MatrixXd> Sensitivities(const PredictRows& predict, const VectorXd& x,
                               const std::vector<double>& predicted) {
  MatrixXd rows(predicted.size(), kFactors);
  for (Index k = 0; k < kFactors; ++k) {
    VectorXd moved = x;
    moved(k) += kStep;
    WT_ASSIGN_OR_RETURN(const std::vector<double> times, predict(FactorsOf(moved)));
    for (Index i = 0; i < rows.rows(); ++i) rows(i, k) = std::log(times[i] / predicted[i]) / kStep;
  }
  return rows;
}

using Free = std::array<bool, kFactors>;

Free IdentifiedBy(const MatrixXd& sensitivities) {
  Free identified;
  for (Index k = 0; k < kFactors; ++k)
    identified[k] = (sensitivities.col(k).array() >= kLeastSensitivity).any();
  return identified;
}

// Huber's, of each row's error.
VectorXd WeightsOf(const VectorXd& errors) { return (kHuber / errors.array().abs().max(1e-12)).min(1.0); }

// The linear model around x: errors that remain after a move of x by d are errors - sensitivities d.
struct LinearModel {
  VectorXd x = VectorXd::Zero(kFactors);
  VectorXd errors = {};
  MatrixXd sensitivities = {};
  Free identified = {};

  // J^T W J + lambda over the free factors; elsewhere that of nothing.
  MatrixXd Normal(const VectorXd& weights, const Free& free) const {
    MatrixXd normal = sensitivities.transpose() * weights.asDiagonal() * sensitivities;
    for (Index k = 0; k < kFactors; ++k) {
      if (!free[k]) normal.row(k).setZero(), normal.col(k).setZero();
      normal(k, k) += RidgeOf(k);
    }
    return normal;
  }

  // Huber's weights change with what remains, so the solution is found again a few times. A factor that would fall below its least stays
  // there, and the others are found without it.
  VectorXd Solve() const {
    VectorXd move = VectorXd::Zero(kFactors), held = move;
    Free free = identified;
    for (int i = 0; i < 20; ++i) {
      const VectorXd weights = WeightsOf(errors - sensitivities * move);
      VectorXd right = sensitivities.transpose() * weights.asDiagonal() * (errors - sensitivities * held);
      for (Index k = 0; k < kFactors; ++k) right(k) = free[k] ? right(k) - RidgeOf(k) * x(k) : 0;
      move = held + Normal(weights, free).llt().solve(right);
      for (Index k = 0; k < kFactors; ++k) {
        if (!free[k] || x(k) + move(k) >= LeastLog(k)) continue;
        free[k] = false;
        held(k) = LeastLog(k) - x(k);
      }
    }
    return move;
  }
};

// Of layers by their shape, out of what the named factors leave of rows.
LayerFactors FitLayers(const LinearModel& model, const std::vector<LayerShape>& rows) {
  std::vector<LayerShape> shapes = rows;
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  const auto size = static_cast<Index>(shapes.size());
  MatrixXd correlations(size, size);
  for (Index s = 0; s < size; ++s)
    for (Index t = 0; t < size; ++t) correlations(s, t) = Correlation(shapes[s], shapes[t]);
  // How each row follows its shape's factor, which moves all that it is a factor on at once.
  MatrixXd follows = MatrixXd::Zero(model.errors.size(), size);
  for (Index i = 0; i < follows.rows(); ++i) {
    const auto shape = std::lower_bound(shapes.begin(), shapes.end(), rows[i]) - shapes.begin();
    for (Index k = 0; k < kFactors; ++k)
      if (IsOfLayers(kResidualNames[k])) follows(i, shape) += model.sensitivities(i, k);
  }
  const MatrixXd penalty = Ridge(kLayerDeviation) * correlations.llt().solve(MatrixXd::Identity(size, size));
  VectorXd logs = VectorXd::Zero(size);
  for (int i = 0; i < 20; ++i) {
    const VectorXd weights = WeightsOf(model.errors - follows * logs);
    logs = (follows.transpose() * weights.asDiagonal() * follows + penalty)
               .llt()
               .solve(follows.transpose() * weights.asDiagonal() * model.errors);
  }
  std::vector<LayerFactors::Known> known;
  for (Index s = 0; s < size; ++s) known.push_back({shapes[s], std::exp(logs(s))});
  return LayerFactors(std::move(known));
}

double DeviationOf(const VectorXd& errors) {
  std::vector<double> sizes;
  for (double error : errors) sizes.push_back(std::fabs(error));
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2), sizes.end());
  return std::max(kMadToDeviation * sizes[sizes.size() / 2], kRowDeviation);
}

void Estimate(const LinearModel& model, ResidualFit& fit) {
  const MatrixXd covariance = model.Normal(WeightsOf(model.errors), model.identified)
                                  .llt()
                                  .solve(MatrixXd::Identity(kFactors, kFactors));
  const double deviation = DeviationOf(model.errors);
  for (Index k = 0; k < kFactors; ++k) {
    ResidualEstimate& estimate = fit.estimates[kResidualNames[k]];
    estimate.is_identified = model.identified[k];
    if (!estimate.is_identified) continue;
    const double half = kNormal90 * deviation * std::sqrt(std::max(covariance(k, k), 0.0));
    estimate.value = std::exp(model.x(k));
    estimate.low = std::exp(std::max(model.x(k) - half, LeastLog(k)));
    estimate.high = std::exp(std::min(model.x(k) + half, kMostLog));
    estimate.is_at_limit = std::fabs(model.x(k)) >= kMostLog;
  }
}

}  // namespace

Result<ResidualFit> FitResiduals(const std::vector<double>& measured, const std::vector<LayerShape>& shapes,
                                 const PredictRows& predict) {
  if (measured.size() < kFewestRows)
    return InvalidInput("{} rows, expected at least {} to fit residuals to", measured.size(), kFewestRows);
  WT_CHECK(shapes.empty() || shapes.size() == measured.size());
  ResidualFit fit;
  LinearModel model;
  WT_ASSIGN_OR_RETURN(std::vector<double> predicted, predict({}));
  fit.before = MeanAbsoluteError(measured, predicted);
  for (int round = 0; round < kRounds; ++round) {
    WT_ASSIGN_OR_RETURN(model.sensitivities, Sensitivities(predict, model.x, predicted));
    model.errors = ErrorsOf(measured, predicted);
    model.identified = IdentifiedBy(model.sensitivities);
    model.x += model.Solve();
    for (Index k = 0; k < kFactors; ++k)
      model.x(k) = model.identified[k] ? std::clamp(model.x(k), LeastLog(k), kMostLog) : 0;
    WT_ASSIGN_OR_RETURN(predicted, predict(FactorsOf(model.x)));
  }
  model.errors = ErrorsOf(measured, predicted);
  Estimate(model, fit);
  fit.factors = FactorsOf(model.x);
  if (!shapes.empty()) {
    fit.factors.layers = FitLayers(model, shapes);
    WT_ASSIGN_OR_RETURN(predicted, predict(fit.factors));
  }
  fit.after = MeanAbsoluteError(measured, predicted);
  for (size_t i = 0; i < measured.size(); ++i) fit.errors.push_back(predicted[i] / measured[i] - 1);
  return fit;
}

}  // namespace windtunnel
