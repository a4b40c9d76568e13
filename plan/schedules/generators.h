// One function for each schedule. MakeSchedule (plan/schedule.h) checks what they require and dispatches by
// name.
// In the comments p is the number of ranks, r a rank, v the stages per rank, m the number of micro-batches.
#pragma once

#include "plan/schedule.h"

namespace windtunnel::schedules {

// Naive model parallelism: micro-batches strictly one after the other, so one rank works at a time.
Schedule None(int ranks, int64_t micro_batches);

// All forwards, then all backwards in the same order (Huang et al. 2019).
Schedule GPipe(int ranks, int64_t micro_batches);

// p-r-1 forwards as warm-up, then forward and backward in turn (Narayanan et al. 2021, PipeDream-flush).
// torch counts the first steady forward as warm-up, Megatron does not; the lists are the same. torch demands
// m >= p; with fewer, ranks run all forwards first.
Schedule OneForwardOneBackward(int ranks, int64_t micro_batches);

// 1F1B over v stages per rank, depth first: groups of `group` micro-batches go through a rank's first stage,
// then its second, …
// Warm-up: min(m v, (v-1) group + 2 (p-1-r)) forwards.
// torch uses group = m / max(1, m / p) and requires m to be a multiple of the m / p rounds. Megatron uses
// group = p (or microbatch_group_size_per_vp_stage) and a last group of m mod group, 0 or at least p.
// REQUIRES: group >= min(p, m), and m mod group is 0 or at least p.
// `pairs`: warm-up has one more forward, and the forwards after it are paired.
Schedule Interleaved(int ranks, int virtual_stages, int64_t micro_batches, int64_t group, bool pairs = false);

// Breadth first: all micro-batches through a rank's first stage, then its second, …; backward in exactly the
// reverse order (Lamy-Poirier 2023).
Schedule LoopedBreadthFirst(int ranks, int virtual_stages, int64_t micro_batches);

// 1F1B with the backward split: p-r-1 forwards as warm-up, then forward and input gradient in turn; weight
// gradients lag r micro-batches behind, which fills the bubble at the end (Qi et al. 2023, ZB-H1; torch's
// InterleavedZeroBubble with v = 1).
Schedule ZeroBubbleH1(int ranks, int64_t micro_batches);

// Zero bubble over two stages per rank placed as a V (Qi et al. 2023, section 6), as torch's ZBVZeroBubble
// builds it: for max(m, 2p-1) micro-batches, of which those from m on are then removed.
Schedule ZeroBubbleV(int ranks, int64_t micro_batches);

// DeepSeek's DualPipeV in its eight phases. A forward and a backward that overlap on the device stand one
// after the other here, forward first. `pairs`: they are paired, except the last rank's first pair, for which
// earlier stages wait (torch's ScheduleDualPipeV). REQUIRES: m >= 2p.
Schedule DualPipeV(int ranks, int64_t micro_batches, bool pairs = false);

// An empty schedule with `placement` as its rank_of_stage, for the generators to fill.
Schedule EmptySchedule(const char* name, int ranks, int64_t micro_batches, std::vector<int> placement);

}  // namespace windtunnel::schedules
