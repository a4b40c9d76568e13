#include "reports/validation.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace windtunnel {
namespace {

constexpr double kDistinct = 0.03;  // rows whose measured times are closer than this have no order

// Linear between order statistics (numpy's default). REQUIRES: ascending, not empty.
double QuantileOf(const std::vector<double>& sorted, double level) {
  const double position = level * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (position - static_cast<double>(below));
}

bool AreDistinct(double a, double b) { return std::max(a, b) > std::min(a, b) * (1 + kDistinct); }

std::optional<double> PairOrder(const std::vector<const ValidatedValue*>& values) {
  std::map<std::string, std::vector<const ValidatedValue*>> comparable;
  for (const ValidatedValue* value : values) {
    if (value->quantity == kStepTime) comparable[value->comparable_to].push_back(value);
  }
  int64_t pairs = 0, right = 0;
  for (const auto& [key, rows] : comparable) {
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = i + 1; j < rows.size(); ++j) {
        if (!AreDistinct(rows[i]->measured, rows[j]->measured)) continue;
        ++pairs;
        const bool measured_less = rows[i]->measured < rows[j]->measured;
        if (rows[i]->predicted != rows[j]->predicted &&
            (rows[i]->predicted < rows[j]->predicted) == measured_less)
          ++right;
      }
    }
  }
  if (pairs == 0) return std::nullopt;
  return static_cast<double>(right) / static_cast<double>(pairs);
}

std::vector<const ValidatedValue*> Counting(const Validation& validation, const std::string& source) {
  std::vector<const ValidatedValue*> values;
  for (const ValidatedValue& value : validation.values) {
    if (value.counts && (source.empty() || value.source == source)) values.push_back(&value);
  }
  return values;
}

std::optional<double> MeanPairOrder(const Validation& validation) {
  double sum = 0;
  int sources = 0;
  for (const std::string& source : validation.sources) {
    if (auto order = PairOrder(Counting(validation, source))) {
      sum += *order;
      ++sources;
    }
  }
  if (sources == 0) return std::nullopt;
  return sum / sources;
}

}  // namespace

ErrorStatistics StatisticsOf(const Validation& validation, const std::string& source) {
  ErrorStatistics statistics;
  for (const RefusedRow& row : validation.refused) {
    if (source.empty() || row.source == source) ++statistics.refused;
  }
  const std::vector<const ValidatedValue*> values = Counting(validation, source);
  statistics.rows = static_cast<int64_t>(values.size());
  statistics.pair_order = source.empty() ? MeanPairOrder(validation) : PairOrder(values);
  if (values.empty()) return statistics;
  std::vector<double> magnitudes;
  for (const ValidatedValue* value : values) {
    statistics.mean += value->error();
    magnitudes.push_back(std::fabs(value->error()));
    statistics.mape += magnitudes.back();
    if (magnitudes.back() <= value->tolerance) ++statistics.within_tolerance;
  }
  statistics.mean /= static_cast<double>(values.size());
  statistics.mape /= static_cast<double>(values.size());
  std::sort(magnitudes.begin(), magnitudes.end());
  statistics.median = QuantileOf(magnitudes, 0.5);
  statistics.p90 = QuantileOf(magnitudes, 0.9);
  statistics.worst = magnitudes.back();
  return statistics;
}

}  // namespace windtunnel
