#include "runtime/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace windtunnel {
namespace {

// The share that is left of the decay's range, from 1 to 0, after share `x` of its steps.
double Remaining(LearningRateDecay decay, double x) {
  switch (decay) {
    case LearningRateDecay::kLinear:
      return 1 - x;
    case LearningRateDecay::kCosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * x));
    case LearningRateDecay::kSqrt:
      return 1 - std::sqrt(x);
    case LearningRateDecay::kNone:
    case LearningRateDecay::kStep:
      break;
  }
  return 1;
}

}  // namespace

double LearningRateFactor(const LearningRateScheduler& s, int64_t run_steps, int64_t step) {
  if (step < s.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  if (s.decay == LearningRateDecay::kNone) return 1;
  if (s.decay == LearningRateDecay::kStep) {
    const auto times = static_cast<double>((step - s.warmup_steps) / s.step_size);
    return std::max(std::pow(s.gamma, times), s.min_lr_factor);
  }
  const int64_t total = s.total_steps > 0 ? s.total_steps : run_steps;
  const int64_t decay = s.decay_steps > 0 ? s.decay_steps : total - s.warmup_steps;
  const int64_t done = std::clamp<int64_t>(step - total + decay, 0, decay);
  const double x = static_cast<double>(done) / static_cast<double>(decay);
  return s.min_lr_factor + (1 - s.min_lr_factor) * Remaining(s.decay, x);
}

}  // namespace windtunnel
