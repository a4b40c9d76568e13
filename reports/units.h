// What sharded units (or buckets) cost in a predicted step: their gathers and reductions, how much of these
// is hidden by computation, and their part of the critical path.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "reports/ink.h"
#include "sim/predict.h"

namespace windtunnel {

struct UnitUse {
  struct Transfer {
    Bytes bytes;
    Duration time, hidden;  // totals; `hidden`: while the compute stream was busy
    int count = 0;
  };
  std::string name;  // "root", "blocks.3", "bucket 0"
  // forward_gather includes DataParallel's broadcasts. update_gather: of updated parameters, under ZeRO.
  Transfer forward_gather, backward_gather, update_gather;
  Transfer reduction;  // reduce-scatter and all-reduce
  // Times on the critical path: of the unit's compute operators, and of its transfers.
  Duration critical_compute, critical_communication;
};

// The units of the first timeline's rank, in the order in which its steady step first names them. Empty for a
// plan whose collectives carry no parameters.
std::vector<UnitUse> UnitUses(const Plan& plan, const Prediction& prediction);

// The same as text; of many units, those in the middle share one line. Empty when there are none.
std::string ExplainUnits(const Plan& plan, const Prediction& prediction, Ink ink);

}  // namespace windtunnel
