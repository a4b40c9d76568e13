#include "cost_models/residual_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace windtunnel {
namespace {

constexpr size_t kFactors = std::size(kResidualNames);
constexpr int kRounds = 3;
constexpr double kStep = 0.05;          // of a factor's logarithm
constexpr double kHuber = 0.03;         // of a row's error
constexpr double kRowDeviation = 0.05;  // of a row's error, and of factors: see the header
constexpr double kRidge = (kRowDeviation / 0.35) * (kRowDeviation / 0.35);
constexpr double kSwitchRidge = (kRowDeviation / 0.7) * (kRowDeviation / 0.7);
constexpr double kMostLog = 1.2;  // factors within [0.3, 3.3]
constexpr double kLeastSensitivity = 0.02;
constexpr double kNormal90 = 1.645, kMadToDeviation = 1.4826;

// A launch waits or does not: 1 or 2.
double RidgeOf(size_t factor) {
  return std::string_view(kResidualNames[factor]) == "launch" ? kSwitchRidge : kRidge;
}
double LeastLog(size_t factor) {
  const std::optional<double> least = LeastResidual(kResidualNames[factor]);
  return least ? std::log(*least) : -kMostLog;
}

using Vector = std::array<double, kFactors>;
using Matrix = std::array<Vector, kFactors>;
using Factors = std::array<bool, kFactors>;

ResidualFactors FactorsOf(const Vector& x) {
  ResidualFactors factors;
  for (size_t k = 0; k < kFactors; ++k) Residual(factors, kResidualNames[k]) = std::exp(x[k]);
  return factors;
}

std::vector<double> ErrorsOf(const std::vector<double>& measured, const std::vector<double>& predicted) {
  std::vector<double> errors;
  for (size_t i = 0; i < measured.size(); ++i) errors.push_back(std::log(measured[i] / predicted[i]));
  return errors;
}

double MeanAbsoluteError(const std::vector<double>& measured, const std::vector<double>& predicted) {
  double sum = 0;
  for (size_t i = 0; i < measured.size(); ++i) sum += std::fabs(predicted[i] / measured[i] - 1);
  return sum / static_cast<double>(measured.size());
}

// How each row's logarithm follows each factor's: by row.
Result<std::vector<Vector>> Sensitivities(const PredictRows& predict, const Vector& x,
                                          const std::vector<double>& predicted) {
  std::vector<Vector> rows(predicted.size());
  for (size_t k = 0; k < kFactors; ++k) {
    Vector moved = x;
    moved[k] += kStep;
    WT_ASSIGN_OR_RETURN(const std::vector<double> times, predict(FactorsOf(moved)));
    for (size_t i = 0; i < rows.size(); ++i) rows[i][k] = std::log(times[i] / predicted[i]) / kStep;
  }
  return rows;
}

Factors IdentifiedBy(const std::vector<Vector>& sensitivities) {
  Factors identified{};
  for (const Vector& row : sensitivities) {
    for (size_t k = 0; k < kFactors; ++k) identified[k] |= row[k] >= kLeastSensitivity;
  }
  return identified;
}

// The inverse of a symmetric positive definite matrix, by Gauss and Jordan.
Matrix Inverse(Matrix a) {
  Matrix inverse{};
  for (size_t i = 0; i < kFactors; ++i) inverse[i][i] = 1;
  for (size_t pivot = 0; pivot < kFactors; ++pivot) {
    const double scale = 1 / a[pivot][pivot];
    for (size_t j = 0; j < kFactors; ++j) {
      a[pivot][j] *= scale;
      inverse[pivot][j] *= scale;
    }
    for (size_t i = 0; i < kFactors; ++i) {
      if (i == pivot) continue;
      const double factor = a[i][pivot];
      for (size_t j = 0; j < kFactors; ++j) {
        a[i][j] -= factor * a[pivot][j];
        inverse[i][j] -= factor * inverse[pivot][j];
      }
    }
  }
  return inverse;
}

// The linear model around x: errors that remain after a move of x by d are errors - sensitivities d.
struct LinearModel {
  std::vector<double> errors;
  std::vector<Vector> sensitivities;
  Factors identified;
  Vector x;

  double Remaining(size_t row, const Vector& move) const {
    double error = errors[row];
    for (size_t k = 0; k < kFactors; ++k) error -= sensitivities[row][k] * move[k];
    return error;
  }

