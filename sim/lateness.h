// How late the ranks arrive that a simulated rank stands for.
//
// Where one rank stands for many (sim/folding.h) and costs have spread, each of these ranks takes its own
// time, and a collective begins when the last of them arrives. Its arrival, relative to the simulated rank's,
// is drawn from the distribution of the latest of n ranks (the n-th power of one rank's), so that costs with
// spread need no unfolding.
//
// Per axis, a rank's computation since its group last met is a sum of many kernels: normal, with the sum of
// their variances. If each of n other ranks is late by m on average, with standard deviation s, the latest of
// them is late by m + s z(u^(1/n)), where z is the normal quantile and u is uniform. How late the simulated
// rank itself is follows from its own kernels, which are drawn.
//
// Where computation waits for a collective at once, the delay shifts the rank on all other axes too, and the
// other ranks by as much on average (mean and variance of the latest of n + 1).
//
// Where computation waits later (gathers ahead of their use, reductions behind the backward), ranks are held
// up, and so aligned again, only if the latest rank is later than the time that the collective has to spare,
// by mean times. Otherwise they drift apart until something really has to be waited for, at the latest the
// step's last barrier. A collective with time to spare does not begin late either: it begins with the latest
// rank. Beside that rank's kernels it runs as it does beside the simulated rank's if no rank is late. On
// ranks that are ahead it would run beside later kernels, but it slows down no rank that others wait for.
//
//   Tensor group of 8, kernels of 1 ms in all since the last sum, 2 % each, 100 kernels: s = 2 us, and the
//   latest of 8 is 2.8 us late on average.
#pragma once

#include <limits>
#include <vector>

#include "base/random.h"
#include "sim/executor.h"
#include "sim/step_costs.h"
#include "sim/step_schedule.h"

namespace windtunnel {

class Lateness {
 public:
  // Both must outlive it.
  Lateness(const StepSchedule& schedule, const StepCosts& costs);

  // Fills in work.lateness from work.transfers, which are already drawn with this level of the common mode.
  void Draw(const RandomStream& stream, double common_mode, StepWork& work) const;

 private:
  // What one laid-out rank does, in program order.
  struct Event {
    enum class Kind : uint8_t { kKernel, kMeet, kWait };
    Kind kind = Kind::kKernel;
    bool is_awaited_at_once = false;  // kMeet
    int32_t transfer = -1;            // kKernel, kMeet
    int32_t axis = -1;                // kMeet, kWait: index among the axes on which the rank meets others
    int32_t others = 0;    // kMeet, kWait: ranks of the group that this one stands for, without itself
    int32_t meeting = -1;  // kMeet, kWait: index among the rank's meetings
    uint64_t counter = 0;  // kMeet: of its random number
    double mean = 0, variance = 0;  // kKernel, kMeet: of its own time; picoseconds
    // kWait, and the kMeet of a collective that has one: by mean times, how long the collective has been over
    // when it is waited for.
    double spare = -std::numeric_limits<double>::infinity();
  };
  struct RankEvents {
    std::vector<Event> events;
    int32_t meetings = 0, axes = 0;
  };
  class Reader;
  class Drawing;

  const StepSchedule& schedule_;
  std::vector<RankEvents> ranks_;
};

}  // namespace windtunnel
