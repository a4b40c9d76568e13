// The values that a key may have: bounds of numbers, words for text.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace windtunnel {

// Bounds of a number; the minimum itself is allowed unless `above_min`, the maximum unless `below_max`.
struct Bounds {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;
  bool below_max = false;

  // What `value` should have been ("at least 1"); empty when it is within the bounds.
  std::string Violation(double value) const;
};

constexpr Bounds AtLeast(double min) { return {.min = min}; }
constexpr Bounds MoreThan(double min) { return {.min = min, .above_min = true}; }
constexpr Bounds MoreThanUpTo(double min, double max) { return {.min = min, .max = max, .above_min = true}; }
constexpr Bounds From(double min, double max) { return {.min = min, .max = max}; }
constexpr Bounds FromToBelow(double min, double max) { return {.min = min, .max = max, .below_max = true}; }

// Sizes of tensors and counts: the largest that fit the 32-bit dimensions of PyTorch and BLAS.
inline constexpr Bounds kSize = From(1, 2147483647);
inline constexpr Bounds kCount = From(0, 2147483647);
// The width of the residual stream. Four times the maximum is still a valid size.
inline constexpr Bounds kWidth = From(1, 16777216);
// Numbers of ranks along one axis: above any machine.
inline constexpr Bounds kRanks = From(1, 1048576);

// Rates in units of 10^9 per second and times in microseconds, up to the limits of virtual time.
inline constexpr Bounds kRate = From(0, 1e9);
inline constexpr Bounds kMicroseconds = From(0, 1e9);

inline constexpr char kCsvFile[] = "a .csv file";

// The texts that are accepted: `words`, and what `other` adds.
struct TextRule {
  enum class Other { kNothing, kAnything, kCsvFile } other = Other::kAnything;
  std::vector<std::string> words = {};  // with kAnything: examples
  bool is_prose = false;                // may have newlines and tabs
  // For messages, in place of many words, or of "text": "one of `windtunnel list models`".
  std::string_view summary = {};

  bool Accepts(const std::string& text) const;
  // "a, b or c", "a, b or a .csv file", "text".
  std::string Expected() const;
};

}  // namespace windtunnel
