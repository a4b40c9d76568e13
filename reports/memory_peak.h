// When a role's memory peaks and what is alive then, by replaying its programs over the allocator's policy.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

// The moment when most was allocated of one memory.
struct PeakMoment {
  Bytes allocated;
  Bytes by_category[kCategories];
  std::string program;            // "initialize", "step 0", "steady"
  int32_t index = -1;             // of Program::memory, what reached the peak; -1: what was alive before
  std::vector<BufferId> largest;  // alive then, largest first
};

struct ProgramPeaks {
  PeakMoment device, host;
  MemoryPeak memory;  // of the whole program, or programs
};

struct RolePeaks {
  ProgramPeaks startup;  // over initialisation and the first steps
  ProgramPeaks steady;   // of the first steady step
};

// On a device that has `room` for the allocator, as SimulateMemoryWithin: what does not fit is said as of unlimited memory, so that nothing
// fails but a broken program.
Result<RolePeaks> ReplayMemory(const Role& role, int largest_buffers,
                               AllocatorKind allocator = AllocatorKind::kWindtunnel,
                               Bytes room = Bytes::Max());

}  // namespace windtunnel
