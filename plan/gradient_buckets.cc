#include "plan/gradient_buckets.h"

#include <algorithm>

#include "scenarios/derived.h"

namespace windtunnel {

Bytes BucketCap(const Scenario& scenario, Bytes of_one) {
  const DataParallelSpec& data = scenario.parallel.data;
  if (!data.bucket_cap_mb) {
    const bool is_core = scenario.framework == Framework::kMegatronCore;
    if ((is_core || scenario.framework == Framework::kMegatron) && !data.overlap) return Bytes::Max();
    if (is_core)
      return of_one * std::max<int64_t>(40'000'000, 1'000'000 * data.size * scenario.parallel.context.size);
    const bool is_zero3 =
        data.kind == DataParallelKind::kZero3 && scenario.framework != Framework::kWindtunnel;
    if (is_zero3 || IsDeepspeedsZero(scenario) || scenario.framework == Framework::kDeepspeed)
      return of_one * 500'000'000;
  }
  const double mib = data.bucket_cap_mb.value_or(kPytorchBucketMib);
  return Bytes(static_cast<int64_t>(mib * static_cast<double>(MiB(1).count())));
}

std::vector<Bytes> BucketLimits(const Scenario& scenario, Bytes of_one) {
  const Bytes cap = BucketCap(scenario, of_one);
  // Their own limit instead of PyTorch's of 25 MiB.
  if (IsMegatronOrDeepspeed(scenario.framework) || scenario.parallel.data.bucket_cap_mb) return {cap};
  return {kDdpFirstBucket, cap};
}

std::vector<std::vector<int>> AssignBuckets(const std::vector<Bytes>& sizes,
                                            const std::vector<Bytes>& limits) {
  std::vector<std::vector<int>> buckets;
  std::vector<int> open;
  Bytes open_bytes;
  size_t limit = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    open.push_back(static_cast<int>(i));
    open_bytes += sizes[i];
    if (open_bytes < limits[limit]) continue;
    buckets.push_back(std::move(open));
    open = {};
    open_bytes = Bytes(0);
    limit = std::min(limit + 1, limits.size() - 1);
  }
  if (!open.empty()) buckets.push_back(std::move(open));
  return buckets;
}

std::vector<std::vector<int>> TakeTensors(const std::vector<Bytes>& sizes, Bytes limit) {
  std::vector<std::vector<int>> buckets;
  Bytes open_bytes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (buckets.empty() || open_bytes + sizes[i] > limit) {
      buckets.emplace_back();
      open_bytes = Bytes(0);
    }
    buckets.back().push_back(static_cast<int>(i));
    open_bytes += sizes[i];
  }
  return buckets;
}

}  // namespace windtunnel
