// What the HTML report shows, as JSON. It is the only input of the page's script.
//
//   {"version", "search": windtunnel/search/1 (only for a search), "outcomes": [{
//     "title", "description", "facts": ["2 ranks, data 2 (ddp)", …], "scenario": YAML,
//     "result": windtunnel/result/1, "samples": {"predicted": [s], "measured": [s]},
//     "breakdown": [{"side", "part", "seconds"}], "roles": [{"side", "name", "part", "seconds"}],
//     "groups": [{"name", "colour"}], "timelines": [{"side", "rank", "end_s", "lanes": [name],
//       "spans": [{"lane", "group", "name", "start_s", "end_s", "busy_s"}]}],
//     "actions": [{"side", "rank", "kind", "stage", "micro_batch", "half", "start_s", "end_s"}],  (pipelines)
//     "memory": [{"side", "rank", "points": [{"time_s", "bytes": {category: bytes}}]}],
//     "scaling": {"points": [{"devices", "step_time_s", "tokens_per_s"}], "note"}}]}
//
// Spans of one group that touch are merged into one, whose name says how many operators it covers, so that a
// page has a few thousand at most. A memory curve keeps as many points as a screen has columns, each the
// largest of those in its column.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "reports/outcome.h"
#include "reports/scaling.h"

namespace windtunnel {

nlohmann::ordered_json HtmlData(const Outcome& outcome, const Scaling& scaling);

}  // namespace windtunnel
