#include "runtime/rank_threads.h"

#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/errors_of.h"
#include "runtime/cores.h"

namespace windtunnel {
namespace {

class Threads {
 public:
  Threads(const Plan& plan, const RankThreads& ranks)
      : plan_(plan), ranks_(ranks), before_(UsedNow(plan)), results_(plan.world_size) {
    ThreadGroupOptions options{plan.axes[0].name, plan.world_size, ranks.options.collective_timeout};
    if (ranks.options.shares_core) options.spin = std::chrono::microseconds(0);
    group_ = MakeThreadGroup(options);
  }

  Result<std::vector<std::string>> Run() {
    std::vector<cpu_set_t> cores(plan_.world_size);
    std::optional<CoreClaims> claims;
    if (ranks_.pin) claims.emplace(0, plan_.world_size);
    {
      std::vector<std::jthread> threads;
      threads.reserve(static_cast<size_t>(plan_.world_size));
      for (int rank = 0; rank < plan_.world_size; ++rank) {
        const bool pins = claims && claims->CoreOf(rank, cores[rank]);
        const Status started = ErrorsOf([&]() -> Status {
          threads.emplace_back([this, rank, core = cores[rank], pins] {
            if (pins) sched_setaffinity(0, sizeof core, &core);
            RunRank(rank);
          });
          return Ok();
        });
        if (started) continue;
        Note(Failed("rank {} cannot be started: {}", rank, started.error().message));
        LeaveThreadGroup(*group_, rank);
      }
    }
    if (failure_) return tl::unexpected(*failure_);
    return std::move(results_);
  }

 private:
  void Note(const Status& status) {
    if (status) return;
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = status.error();
  }

  // A failure is noted before the session ends, which makes the other ranks fail too.
  void RunRank(int rank) {
    std::unique_ptr<Store> store;
    std::optional<FlightRecorder> recorder;
    std::unique_ptr<RankSession> session;
    const auto run = [&]() -> Status {
      WT_ASSIGN_OR_RETURN(store, ranks_.connect(rank));
      WT_ASSIGN_OR_RETURN(recorder, ranks_.record(rank));
      RankOptions options = ranks_.options;
      options.rank = rank;
      options.threads = group_;
      options.before = before_;
      WT_ASSIGN_OR_RETURN(session, RankSession::Make(plan_, *store, *recorder, options));
      WT_ASSIGN_OR_RETURN(results_[rank], ranks_.work(*session, *store));
      return Ok();
    };
    const Status status = ErrorsOf(run);
    Note(status);
    session.reset();
    LeaveThreadGroup(*group_, rank);
  }

  const Plan& plan_;
  const RankThreads& ranks_;
  const UsedMemory before_;
  std::shared_ptr<ThreadGroup> group_;
  std::vector<std::string> results_;
  std::mutex mutex_;
  std::optional<Error> failure_;  // the first
};

}  // namespace

Result<std::vector<std::string>> RunRankThreads(const Plan& plan, const RankThreads& ranks) {
  WT_CHECK(SharesProcess(plan));
  return Threads(plan, ranks).Run();
}

}  // namespace windtunnel
