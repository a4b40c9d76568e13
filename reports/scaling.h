// How a scenario scales: predictions of the same step with more and more data-parallel replicas. The batch of
// a replica stays the same (weak scaling), so an ideal cluster takes equally long at every size.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "reports/remedies.h"
#include "scenarios/scenario.h"

namespace windtunnel {

struct ScalingPoint {
  int64_t devices = 0;
  Duration step_time;
  double tokens_per_s = 0;
};

struct Scaling {
  std::vector<ScalingPoint>
      points;        // by number of devices, ascending; empty where nothing could be predicted
  std::string note;  // what else was changed than the number of replicas, or why points are missing
};

// The sizes are powers of two times the devices of one replica, up to 1,024 devices (or one replica), and the
// scenario's own size. Sizes beyond one node are rounded up to whole nodes. A large scenario is predicted at
// every second or fourth power only. One replica without data parallelism is compared with several of DDP.
// Where sizes cannot be predicted (no network between nodes is named; too little memory), the note says why.
// Not for measured costs, which have no collectives of other sizes.
Scaling PredictScaling(const Scenario& scenario, const PredictPlan& predict);

}  // namespace windtunnel
