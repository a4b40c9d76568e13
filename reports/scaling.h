// How a scenario scales: the same step with more and more data-parallel replicas, predicted. The batch of a replica stays the same
// (weak scaling), so an ideal cluster takes as long whatever its size.
#pragma once

#include <string>
#include <vector>

#include "reports/outcome.h"
#include "reports/questions.h"

namespace windtunnel {

struct ScalingPoint {
  int64_t devices = 0;
  Duration step_time;
  double tokens_per_s = 0;
};

struct Scaling {
  std::vector<ScalingPoint>
      points;        // by number of devices, ascending; empty where nothing could be predicted
  std::string note;  // what was changed beside the number of replicas, or why points are missing
};

// Sizes are powers of two times the devices of one replica, up to 1,024 devices (or one replica) and beyond one node rounded up to whole
// nodes, and the scenario's own; of a large scenario, every second or fourth power. One replica without data
// parallelism is compared with several of DDP. Where sizes cannot be predicted (a profile that was measured has no collectives of
// other sizes; too little memory), the note says why.
Scaling PredictScaling(const Scenario& scenario, const PredictPlan& predict);

}  // namespace windtunnel
