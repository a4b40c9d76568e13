// A hardware profile: the costs of kernels and collectives on one kind of device, as JSON (schema
// "windtunnel/profile/1", documented in cost_models/README.md). A profile holds costs of single kernels and
// single collectives, never a step time.
// A device that is not at hand has a profile without measurements: its datasheet (cost_models/device_spec.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/device_spec.h"
#include "cost_models/distribution.h"
#include "cost_models/framework_profile.h"

namespace windtunnel {

inline constexpr char kProfileSchema[] = "windtunnel/profile/1";

// One operator shape (CostKey of plan/op.h), measured while `ranks` ranks of the node ran the same.
struct KernelEntry {
  std::string key;
  int ranks = 1;
  int64_t count = 0;  // samples
  Distribution time;  // on a core (or device) of its own
};

// One collective or point-to-point transfer, measured from the last rank's arrival to its completion, on idle
// cores.
struct CollectiveEntry {
  std::string op;       // "all_reduce", "broadcast", "barrier", "send", …
  std::string backend;  // "gloo", "threads"
  int ranks = 1;        // in the group
  Bytes bytes;          // of the whole message
  int64_t count = 0;
  Distribution time;
  // CPU devices: core-seconds that one rank's threads spent on it (median over repetitions).
  Duration core_time;
  // Measured while every rank computed (absent: not measured): the speed of the collective relative to alone,
  // and the speed of the computing threads relative to the same ranks computing without the collective. Both
  // in (0, 1]; a measured value above 1 is noise and clamped.
  std::optional<double> collective_rate_under_compute;
  std::optional<double> compute_rate_under_collective;
};

struct OutsideAllocatorEntry {
  std::string backend;  // "none" for one rank
  int ranks = 1;
  Bytes bytes;  // growth of the resident memory of a rank's process beyond its allocator's segments
};

struct Profile {
  std::string name;                              // "cpu-amd-epyc-2c-1a2b3c4d"
  std::string device;                            // "cpu" | "cuda"
  std::string fingerprint;                       // of the machine
  std::map<std::string, std::string> machine;    // cpu, cores, memory, kernel, …: for people
  std::map<std::string, std::string> libraries;  // name -> version
  std::string created;                           // ISO 8601 date and time, UTC
  int64_t cores = 1;                             // of a node, shared by its ranks
  std::vector<KernelEntry> kernels;
  std::vector<CollectiveEntry> collectives;
  // Host time between two operators (dispatch, allocation, bookkeeping), by ranks running on the node.
  std::map<int, Distribution> dispatch;
  // Slow common drift of the machine: the time of a block of kernels over the median of such blocks, at the
  // levels of Distribution. All 1 if not measured.
  std::array<double, Distribution::kCount> common_mode = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  std::vector<OutsideAllocatorEntry> outside_allocator;
  // The datasheet that costs are modelled from; such a profile has no measurements.
  std::optional<DeviceSpec> hardware;
  // With `hardware`: the framework profile to use instead of the known one of the scenario's framework.
  std::optional<FrameworkProfile> framework = std::nullopt;

  const KernelEntry* FindKernel(const std::string& key, int ranks) const;
  const CollectiveEntry* FindCollective(const std::string& op, const std::string& backend, int ranks,
                                        Bytes bytes) const;
  // Replaces the entry of the same identity, or adds it.
  void Put(KernelEntry entry);
  void Put(CollectiveEntry entry);
  void Put(OutsideAllocatorEntry entry);
};

// Errors: InvalidInput with the file's name (missing, not JSON, another schema version, a missing or wrong
// field).
Result<Profile> LoadProfile(const std::string& path);
Result<Profile> ParseProfile(const std::string& json, const std::string& name);
// Canonical: sorted, so that equal profiles are equal text. For a datasheet: the text that it was read from.
std::string ProfileJson(const Profile& profile);
// Through a temporary file and a rename. Failed when the file cannot be written.
Status SaveProfile(const Profile& profile, const std::string& path);
// "sha256:…" of the canonical JSON, and of the digest of `framework` if that is given.
std::string ProfileDigest(const Profile& profile);

}  // namespace windtunnel
