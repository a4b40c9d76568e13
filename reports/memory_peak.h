// When a role's memory peaks and what is alive then: replays its programs with the allocator's policy.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

// The moment when the allocated bytes of one memory (device or host) were largest.
struct PeakMoment {
  Bytes allocated;
  Bytes by_category[kCategories];
  std::string program;  // "initialize", "step 0", "steady"
  // In Program::memory, of the allocation that reached the peak; -1: what was alive before.
  int32_t index = -1;
  std::vector<BufferId> largest;  // alive then, largest first
};

struct ProgramPeaks {
  PeakMoment device, host;
  MemoryPeak memory;  // over the whole program or programs
};

struct RolePeaks {
  ProgramPeaks startup;  // over initialisation and the first steps
  ProgramPeaks steady;   // of the steady steps
};

// Replays on a device that has `room` for the allocator, as SimulateMemoryWithin does. A role that does not
// fit gets the peaks that it has with unlimited memory, so only a broken program is an error.
Result<RolePeaks> ReplayMemory(const Role& role, int largest_buffers,
                               AllocatorKind allocator = AllocatorKind::kWindtunnel,
                               Bytes room = Bytes::Max());

}  // namespace windtunnel
