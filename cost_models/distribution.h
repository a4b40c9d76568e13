// A cost is a distribution: twelve quantiles of repeated measurements of one thing.
//
//   Distribution d = Distribution::FromSamples(samples);
//   d.p50(); d.Quantile(0.9); d.Quantile(stream.Uniform());   // the last draws one sample
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace windtunnel {

class Distribution {
 public:
  // Dense at the top: a pre-emption of milliseconds in one of a thousand microsecond samples must not be
  // drawn once in a hundred.
  static constexpr size_t kCount = 12;
  static constexpr std::array<double, kCount> kLevels = {0.0,  0.01, 0.05, 0.10, 0.25,  0.50,
                                                         0.75, 0.90, 0.95, 0.99, 0.999, 1.0};

  // A level lies in the interval from kLevels[interval] to the next one, this share of the way.
  struct Place {
    size_t interval = 0;
    double share = 0;
  };
  // REQUIRES: 0 <= level <= 1.
  static Place PlaceOf(double level);

  Distribution() = default;
  // Every draw returns `value`.
  static Distribution Constant(Duration value);
  // Quantiles by linear interpolation between order statistics (type 7 of Hyndman and Fan 1996, numpy's
  // default).
  // REQUIRES: not empty.
  static Distribution FromSamples(std::vector<Duration> samples);
  // REQUIRES: ascending.
  static Distribution FromQuantiles(const std::array<Duration, kCount>& values);

  // Linear between the stored levels; only additions, multiplications and rounding to picoseconds, so the
  // same on every machine. REQUIRES: 0 <= level <= 1.
  Duration Quantile(double level) const;
  Duration p10() const { return values_[3]; }
  Duration p50() const { return values_[5]; }
  Duration p90() const { return values_[7]; }
  // Mean of the piecewise-linear quantile function.
  Duration Mean() const;
  Distribution Scaled(double factor) const;
  const std::array<Duration, kCount>& values() const { return values_; }

 private:
  std::array<Duration, kCount> values_{};
};

}  // namespace windtunnel
