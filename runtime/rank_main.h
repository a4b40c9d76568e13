// What a rank does between rendezvous and its result (see live.h for the whole).
#pragma once

#include <string>

#include "base/result.h"
#include "runtime/job.h"
#include "runtime/rank_session.h"

namespace windtunnel {

// The store's keys of rank `rank`'s result, and of the error of process `rank`.
std::string ResultKey(int rank);
std::string ErrorKey(int rank);

// Runs initialisation, warm-up and measured steps of one rank. Warm-up is at least the steps that differ from
// the steady one. `options` says what the run resumes from, saves, evaluates and reports.
Result<RankRun> MeasureRank(RankSession& session, Store& store, const RunOptions& options);

}  // namespace windtunnel
