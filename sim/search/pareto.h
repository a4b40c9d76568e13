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

// Less time, then less memory, then fewer devices, then the lower id: a total order.
bool IsBetter(const Choice& a, const Choice& b);

// The choices that no other one dominates, that is, for which no other is at least as good in step time,
// memory and devices and better in one of them. Of equal ones, that with the lowest id. In the order of
// IsBetter.
std::vector<Choice> ParetoFront(std::vector<Choice> choices);

}  // namespace windtunnel
