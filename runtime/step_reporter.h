// Reports steps while they run: a line on standard error and a record for TensorBoard, both from rank 0.
//
//   WT_ASSIGN_OR_RETURN(StepReporter reporter, StepReporter::Make(reporting, session, store));
//   WT_ASSIGN_OR_RETURN(Timeline timeline, session.Step());
//   WT_RETURN_IF_ERROR(reporter.Report(timeline));
//
// Steps are not disturbed: a step is measured from its beginning to the barrier at its end, and
// all reporting comes after that barrier. A second barrier lets the ranks into the next step
// together, when rank 0 has written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/timeline.h"
#include "runtime/event_file.h"
#include "runtime/rank_session.h"
#include "runtime/step_reporting.h"
#include "runtime/step_summary.h"
#include "runtime/store.h"

namespace windtunnel {

class StepReporter {
 public:
  // Every rank of the plan makes one. Failed: the event file cannot be made.
  static Result<StepReporter> Make(const StepReporting& reporting, RankSession& session, Store& store);

  // Reports the step that the session has just done; every rank calls it after every step. Failed: a peer is
  // gone, or the event file cannot be written.
  Status Report(const Timeline& timeline);

 private:
  StepReporter(const StepReporting& reporting, RankSession& session, Store& store)
      : reporting_(reporting), session_(&session), store_(&store) {}
  Status Write(const std::vector<StepOfRank>& ranks);

  StepReporting reporting_;
  RankSession* session_;
  Store* store_;
  int64_t reports_ = 0;
  std::optional<EventFile> events_;  // rank 0's
};

}  // namespace windtunnel
