// The buckets of relative positions (Raffel et al., arXiv:1910.10683, section 2.1; the formula is that of
// T5's published code and of Hugging Face's T5Attention). Half of the buckets of a direction have one
// distance each; the others' widths grow with the logarithm of the distance, and the last has all beyond.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace windtunnel {

// In bidirectional attention half of the buckets are for keys behind their query. Worked example: of 32
// buckets of one direction, 0 to 16 begin at the distances 0 to 16, the next ones at 19, 21 and 24, and the
// last one at 113.
struct RelativeBuckets {
  static constexpr int kCount = 32;
  static constexpr double kMostDistance = 128, kRounding = 1e-9;

  bool both_ways = false;
  int of_direction = kCount;
  int64_t first[kCount + 1] = {};  // the distance at which each begins; behind the last: no limit

  explicit RelativeBuckets(bool both_ways)
      : both_ways(both_ways), of_direction(both_ways ? kCount / 2 : kCount) {
    const int exact = of_direction / 2;
    const double growth = std::log(kMostDistance / exact) / (of_direction - exact);
    for (int bucket = 0; bucket < of_direction; ++bucket) {
      const double grown = exact * std::exp(growth * (bucket - exact));
      first[bucket] = bucket <= exact ? bucket : static_cast<int64_t>(std::ceil(grown - kRounding));
    }
    first[of_direction] = std::numeric_limits<int64_t>::max();
  }

  // `distance`: the key's position less the query's. In attention of one direction only queries at or behind
  // the key see it.
  int At(int64_t distance) const {
    const bool is_behind = distance > 0;
    if (is_behind && !both_ways) return 0;
    const int64_t size = is_behind ? distance : -distance;
    int bucket = 0;
    while (first[bucket + 1] <= size) ++bucket;
    return is_behind ? of_direction + bucket : bucket;
  }
};

}  // namespace windtunnel
