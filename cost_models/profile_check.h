// Checks a profile for costs that no machine can have, and costs that look like a disturbed measurement.
//
// Impossible:
//   a time that is not positive
//   a kernel's FLOPs / median above the peak, a kernel's traffic / median above the memory's bandwidth
//   a collective that moves its message faster than the links (devices) or the memory (processors) can
//   more core time than the cores have in a collective's time; more memory outside the allocator than ranks were given
//   in a datasheet: attention or a collective above the peaks that the same datasheet names, peaks out of
//   order or in another unit, channels on all multiprocessors, an unknown `intra_node`
// Suspicious:
//   a kernel or message that is at least 1.25 times as large as another and yet faster, beyond all spread:
//   p90 of the larger is below p10 of the smaller
//   a spread of p90 over p10 above 4, in what takes at least 20 us; means of all kernels together above twice
//   their medians, as where they have to wait for their core now and then; a drift of the machine (p90 over
//   p10 of the common mode) above 1.5; fewer than 5 samples
//
// The limits of a processor's core hold for every processor there is (below). Those of a device are its
// datasheet's, found by the model's name. Data that fits into a device's caches may move faster than its
// memory allows, so only traffic of 256 MiB and more is checked against its bandwidth.
#pragma once

#include <string>
#include <vector>

#include "cost_models/profile.h"

namespace windtunnel {

// All kernels' means over all their medians; above it, something else ran. Undisturbed profiles have 1.03 to
// 1.34, one that was taken beside three busy loops on two cores 5.2.
inline constexpr double kDisturbedMeans = 2;

struct ProfileFinding {
  bool impossible = false;  // else suspicious
  std::string where;        // "gemm fp32 nn m=256 n=1024 k=256, 2 ranks"
  std::string what;         // "1.20 TFLOP/s in the median; a core does at most 416 GFLOP/s"
};

// In the profile's order, impossible costs first.
std::vector<ProfileFinding> CheckProfile(const Profile& profile);

// The limits of a core: 64 FLOP per cycle in fp32 (two 512-bit fused multiply-adds), 1,024 in 16 bits (AMX:
// 16 x 16 x 32 products in 16 cycles), 192 bytes per cycle to and from its first-level cache (two loads and a
// store of 64 bytes), all at 6.5 GHz, which is above every part sold (Intel 64 and IA-32 Architectures
// Optimization Reference Manual; Intel and AMD data sheets).
inline constexpr double kCoreClock = 6.5e9;
inline constexpr double kCoreFlopsPerCycle = 64, kCoreFlopsPerCycle16 = 1024, kCoreBytesPerCycle = 192;

}  // namespace windtunnel
