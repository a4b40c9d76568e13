#include "cost_models/residual_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <eigen3/Eigen/Cholesky>
#include <eigen3/Eigen/Core>
#include <optional>

#include "base/check.h"
#include "base/median.h"

namespace windtunnel {
namespace {

using Eigen::Index, Eigen::MatrixXd, Eigen::VectorXd;

constexpr Index kFactors = std::size(kResidualNames);
constexpr int kRounds = 3, kLayerRounds = 2;
constexpr int kReweighted = 20;         // solutions of a linear model, weighted by the errors that remained
constexpr double kStep = 0.05;          // of a factor's logarithm
constexpr double kHuber = 0.03;         // of a row's error
constexpr double kRowDeviation = 0.05;  // assumed for rows' errors, and below for factors: see the header
constexpr double kFactorDeviation = 0.35, kSwitchDeviation = 0.7, kLayerDeviation = 0.1;
constexpr double kMostLog = 1.2;  // factors within [0.3, 3.3]
constexpr double kLeastSensitivity = 0.02;
constexpr double kNormal90 = 1.645, kMadToDeviation = 1.4826;

constexpr double Ridge(double deviation) { return (kRowDeviation / deviation) * (kRowDeviation / deviation); }
// `launch` is close to 1 or 2: a launch waits or does not.
double RidgeOf(Index factor) {
  return Ridge(std::string_view(kResidualNames[factor]) == "launch" ? kSwitchDeviation : kFactorDeviation);
}
double LeastLog(Index factor) {
  const std::optional<double> least = LeastResidual(kResidualNames[factor]);
  return least ? std::log(*least) : -kMostLog;
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

// The derivative of each row's logarithm by each factor's logarithm, indexed by row.
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

// Huber's weight of each row's error.
VectorXd WeightsOf(const VectorXd& errors) { return (kHuber / errors.array().abs().max(1e-12)).min(1.0); }

// The linear model around x: after a move of x by d, the errors are errors - sensitivities d.
struct LinearModel {
  VectorXd x = VectorXd::Zero(kFactors);
  VectorXd errors = {};
  MatrixXd sensitivities = {};
  Free identified = {};

  // J^T W J + lambda over the free factors; over the others lambda alone.
  MatrixXd Normal(const VectorXd& weights, const Free& free) const {
    MatrixXd normal = sensitivities.transpose() * weights.asDiagonal() * sensitivities;
    for (Index k = 0; k < kFactors; ++k) {
      if (!free[k]) normal.row(k).setZero(), normal.col(k).setZero();
      normal(k, k) += RidgeOf(k);
    }
    return normal;
  }

  // Huber's weights depend on the remaining errors, so the solution is repeated a few times. A factor that
  // would fall below its least value stays there, and the others are found with it fixed.
  VectorXd Solve() const {
    VectorXd move = VectorXd::Zero(kFactors), held = move;
    Free free = identified;
    for (int i = 0; i < kReweighted; ++i) {
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

// The distinct shapes among the rows.
struct Shapes {
  std::vector<LayerShape> distinct;
  std::vector<Index> of_row;

  explicit Shapes(const std::vector<LayerShape>& rows) : distinct(rows) {
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (const LayerShape& shape : rows)
      of_row.push_back(std::lower_bound(distinct.begin(), distinct.end(), shape) - distinct.begin());
  }
  Index size() const { return static_cast<Index>(distinct.size()); }

  MatrixXd Penalty() const {
    MatrixXd correlations(size(), size());
    for (Index s = 0; s < size(); ++s)
      for (Index t = 0; t < size(); ++t) correlations(s, t) = Correlation(distinct[s], distinct[t]);
    return Ridge(kLayerDeviation) * correlations.ldlt().solve(MatrixXd::Identity(size(), size()));
  }

  LayerFactors FactorsOf(const VectorXd& logs) const {
    std::vector<LayerFactors::Known> known;
    for (Index s = 0; s < size(); ++s) known.push_back({distinct[s], std::exp(logs(s))});
    return LayerFactors(std::move(known));
  }
};

// Fits factors of layers by their shape to what the named factors leave of the rows. `predicted` holds
// predictions with the named factors, and on return those with the result, too.
Result<LayerFactors> FitLayers(const std::vector<double>& measured, const std::vector<LayerShape>& rows,
                               const ResidualFactors& named, const PredictRows& predict,
                               std::vector<double>& predicted) {
  const Shapes shapes(rows);
  const MatrixXd penalty = shapes.Penalty();
  const auto predict_with = [&](const VectorXd& logs) {
    ResidualFactors factors = named;
    factors.layers = shapes.FactorsOf(logs);
    return predict(factors);
  };
  VectorXd logs = VectorXd::Zero(shapes.size());
  std::vector<double> now = predicted;
  for (int round = 0; round < kLayerRounds; ++round) {
    WT_ASSIGN_OR_RETURN(const std::vector<double> moved,
                        predict_with(logs + VectorXd::Constant(shapes.size(), kStep)));
    const VectorXd errors = ErrorsOf(measured, now);
    MatrixXd follows = MatrixXd::Zero(errors.size(), shapes.size());
    for (Index i = 0; i < follows.rows(); ++i)
      follows(i, shapes.of_row[i]) = std::log(moved[i] / now[i]) / kStep;
    const VectorXd wanted = errors + follows * logs;  // what `logs` as a whole should explain
    for (int i = 0; i < kReweighted; ++i) {
      const VectorXd weights = WeightsOf(wanted - follows * logs);
      logs = (follows.transpose() * weights.asDiagonal() * follows + penalty)
                 .ldlt()
                 .solve(follows.transpose() * weights.asDiagonal() * wanted);
    }
    logs = logs.cwiseMax(-kMostOfLayers).cwiseMin(kMostOfLayers);
    WT_ASSIGN_OR_RETURN(now, predict_with(logs));
  }
  if (MeanAbsoluteError(measured, now) >= MeanAbsoluteError(measured, predicted)) return LayerFactors();
  predicted = std::move(now);
  return shapes.FactorsOf(logs);
}

double DeviationOf(const VectorXd& errors) {
  std::vector<double> sizes;
  for (double error : errors) sizes.push_back(std::fabs(error));
  return std::max(kMadToDeviation * Median(std::move(sizes)), kRowDeviation);
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
    WT_ASSIGN_OR_RETURN(fit.factors.layers, FitLayers(measured, shapes, fit.factors, predict, predicted));
  }
  fit.after = MeanAbsoluteError(measured, predicted);
  for (size_t i = 0; i < measured.size(); ++i) fit.errors.push_back(predicted[i] / measured[i] - 1);
  return fit;
}

}  // namespace windtunnel
