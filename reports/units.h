// What sharded units (or buckets) cost in a predicted step: their gathers and reductions, how much of these computation hides, and
// their part of the critical path.
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
    Duration time, hidden;  // in all; `hidden`: while the compute stream was busy
    int count = 0;
  };
  std::string name;  // "root", "blocks.3", "bucket 0"
  // The first: DataParallel's broadcasts, too. The last: of updated parameters, under ZeRO.
  Transfer forward_gather, backward_gather, update_gather;
  Transfer reduction;  // reduce-scatter and all-reduce
  // Of the critical path: the unit's operators, and its transfers.
  Duration critical_compute, critical_communication;
};

// In the order in which the steady step first names them, of the first timeline's rank. Empty for a plan whose collectives carry no
// parameters.
std::vector<UnitUse> UnitUses(const Plan& plan, const Prediction& prediction);

// The same as text; of many like units in a row the middle ones are one line. Empty when there are none.
std::string ExplainUnits(const Plan& plan, const Prediction& prediction, Ink ink);

}  // namespace windtunnel
