#include "runtime/step_reporter.h"

#include <cstdio>

namespace windtunnel {
namespace {

constexpr std::chrono::seconds kPatience{30};  // the values are in the store already

// One key for each rank, whose value each step replaces, so that the store does not grow.
std::string StepKey(int rank) { return "step/" + std::to_string(rank); }

Result<StepOfRank> OwnStep(RankSession& session, const Timeline& timeline) {
  const MemoryPeak& peak = session.executor().pool().peak();
  WT_ASSIGN_OR_RETURN(std::vector<double> losses, session.executor().Losses());
  return StepOfRank{session.steps_done(), std::move(losses), timeline.end, peak.allocated, peak.reserved};
}

}  // namespace

Result<StepReporter> StepReporter::Make(const StepReporting& reporting, RankSession& session, Store& store) {
  StepReporter reporter(reporting, session, store);
  if (session.rank() == 0 && !reporting.tensorboard.empty()) {
    WT_ASSIGN_OR_RETURN(reporter.events_, EventFile::Create(reporting.tensorboard));
  }
  return reporter;
}

Status StepReporter::Report(const Timeline& timeline) {
  if (!reporting_.any()) return Ok();
  if (reports_++ > 0 && session_->steps_done() % reporting_.every != 0) return Ok();
  std::vector<StepOfRank> ranks(1);
  WT_ASSIGN_OR_RETURN(ranks[0], OwnStep(*session_, timeline));
  if (session_->rank() != 0) WT_RETURN_IF_ERROR(store_->Set(StepKey(session_->rank()), Serialize(ranks[0])));
  WT_RETURN_IF_ERROR(session_->Barrier());  // all are there
  if (session_->rank() == 0) {
    for (int rank = 1; rank < session_->plan().world_size; ++rank) {
      WT_ASSIGN_OR_RETURN(const std::string bytes, store_->Get(StepKey(rank), kPatience));
      WT_ASSIGN_OR_RETURN(ranks.emplace_back(), ParseStepOfRank(bytes));
    }
    WT_RETURN_IF_ERROR(Write(ranks));
  }
  return session_->Barrier();
}

Status StepReporter::Write(const std::vector<StepOfRank>& ranks) {
  const Executor& executor = session_->executor();
  std::optional<double> gradient_norm;
  if (executor.role().gradient_norm >= 0) {
    WT_ASSIGN_OR_RETURN(gradient_norm, executor.GradientNormValue());
  }
  WT_ASSIGN_OR_RETURN(const std::optional<LossScaleState> loss_scale, executor.LossScale());
  const StepSummary summary = Summarize(session_->plan(), ranks, gradient_norm, reporting_.peak, loss_scale);
  // If the reader of standard error is gone, training goes on.
  if (reporting_.lines) (void)std::fprintf(stderr, "%s\n", StepLine(summary).c_str());
  if (!events_) return Ok();
  const bool goes_on = summary.step > 1 || reporting_.is_restart;
  if (reports_ == 1 && goes_on) WT_RETURN_IF_ERROR(events_->WriteRestart(summary.step));
  return events_->Write(summary.step, StepScalars(summary));
}

}  // namespace windtunnel
