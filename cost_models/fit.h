// From raw samples of a calibration to a profile's entries. runtime/calibration.h measures; nothing here
// knows a step time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "cost_models/profile.h"

namespace windtunnel {

// One collective (or a send with its receive), repeated, as one rank saw it; empty if the rank took no part.
// Times are of a clock that all ranks share. Index i is the same repetition on every rank.
struct CollectiveSamples {
  std::string op;  // "all_reduce"
  // If the group spans nodes: CommunicatorName (cost_keys.h), with the network; else empty.
  std::string backend;
  int64_t bytes = 0;
  int ranks = 1;
  std::vector<Duration> arrived, done;  // on idle cores: when this rank submitted, and when its wait returned
  std::vector<Duration> core_time;      // of this rank's process, per repetition: one value per round
  // While every rank computes: when this rank submitted, when its operator was done, when it stopped
  // computing, and the speed of its computing thread meanwhile, relative to alone.
  std::vector<Duration> overlap_arrived, overlap_done, overlap_compute_end;
  std::vector<double> compute_rate;
};

// One rank's samples.
struct CalibrationSamples {
  std::map<std::string, std::vector<Duration>> kernels;  // by cost key
  std::vector<Duration> dispatch;
  std::vector<double> common_mode;
  std::vector<CollectiveSamples> collectives;
  Bytes outside_allocator;
};

// Puts the samples of all ranks (indexed by rank) into the profile, replacing entries of the same identity.
// `ranks_per_node` ranks ran at once. An entry for issuing operators (key "dispatch …") stays as it is if its
// time is less than the new one, which may come from another scenario. A host that waits long for its device
// issues more slowly, without effect on the step; the time to issue matters only where the device waits for
// the host. REQUIRES: the ranks have the same collectives and repetitions.
void FitSamples(const std::vector<CalibrationSamples>& by_rank, const std::string& backend,
                int ranks_per_node, Profile& profile);

// Removes the entries for issuing operators with this many ranks on the node; the next samples count alone.
void ForgetDispatch(int ranks_per_node, Profile& profile);

// The time from the last arrival to the last completion, by repetition. REQUIRES: by_rank not empty, equal
// lengths.
std::vector<Duration> GroupTimes(const std::vector<const std::vector<Duration>*>& arrived,
                                 const std::vector<const std::vector<Duration>*>& done);

// The collective's speed under computation relative to alone, from one repetition that took `took`, of which the
// first `computing` were under computation: alone = rate * computing + (took - computing). In (0, 1].
// Worked number: alone 10 ms, took 16 ms, computing 12 ms: rate = (10 - 4) / 12 = 0.5.
double RateUnderCompute(Duration alone, Duration took, Duration computing);

}  // namespace windtunnel
