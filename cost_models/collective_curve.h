// The cost of one collective as a function of its message's bytes, from the sizes that a profile holds.
//
//   exact size         the measured entry
//   between two sizes  each quantile linear in bytes: t(b) = t0 + (t1 - t0) (b - b0) / (b1 - b0)
//                      1 MB in 1 ms and 3 MB in 2 ms: 2 MB in 1.5 ms
//   below the smallest the smallest's time: what remains is latency
//   beyond the largest the largest's time at its bandwidth: t(b) = t1 b / b1
//                      4 MB in 2 ms: 10 MB in 5 ms
//
// Core time and overlap rates are interpolated in the same way, but rates stay constant beyond the ends.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cost_models/cost_model.h"
#include "cost_models/profile.h"

namespace windtunnel {

struct CollectiveEstimate {
  CollectiveEntry entry;  // as if measured at the size asked for
  CostSource source = CostSource::kMeasured;
};

class CollectiveCurve {
 public:
  // The entries of `profile` for one collective, backend and number of ranks in the group.
  CollectiveCurve(const Profile& profile, const std::string& op, const std::string& backend, int ranks);

  // Returns nothing if there is no entry to go by.
  std::optional<CollectiveEstimate> At(Bytes bytes) const;

 private:
  std::vector<const CollectiveEntry*> entries_;  // by bytes, ascending
};

}  // namespace windtunnel
