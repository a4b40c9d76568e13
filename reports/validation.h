// Predictions held against what was measured elsewhere (docs/contract.md, "Validation rows"): values, and statistics over them.
//
//   Validation validation;
//   validation.values.push_back({.id = "foundry-77", .source = "foundry_a100", .quantity = kStepTime, …});
//   ErrorStatistics all = StatisticsOf(validation, "");
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace windtunnel {

inline constexpr char kStepTime[] = "step_time_s";
inline constexpr char kPeakMemory[] = "peak_memory_bytes";
inline constexpr char kReservedMemory[] = "reserved_memory_bytes";
inline constexpr char kDeviceMemory[] = "device_memory_used_bytes";

// One quantity of one row. A row counts once, by its step time where that can be derived; its other values are shown beside it.
struct ValidatedValue {
  std::string id, source, quantity;
  double predicted = 0, measured = 0;
  bool counts = true;
  double tolerance = 0;            // of the row's scenario; what counts is held to it
  std::string comparable_to = "";  // rows with the same text (model, devices, global batch) can be ordered

  double error() const { return predicted / measured - 1; }
};

// A row that cannot be predicted, and why.
struct RefusedRow {
  std::string id, source, reason;
};

struct Validation {
  std::vector<std::string> sources;  // in the order given
  std::vector<ValidatedValue> values;
  std::vector<RefusedRow> refused;
};

// Of the values that count; errors are fractions, magnitudes but for `mean`.
struct ErrorStatistics {
  int64_t rows = 0, refused = 0, within_tolerance = 0;
  double mape = 0, median = 0, p90 = 0, worst = 0;
  double mean = 0;  // signed: above 0 predictions are too long
  // The share of pairs of comparable rows, measured more than 3 % apart, whose predicted order is the measured one; over all sources
  // the mean of theirs. Nothing where there is no such pair.
  std::optional<double> pair_order;
};

// Of one source, or of all where `source` is empty.
ErrorStatistics StatisticsOf(const Validation& validation, const std::string& source);

}  // namespace windtunnel
