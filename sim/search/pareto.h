// Which evaluated configurations are worth a look: those that none is better than.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"

namespace windtunnel {

struct Choice {
  int64_t id = 0;  // of the configuration
  Duration step_time;
  Bytes memory;
  int64_t devices = 1;
};

// Less time, then less memory, fewer devices, the lower number: a total order.
bool IsBetter(const Choice& a, const Choice& b);

// Those that no other one is at least as good as in step time, memory and devices, and better in one; of equals the lowest number.
// In the order of IsBetter.
std::vector<Choice> ParetoFront(std::vector<Choice> choices);

}  // namespace windtunnel
