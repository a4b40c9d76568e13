// What the HTML report shows, as JSON: the page's script draws from it and knows nothing else.
//
//   {"version", "search": windtunnel/search/1 (of a search), "outcomes": [{"title", "description", "facts": ["2 ranks, data 2 (ddp)", …], "scenario": YAML,
//     "result": windtunnel/result/1, "samples": {"predicted": [s], "measured": [s]},
//     "breakdown": [{"side", "part", "seconds"}], "roles": [{"side", "name", "part", "seconds"}],
//     "groups": [{"name", "colour"}], "timelines": [{"side", "rank", "end_s", "lanes": [name],
//       "spans": [{"lane", "group", "name", "count", "start_s", "end_s"}]}],
//     "actions": [{"side", "rank", "kind", "stage", "micro_batch", "start_s", "end_s"}],   of a pipeline
//     "memory": [{"side", "rank", "points": [{"time_s", "bytes": {category: bytes}}]}],
//     "scaling": {"points": [{"devices", "step_time_s", "tokens_per_s"}], "note"}}]}
//
// Spans of one group that touch are one span that says how many operators it is, so that a page has a few thousand at most; of a memory
// curve as many points are left as a screen has, each the largest of those in its place.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "reports/outcome.h"
#include "reports/scaling.h"

namespace windtunnel {

nlohmann::ordered_json HtmlData(const Outcome& outcome, const Scaling& scaling);

}  // namespace windtunnel
