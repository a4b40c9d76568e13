#include "plan/zero_redundancy.h"

#include <algorithm>
#include <cstdint>

namespace windtunnel {

std::vector<std::vector<int>> ShareParameters(const std::vector<Parameter>& parameters, int ranks) {
  std::vector<int> by_size = TrainedOf(parameters);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](int a, int b) { return parameters[a].elements > parameters[b].elements; });
  std::vector<std::vector<int>> shares(static_cast<size_t>(ranks));
  std::vector<int64_t> elements(shares.size());
  for (const int index : by_size) {
    const auto rank =
        static_cast<size_t>(std::min_element(elements.begin(), elements.end()) - elements.begin());
    shares[rank].push_back(index);
    elements[rank] += parameters[index].elements;
  }
  return shares;
}

}  // namespace windtunnel
