// Whether the costs of a profile can be those of a machine: what cannot be, and what looks like a disturbed measurement.
//
// Impossible:
//   a time that is not positive
//   a kernel's FLOPs / median above the peak, a kernel's traffic / median above the memory's bandwidth
//   a collective that moves its message faster than the links (devices) or the memory (processors) can
//   more core time than the cores have in a collective's time; more memory outside the allocator than ranks were given
//   in a datasheet: attention or a collective above the peaks that the same datasheet names
// Suspicious:
//   a kernel or message that is larger by a quarter and yet faster, beyond all spread: p90 of the larger under p10 of the smaller
//   a spread of p90 over p10 beyond 4, of what takes at least 20 us; a mean drift of the machine beyond 1.5; fewer than 5 samples
//
// The limits of a processor's core hold for every one there is (below); those of a device are its datasheet's, found by the model's name. What
// fits into a device's caches may be faster than its memory, so that only 256 MiB and more are held against it.
#pragma once

#include <string>
#include <vector>

#include "cost_models/profile.h"

namespace windtunnel {

struct ProfileFinding {
  bool impossible = false;  // else suspicious
  std::string where;        // "gemm fp32 nn m=256 n=1024 k=256, 2 ranks"
  std::string what;         // "1.20 TFLOP/s in the median; a core does at most 416 GFLOP/s"
};

// By the profile's order, the impossible first.
std::vector<ProfileFinding> CheckProfile(const Profile& profile);

// A core's: 64 FLOP a cycle in fp32 (two 512-bit fused multiply-adds), 1,024 in 16 bits (AMX: 16 x 16 x 32 products in 16 cycles),
// 192 bytes a cycle to and from its first cache (two loads and a store of 64 bytes), all at 6.5 GHz, which is above every part sold (Intel 64 and
// IA-32 Architectures Optimization Reference Manual; Intel and AMD data sheets).
inline constexpr double kCoreClock = 6.5e9;
inline constexpr double kCoreFlopsPerCycle = 64, kCoreFlopsPerCycle16 = 1024, kCoreBytesPerCycle = 192;

}  // namespace windtunnel
