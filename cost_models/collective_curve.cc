#include "cost_models/collective_curve.h"

#include <algorithm>

namespace windtunnel {
namespace {

Duration Between(Duration from, Duration to, double share) { return from + (to - from).Scaled(share); }

Distribution Between(const Distribution& from, const Distribution& to, double share) {
  std::array<Duration, Distribution::kCount> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = Between(from.values()[i], to.values()[i], share);
  // Both ends ascend, and so does every mixture of them except for rounding to picoseconds.
  for (size_t i = 1; i < values.size(); ++i) values[i] = std::max(values[i], values[i - 1]);
  return Distribution::FromQuantiles(values);
}

// A rate measured at one end only holds for the whole interval.
std::optional<double> Between(std::optional<double> from, std::optional<double> to, double share) {
  if (!from || !to) return from ? from : to;
  return *from + (*to - *from) * share;
}

CollectiveEntry Between(const CollectiveEntry& from, const CollectiveEntry& to, Bytes bytes) {
  double share = (bytes - from.bytes) / (to.bytes - from.bytes);
  CollectiveEntry result = from;
  result.bytes = bytes;
  result.count = std::min(from.count, to.count);
  result.time = Between(from.time, to.time, share);
  result.core_time = Between(from.core_time, to.core_time, share);
  result.collective_rate_under_compute =
      Between(from.collective_rate_under_compute, to.collective_rate_under_compute, share);
  result.compute_rate_under_collective =
      Between(from.compute_rate_under_collective, to.compute_rate_under_collective, share);
  return result;
}

CollectiveEntry AtBandwidthOf(const CollectiveEntry& largest, Bytes bytes) {
  double factor = bytes / largest.bytes;
  CollectiveEntry result = largest;
  result.bytes = bytes;
  result.time = largest.time.Scaled(factor);
  result.core_time = largest.core_time.Scaled(factor);
  return result;
}

}  // namespace

CollectiveCurve::CollectiveCurve(const Profile& profile, const std::string& op, const std::string& backend,
                                 int ranks) {
  for (const CollectiveEntry& entry : profile.collectives) {
    if (entry.op == op && entry.backend == backend && entry.ranks == ranks) entries_.push_back(&entry);
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const CollectiveEntry* a, const CollectiveEntry* b) { return a->bytes < b->bytes; });
}

std::optional<CollectiveEstimate> CollectiveCurve::At(Bytes bytes) const {
  auto above = std::lower_bound(entries_.begin(), entries_.end(), bytes,
                                [](const CollectiveEntry* entry, Bytes b) { return entry->bytes < b; });
  if (above == entries_.end()) {
    if (entries_.empty() || entries_.back()->bytes == Bytes(0))
      return std::nullopt;  // no bandwidth in zero bytes
    return CollectiveEstimate{AtBandwidthOf(*entries_.back(), bytes), CostSource::kModelled};
  }
  if ((*above)->bytes == bytes) return CollectiveEstimate{**above, CostSource::kMeasured};
  if (above == entries_.begin()) return CollectiveEstimate{**above, CostSource::kInterpolated};
  return CollectiveEstimate{Between(**(above - 1), **above, bytes), CostSource::kInterpolated};
}

}  // namespace windtunnel
