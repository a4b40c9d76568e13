// Memory of a role: what its programs allocate and free, run through the allocator's policy, without memory. Nothing in it depends on
// time, so it is done once, outside the Monte Carlo.
#pragma once

#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/timeline.h"
#include "scenarios/scenario.h"

namespace windtunnel {

struct RoleMemory {
  Bytes initial_peak;                 // allocated, over initialisation and the first steps
  MemoryPeak steady;                  // over all steady steps; retries: of the last
  int steps = 0;                      // steady ones, until one was like the one before
  Bytes reserved, host_reserved;      // at its end
  std::vector<MemorySample> samples;  // of the last step, in program order; times are left zero
};

struct RoleMemoryOptions {
  AllocatorKind allocator = AllocatorKind::kWindtunnel;
  Bytes device_capacity = Bytes::Max(), host_capacity = Bytes::Max();  // for the allocators' segments
};

// Runs initialisation, the start-up steps and steady steps until two are alike (eight at most). Errors: Failed (out of memory: of which, for what).
Result<RoleMemory> SimulateMemory(const Role& role, const RoleMemoryOptions& options = {});

// RoleMemory's steady.requested alone.
Bytes RequestedPeak(const Role& role, AllocatorKind allocator);

// Whether a device's allocator that has `room` gives back what it has cached, rather than reserve as `unlimited` did: PyTorch's, where what is
// requested fits.
bool GivesBack(AllocatorKind allocator, Bytes room, const MemoryPeak& unlimited);

// SimulateMemory on a device that has `room` for the allocator. Where PyTorch's would reserve more than that, it gives back what it has cached
// first (MemoryPeak::retries). Where even so it runs out, what it would reserve without a limit, which is more than `room`.
Result<RoleMemory> SimulateMemoryWithin(Bytes room, const Role& role, AllocatorKind allocator);

}  // namespace windtunnel
