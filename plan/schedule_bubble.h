// Theory for the generated schedules: the bubble in closed form, if there is one, and activations in flight.
// Predictions come from running the schedule (plan/schedule_times.h), which is right in every case. The
// formulas here verify that code and the generators, and document the results.
#pragma once

#include <optional>
#include <string>

#include "plan/schedule_times.h"

namespace windtunnel {

// The arguments of MakeSchedule.
struct ScheduleRequest {
  std::string name;
  int ranks = 2;
  int virtual_stages = 1;
  int64_t micro_batches = 1;
  bool is_paired = false;  // made by MakePairedSchedule
};

// The bubble in closed form, for equal stages and free communication: the makespan less one rank's own work.
// No value outside the formula's regime.
// p ranks, v stages per rank, m micro-batches; F, I, W are the times of one stage, B = I + W.
//
//   none         m (p-1) (F + B)                         always
//   gpipe, 1f1b  (p-1) (F + B)                           always (both need m >= p)
//   interleaved  (p-1 + (v-1) max(0, p-m)) (F + B)       always; for m >= p (p-1) (F + B), 1/v of 1F1B's
//   looped_bfs   the same                                always
//   zb_h1        (p-1) max(F + I - W, F, I)              m >= p
//   zb_v         (p-1) F                                 F = I = W and m >= floor(3p / 2)
//   dualpipe_v   (p-1) F                                 F = I = W
//
// In a pair the results of forward and backward exist at the end of both. dualpipe_v's bubble is then
// (p-1) (F + B + B - 3W), as its own README says, twice as much; interleaved has no formula here.
//
// Sources: for the familiar cases the papers cited at the generators (plan/schedules/generators.h). The terms
// for m < p, zb_h1's maximum and the regimes of zb_v and dualpipe_v were found by running the schedules, and
// are tested for p in 2..16 and m in 1..64.
// Worked number: 1f1b, p = 4, F = 1, I = W = 1: 3 x 3 = 9. zb_h1: 3 x 1 = 3.
std::optional<Duration> ClosedFormBubble(const ScheduleRequest& request, const StageTimes& times);

// ActivationsInFlight (plan/schedule_check.h) of rank r; the unit is one micro-batch in one stage.
//
//   none 1; gpipe m; 1f1b min(m, p-r); interleaved min(m v, (v-1) g + 2 (p-1-r) + 1) with g = m / max(1, m / p), paired one more;
//   looped_bfs m v; zb_h1 min(m, p); zb_v min(2p, 2m, m+r+1), 2p from m = 2p-1 on; dualpipe_v 2p+1
int64_t PromisedActivationsInFlight(const ScheduleRequest& request, int rank);

}  // namespace windtunnel
