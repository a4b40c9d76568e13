// A cost is a distribution: eleven quantiles of repeated measurements of one thing.
//
//   Distribution d = Distribution::FromSamples(samples);
//   d.p50(); d.Quantile(0.9); d.Quantile(stream.Uniform());   // the last draws one sample
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace windtunnel {

class Distribution {
 public:
  static constexpr std::array<double, 11> kLevels = {0.0, 0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0};

  Distribution() = default;
  // Every draw is `value`.
  static Distribution Constant(Duration value);
  // Quantiles by linear interpolation between order statistics (type 7 of Hyndman and Fan 1996, numpy's default).
  // REQUIRES: not empty.
  static Distribution FromSamples(std::vector<Duration> samples);
  // REQUIRES: ascending.
  static Distribution FromQuantiles(const std::array<Duration, 11>& values);

  // Linear between the stored levels; only additions, multiplications and rounding to picoseconds, so the same on every
  // machine. REQUIRES: 0 <= level <= 1.
  Duration Quantile(double level) const;
  Duration p10() const { return values_[3]; }
  Duration p50() const { return values_[5]; }
  Duration p90() const { return values_[7]; }
  // Mean of the piecewise-linear quantile function.
  Duration Mean() const;
  Distribution Scaled(double factor) const;
  const std::array<Duration, 11>& values() const { return values_; }

 private:
  std::array<Duration, 11> values_{};
};

}  // namespace windtunnel
