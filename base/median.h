// The upper median: of an even number of values, the larger of the two in the middle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace windtunnel {

// REQUIRES: `values` is not empty.
template <typename Value>
Value Median(std::vector<Value> values) {
  WT_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace windtunnel
