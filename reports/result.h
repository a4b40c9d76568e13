// An outcome as JSON, schema "windtunnel/result/1", which docs/contract.md, "Result", defines. In addition to
// its keys there are `context` (version, machine and library versions of the costs), `by_operator` and, in
// `error`, `initial_peak_bytes` and `resident_bytes`. Two predictions of the same input give equal text
// except for `wall_s`.
#pragma once

#include <string>
#include <vector>

#include "reports/outcome.h"

namespace windtunnel {

inline constexpr char kResultSchema[] = "windtunnel/result/1";

// One outcome as an object, several as an array; indented, with a line feed at the end.
std::string ResultJson(const std::vector<Outcome>& outcomes);
// The same for one outcome, which need not be copied into a vector with its plan.
std::string ResultJsonOf(const Outcome& outcome);

}  // namespace windtunnel
