// An outcome's timelines as a Chrome trace (JSON object format), which Perfetto and chrome://tracing open.
// There is one process per rank and side ("rank 0 predicted", "rank 0 measured", next to each other) and one
// track per stream, for a pipeline also a track of the schedule's actions ("0F3", "0B3") above them. Memory
// is shown as counters.
// Format: "Trace Event Format", Google, 2016; complete ("X"), counter ("C"), flow ("s", "f") and metadata
// ("M") events, times in microseconds since the barrier that opened the step.
#pragma once

#include <string>

#include "reports/outcome.h"

namespace windtunnel {

std::string TraceJson(const Outcome& outcome);

}  // namespace windtunnel
