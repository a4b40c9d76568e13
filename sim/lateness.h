// How late the others are.
//
// Where one rank stands for many (sim/folding.h) and costs have spread, those that it stands for take their own time: a collective
// begins when the last of them arrives. Their arrival, relative to the simulated rank's, is drawn from the distribution of the
// latest of n ranks (the n-th power of one rank's), so that spread costs no unfolding.
//
// Per axis, a rank's computation since its group last met is a sum of many kernels: normal, with the sum of their variances. Of n
// others on mean m and standard deviation s, the latest is m + s z(u^(1/n)) late, u uniform; the simulated rank's own kernels were
// drawn, and say how late it is itself. Where computation waits for a collective at once, its delay moves the rank on all other
// axes too, and theirs as much on average (mean and variance of the latest of n + 1). Where computation waits later (gathers ahead of their
// use, reductions behind backward), ranks are held up, and so brought together again, only if the latest comes later than the collective has
// time to spare, by mean times: else they drift apart until something is waited for in earnest, the step's last barrier at the latest. Such a
// collective is not begun late, either: it begins with the latest rank, beside whose kernels it runs as it does beside those of the simulated
// one when nobody is late; that it would run beside later kernels of ranks that are ahead slows down nobody who is waited for.
//
//   Tensor group of 8, kernels of 1 ms in all since the last sum, 2 % each, 100 kernels: s = 2 us, and the latest of 8 is 2.8 us
//   late on average.
#pragma once

#include <limits>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "sim/executor.h"
#include "sim/step_costs.h"
#include "sim/step_schedule.h"

namespace windtunnel {

class Lateness {
 public:
  // Both must outlive it.
  Lateness(const StepSchedule& schedule, const StepCosts& costs);

  // Fills in work.lateness from work.transfers, which are drawn already with that level of the common mode.
  void Draw(const RandomStream& stream, double common_mode, StepWork& work) const;

 private:
  // What one laid-out rank does, in program order.
  struct Event {
    enum class Kind : uint8_t { kKernel, kMeet, kWait };
    Kind kind = Kind::kKernel;
    bool is_awaited_at_once = false;  // kMeet
    int32_t transfer = -1;            // kKernel, kMeet
    int32_t axis = -1;                // kMeet, kWait: of those that the rank meets others on, counted
    int32_t others = 0;  // kMeet, kWait: ranks that the simulated one stands for in the group, without itself
    int32_t meeting = -1;  // kMeet, kWait: the rank's meetings, counted
    uint64_t counter = 0;  // kMeet
    double mean = 0, variance = 0;  // kKernel, kMeet: of its own time; picoseconds
    // kWait, and of a collective that has one kMeet: by mean times, for how long the collective is over when it is waited for.
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
