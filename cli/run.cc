#include <chrono>
#include <cstdlib>
#include <string_view>

#include "cli/commands.h"
#include "cli/session.h"
#include "runtime/live.h"

namespace windtunnel {
namespace {

// Of a job that something else launched; its first rank speaks for all.
bool IsSilentRank() {
  const char* rank = std::getenv("RANK");
  return IsRankOfJob() && rank && std::string_view(rank) != "0";
}

}  // namespace

Result<int> RunLiveCommand(const Options& options) {
  WT_RETURN_IF_ERROR(CheckReports(options));
  WT_ASSIGN_OR_RETURN(Plan plan, LoadPlan(options, options.files.front()));
  bool silent = IsSilentRank();
  Progress progress(false);  // the lines of steps show it
  LiveOptions live = silent ? LiveOptions{} : LiveOptionsFor(options, progress);
  live.steps = {options.log_every, !options.quiet, options.tensorboard, DensePeak(plan, MachineProfile())};

  auto begin = std::chrono::steady_clock::now();
  WT_ASSIGN_OR_RETURN(Measurement measurement, IsRankOfJob() ? JoinLive(plan, live) : RunLive(plan, live));
  std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  if (silent) return 0;

  std::vector<Outcome> outcomes(1);
  outcomes[0].plan = std::move(plan);
  outcomes[0].profile = MachineProfile();
  outcomes[0].measurement = std::move(measurement);
  outcomes[0].measurement_wall = Seconds(wall.count());
  WT_RETURN_IF_ERROR(Report(options, outcomes));
  return 0;
}

}  // namespace windtunnel
