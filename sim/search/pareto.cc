#include "sim/search/pareto.h"

#include <algorithm>
#include <tuple>

namespace windtunnel {

bool IsBetter(const Choice& a, const Choice& b) {
  return std::tie(a.step_time, a.memory, a.devices, a.id) < std::tie(b.step_time, b.memory, b.devices, b.id);
}

std::vector<Choice> ParetoFront(std::vector<Choice> choices) {
  std::sort(choices.begin(), choices.end(), IsBetter);
  std::vector<Choice> front;
  for (const Choice& choice : choices) {
    // No choice on the front so far takes longer.
    const bool is_dominated = std::any_of(front.begin(), front.end(), [&](const Choice& other) {
      return other.memory <= choice.memory && other.devices <= choice.devices;
    });
    if (!is_dominated) front.push_back(choice);
  }
  return front;
}

}  // namespace windtunnel
