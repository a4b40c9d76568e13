// Data races within a step: operators of different streams that use the same elements, of which one writes, and that nothing orders.
#pragma once

#include <string>

#include "plan/plan.h"

namespace windtunnel {

// The first race of `program` on the role's first rank: "'bucket 0' (copy) and 'bucket 0' (all_reduce) both use elements 0+256 of 'bucket 0
// gradients', in no order"; empty where there is none. Operators are ordered by their stream, by dependencies, and by what the host has
// waited for or done itself before it issued them.
std::string FindRace(const Plan& plan, const Role& role, const Program& program);

}  // namespace windtunnel
