// Runs all ranks of a plan as threads of this process: the devices of DataParallel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "runtime/rank_session.h"

namespace windtunnel {

struct RankThreads {
  RankOptions options;  // of every rank, but for `rank`, `threads` and `before`
  bool pin = true;      // rank r runs on core r, modulo the cores that this process may use, as processes do
  // Called by each rank for itself: its store, its recorder, and then its work.
  std::function<Result<std::unique_ptr<Store>>(int rank)> connect;
  std::function<Result<FlightRecorder>(int rank)> record;
  std::function<Result<std::string>(RankSession&, Store&)> work;
};

// What `work` returned, by rank. When ranks fail, the error of the one that failed first; the others'
// operators fail with it.
// REQUIRES: SharesProcess(plan).
Result<std::vector<std::string>> RunRankThreads(const Plan& plan, const RankThreads& ranks);

}  // namespace windtunnel
