#include "plan/schedule_bubble.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {

std::optional<Duration> ClosedFormBubble(const ScheduleRequest& request, const StageTimes& times) {
  const auto& [name, p, v, m, is_paired] = request;
  const bool equal_times = times.forward == times.input_gradient && times.forward == times.weight_gradient;
  if (is_paired) {
    if (name != "dualpipe_v" || !equal_times) return std::nullopt;
    return (times.all() + times.backward() - times.weight_gradient * 3) * (p - 1);
  }
  if (name == "none") return times.all() * (m * (p - 1));
  if (name == "gpipe" || name == "1f1b") return times.all() * (p - 1);
  if (name == "interleaved" || name == "looped_bfs") {
    return times.all() * (p - 1 + (v - 1) * std::max<int64_t>(0, p - m));
  }
  if (name == "zb_h1" && m >= p) {
    return std::max({times.forward + times.input_gradient - times.weight_gradient, times.forward,
                     times.input_gradient}) *
           (p - 1);
  }
  if (name == "zb_v" && equal_times && m >= 3 * p / 2) return times.forward * (p - 1);
  if (name == "dualpipe_v" && equal_times) return times.forward * (p - 1);
  return std::nullopt;
}

int64_t PromisedActivationsInFlight(const ScheduleRequest& request, int rank) {
  const auto& [name, p, v, m, is_paired] = request;
  if (name == "none") return 1;
  if (name == "gpipe" || name == "looped_bfs") return m * v;
  if (name == "1f1b") return std::min<int64_t>(m, p - rank);
  if (name == "interleaved") {
    const int64_t group = m / std::max<int64_t>(1, m / p);
    return std::min(m * v, (v - 1) * group + 2 * (p - 1 - rank) + (is_paired ? 2 : 1));
  }
  if (name == "zb_h1") return std::min<int64_t>(m, p);
  if (name == "zb_v") return std::min({int64_t{2} * p, 2 * m, m + rank + 1});
  WT_CHECK_EQ(name, std::string("dualpipe_v"));
  return 2 * p + 1;
}

}  // namespace windtunnel
