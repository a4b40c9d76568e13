#include "scenarios/scenario.h"

#include <algorithm>

namespace windtunnel {

Scenario::Scenario() = default;
Scenario::Scenario(const Scenario&) = default;
Scenario::Scenario(Scenario&&) noexcept = default;
Scenario& Scenario::operator=(const Scenario&) = default;
Scenario& Scenario::operator=(Scenario&&) noexcept = default;
Scenario::~Scenario() = default;
bool Scenario::operator==(const Scenario&) const = default;

bool Scenario::Recomputes(RecomputeModule module) const {
  if (recompute != Recompute::kSelective) return false;
  if (recompute_modules.empty()) return module == RecomputeModule::kCoreAttention;
  return std::find(recompute_modules.begin(), recompute_modules.end(), module) != recompute_modules.end();
}

}  // namespace windtunnel
