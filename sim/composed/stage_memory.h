// What a pass through a stage does to a rank's memory: sums of requests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/composed/rank_strategy.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

// A part of a pass, so many times in a row.
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

// Of an action: until the messages that are then known to have arrived are freed, right before what the first computation allocates,
// and from then on.
struct ActionMemory {
  MemoryPass lead, rest;
};

// Of a stage whose units come so often each.
ActionMemory MemoryOf(const PartRuns& runs, std::span<const LayerUnit> units);
// Of a step's first backward, with what the strategy allocates for gradients: its groups from number `group` on.
ActionMemory MemoryOfFirst(const PartRuns& runs, const RankStrategy& strategy, size_t group);

}  // namespace windtunnel::composed