  // J^T W J + lambda over the `free` factors, with Huber's weights of what remains after `move`; the others move by `held`.
  Matrix Normal(const Vector& move, const Factors& free, const Vector& held, Vector& right) const {
    Matrix normal{};
    right = {};
    for (size_t i = 0; i < errors.size(); ++i) {
      const double weight = std::min(1.0, kHuber / std::max(std::fabs(Remaining(i, move)), 1e-12));
      const double error = Remaining(i, held);
      for (size_t k = 0; k < kFactors; ++k) {
        if (!free[k]) continue;
        right[k] += weight * sensitivities[i][k] * error;
        for (size_t l = 0; l < kFactors; ++l)
          if (free[l]) normal[k][l] += weight * sensitivities[i][k] * sensitivities[i][l];
      }
    }
    for (size_t k = 0; k < kFactors; ++k) {
      normal[k][k] += RidgeOf(k);
      right[k] -= free[k] ? RidgeOf(k) * x[k] : 0;
    }
    return normal;
  }

  // Huber's weights change with what remains, so the solution is found again a few times. A factor that would fall below its least stays
  // there, and the others are found without it.
  Vector Solve() const {
    Vector move{}, held{}, right{};
    Factors free = identified;
    for (int i = 0; i < 20; ++i) {
      const Matrix inverse = Inverse(Normal(move, free, held, right));
      for (size_t k = 0; k < kFactors; ++k) {
        move[k] = held[k];
        for (size_t l = 0; free[k] && l < kFactors; ++l) move[k] += inverse[k][l] * right[l];
      }
      for (size_t k = 0; k < kFactors; ++k) {
        if (!free[k] || x[k] + move[k] >= LeastLog(k)) continue;
        free[k] = false;
        held[k] = LeastLog(k) - x[k];
      }
    }
    return move;
  }
};

double DeviationOf(std::vector<double> errors) {
  for (double& error : errors) error = std::fabs(error);
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2),
                   errors.end());
  return std::max(kMadToDeviation * errors[errors.size() / 2], kRowDeviation);
}

}  // namespace

Result<ResidualFit> FitResiduals(const std::vector<double>& measured, const PredictRows& predict) {
  if (measured.size() < kFewestRows)
    return InvalidInput("{} rows, expected at least {} to fit residuals to", measured.size(), kFewestRows);
  ResidualFit fit;
  LinearModel model{};
  WT_ASSIGN_OR_RETURN(std::vector<double> predicted, predict({}));
  fit.before = MeanAbsoluteError(measured, predicted);
  for (int round = 0; round < kRounds; ++round) {
    WT_ASSIGN_OR_RETURN(model.sensitivities, Sensitivities(predict, model.x, predicted));
    model.errors = ErrorsOf(measured, predicted);
    model.identified = IdentifiedBy(model.sensitivities);
    const Vector move = model.Solve();
    for (size_t k = 0; k < kFactors; ++k)
      model.x[k] = model.identified[k] ? std::clamp(model.x[k] + move[k], LeastLog(k), kMostLog) : 0;
    WT_ASSIGN_OR_RETURN(predicted, predict(FactorsOf(model.x)));
  }
  fit.after = MeanAbsoluteError(measured, predicted);
  for (size_t i = 0; i < measured.size(); ++i) fit.errors.push_back(predicted[i] / measured[i] - 1);
  fit.factors = FactorsOf(model.x);
  model.errors = ErrorsOf(measured, predicted);
  Vector right{};
  const Matrix covariance = Inverse(model.Normal({}, model.identified, {}, right));
  const double deviation = DeviationOf(model.errors);
  for (size_t k = 0; k < kFactors; ++k) {
    ResidualEstimate& estimate = fit.estimates[kResidualNames[k]];
    estimate.is_identified = model.identified[k];
    if (!estimate.is_identified) continue;
    const double half = kNormal90 * deviation * std::sqrt(std::max(covariance[k][k], 0.0));
    estimate.value = std::exp(model.x[k]);
    estimate.low = std::exp(std::max(model.x[k] - half, LeastLog(k)));
    estimate.high = std::exp(std::min(model.x[k] + half, kMostLog));
    estimate.is_at_limit = std::fabs(model.x[k]) >= kMostLog;
  }
  return fit;
}

}  // namespace windtunnel
