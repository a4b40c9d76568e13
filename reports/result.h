// An outcome as JSON, schema "windtunnel/result/1": docs/contract.md, "Result", is the definition. Beyond its
// keys stand `context` (version, machine and library versions of the costs), `by_operator` and, in `error`,
// `initial_peak_bytes` and `resident_bytes`. Two predictions of the same input are equal text but for
// `wall_s`.
#pragma once

#include <string>
#include <vector>

#include "reports/outcome.h"

namespace windtunnel {

inline constexpr char kResultSchema[] = "windtunnel/result/1";

// One outcome as an object, several as an array; indented, with a line feed at the end.
std::string ResultJson(const std::vector<Outcome>& outcomes);
// Of one, which a list would copy, plan and all.
std::string ResultJsonOf(const Outcome& outcome);

}  // namespace windtunnel
