#include "cost_models/distribution.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {
namespace {

constexpr int kLast = static_cast<int>(Distribution::kLevels.size()) - 1;

// The interval of kLevels that holds the level n/100, the first such interval if there are several.
constexpr std::array<int8_t, 101> IntervalOfHundredth() {
  std::array<int8_t, 101> intervals{};
  int interval = 0;
  for (int n = 0; n <= 100; ++n) {
    while (interval < kLast - 1 && n * 0.01 >= Distribution::kLevels[interval + 1] - 1e-9) ++interval;
    intervals[n] = static_cast<int8_t>(interval);
  }
  return intervals;
}
constexpr std::array<int8_t, 101> kIntervals = IntervalOfHundredth();

// from + (to - from) * share, rounded to picoseconds. REQUIRES: from <= to.
Duration Between(Duration from, Duration to, double share) { return from + (to - from).Scaled(share); }

}  // namespace

Distribution Distribution::Constant(Duration value) {
  Distribution result;
  result.values_.fill(value);
  return result;
}

Distribution Distribution::FromSamples(std::vector<Duration> samples) {
  WT_CHECK(!samples.empty());
  std::sort(samples.begin(), samples.end());
  Distribution result;
  for (int i = 0; i <= kLast; ++i) {
    double position = static_cast<double>(samples.size() - 1) * kLevels[i];
    size_t below = static_cast<size_t>(position);
    size_t above = std::min(below + 1, samples.size() - 1);
    result.values_[i] = Between(samples[below], samples[above], position - static_cast<double>(below));
  }
  return result;
}

Distribution Distribution::FromQuantiles(const std::array<Duration, kCount>& values) {
  WT_CHECK(std::is_sorted(values.begin(), values.end()));
  Distribution result;
  result.values_ = values;
  return result;
}

Distribution::Place Distribution::PlaceOf(double level) {
  WT_CHECK(level >= 0.0 && level <= 1.0);
  // Next to a level, rounding may choose either interval: quantiles are continuous, so both give the same value.
  int i = kIntervals[static_cast<int>(level * 100.0)];
  while (i + 1 < kLast && level >= kLevels[i + 1]) ++i;
  const double share = (level - kLevels[i]) / (kLevels[i + 1] - kLevels[i]);
  return {static_cast<size_t>(i), std::clamp(share, 0.0, 1.0)};
}

Duration Distribution::Quantile(double level) const {
  const Place place = PlaceOf(level);
  return Between(values_[place.interval], values_[place.interval + 1], place.share);
}

Duration Distribution::Mean() const {
  double mean = 0;  // picoseconds
  for (int i = 0; i < kLast; ++i) {
    const double sum =
        static_cast<double>(values_[i].picoseconds()) + static_cast<double>(values_[i + 1].picoseconds());
    mean += (kLevels[i + 1] - kLevels[i]) * (0.5 * sum);
  }
  return Picoseconds(1).Scaled(mean);
}

Distribution Distribution::Scaled(double factor) const {
  WT_CHECK(factor >= 0.0);
  Distribution result;
  for (int i = 0; i <= kLast; ++i) result.values_[i] = values_[i].Scaled(factor);
  return result;
}

}  // namespace windtunnel
