// Predictions compared with what was measured elsewhere (docs/contract.md, "Validation rows"): values, and
// statistics over them.
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

// One quantity of one row. A row counts once, by its step time if that can be derived; its other values are
// only shown.
struct ValidatedValue {
  std::string id, source, quantity;
  double predicted = 0, measured = 0;
  bool counts = true;
  double tolerance = 0;            // of the row's scenario; a value that counts is held to it
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

// Statistics of the values that count. Errors are fractions, and magnitudes except in `mean`.
struct ErrorStatistics {
  int64_t rows = 0, refused = 0, within_tolerance = 0;
  double mape = 0, median = 0, p90 = 0, worst = 0;
  double mean = 0;  // signed: predictions are too long if it is above 0
  // Of the pairs of comparable rows that were measured more than 3 % apart, the share whose predicted order
  // is the measured one. Over all sources it is the mean of theirs. Nothing if there is no such pair.
  std::optional<double> pair_order;
};

// Of one source, or of all if `source` is empty.
ErrorStatistics StatisticsOf(const Validation& validation, const std::string& source);

}  // namespace windtunnel
