// Memory of a role: its programs' allocations and frees, run through the allocator's policy without real
// memory. Nothing in it depends on time, so it is done once, outside the Monte Carlo.
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
  int steps = 0;                      // steady ones simulated, the last of them like the one before it
  Bytes reserved, host_reserved;      // at the end of the last step
  std::vector<MemorySample> samples;  // of the last step, in program order; times are left zero
};

struct RoleMemoryOptions {
  AllocatorKind allocator = AllocatorKind::kWindtunnel;
  Bytes device_capacity = Bytes::Max(), host_capacity = Bytes::Max();  // for the allocators' segments
};

// Runs initialisation, the start-up steps and steady steps until two are alike (eight at most). Errors:
// Failed (out of memory; names which memory and the buffer).
Result<RoleMemory> SimulateMemory(const Role& role, const RoleMemoryOptions& options = {});

// RoleMemory's steady.requested only.
Bytes RequestedPeak(const Role& role, AllocatorKind allocator);

// Whether an allocator with `room` releases cached segments instead of reserving as much as `unlimited`,
// which is more than `room`. PyTorch's allocators do if what is requested fits.
bool GivesBack(AllocatorKind allocator, Bytes room, const MemoryPeak& unlimited);

// SimulateMemory on a device with `room` for the allocator. PyTorch's allocators release cached segments
// before they would reserve more than that (MemoryPeak::retries). If the allocator runs out of memory even
// so, returns the simulation without a limit, whose reserved memory is more than `room`.
Result<RoleMemory> SimulateMemoryWithin(Bytes room, const Role& role, AllocatorKind allocator);

}  // namespace windtunnel
