#include "runtime/timed_steps.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace windtunnel {

void TimedSteps::Add(Timeline timeline, int64_t most) {
  WT_CHECK_GE(most, 2);
  const int64_t step = static_cast<int64_t>(times.size());
  times.push_back(timeline.end);
  if (step % stride != 0) return;
  if (static_cast<int64_t>(timelines.size()) == most) {
    for (size_t i = 1; 2 * i < timelines.size(); ++i) timelines[i] = std::move(timelines[2 * i]);
    timelines.resize((timelines.size() + 1) / 2);
    stride *= 2;
    if (step % stride != 0) return;
  }
  timelines.push_back(std::move(timeline));
}

int64_t KeptTimelines(const Plan& plan) {
  constexpr int64_t kMostSpans = 1 << 18, kLeast = 32;
  int64_t most_ops = 1;
  for (const Role& role : plan.roles)
    most_ops = std::max(most_ops, static_cast<int64_t>(role.steady.ops.size()));
  return std::max(kMostSpans / most_ops, kLeast);
}

}  // namespace windtunnel
