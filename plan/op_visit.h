// Helpers of the functions over kinds of operators.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace windtunnel {

// A visitor of several lambdas.
template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

inline int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace windtunnel
