// The effect of a pass through a stage on a rank's memory, in sums of requests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/composed/rank_strategy.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

// A part of a pass, `count` times in a row.
struct PartRun {
  const Part* part = nullptr;
  int64_t count = 0;
};
using PartRuns = std::vector<PartRun>;

// A change of memory and the highest level on the way to it, bytes.
struct MemoryPass {
  int64_t net = 0, peak = 0;

  void Add(int64_t bytes) {
    net += bytes;
    peak = std::max(peak, net);
  }
  MemoryPass Then(const MemoryPass& next) const { return {net + next.net, std::max(peak, net + next.peak)}; }
  MemoryPass Times(int64_t count) const {
    return count == 0 ? MemoryPass{}
                      : MemoryPass{count * net, peak + std::max<int64_t>((count - 1) * net, 0)};
  }
};

// The memory of an action: `lead` until the sent messages that are known to have arrived are freed, which is
// right before the first computation's allocations; `rest` from then on. An action that computes nothing, like
// the backward of inputs of the first stage if it has no layers, leaves the freeing to the rank's next one.
struct ActionMemory {
  MemoryPass lead, rest;
  bool computes = false;
  // If it waits for tensor ranks, `rest` in two: until what was left to them is freed (Part::awaits_tensor), and
  // from then on.
  bool awaits_tensor = false;
  MemoryPass until_awaited, behind;
};

// `units`: how often each unit of the stage occurs.
ActionMemory MemoryOf(const PartRuns& runs, std::span<const LayerUnit> units);
// For a step's first backward, with the strategy's allocations for gradients: groups from index `group` on.
ActionMemory MemoryOfFirst(const PartRuns& runs, const RankStrategy& strategy, size_t group);

}  // namespace windtunnel::composed
