// Data races within a step: two operators of different streams use the same elements, at least one of them
// writes, and nothing orders them.
#pragma once

#include <string>

#include "plan/plan.h"

namespace windtunnel {

// The first race of `program` on the role's first rank: "'bucket 0' (copy) and 'bucket 0' (all_reduce) both
// use elements 0+256 of 'bucket 0 gradients', in no order"; empty if there is none. Operators are ordered by
// their stream, by dependencies, and by what the host waited for or did itself before it issued them.
std::string FindRace(const Plan& plan, const Role& role, const Program& program);

}  // namespace windtunnel
