// A search's evaluation of all legal configurations.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "cli/search_state.h"
#include "cli/terminal.h"
#include "sim/search/evaluator.h"
#include "sim/search/space.h"

namespace windtunnel {

// --threads; by default one per core.
int ThreadsFor(const Options& options);

class SearchRun {
 public:
  SearchRun(const Options& options, const Scenario& scenario, const SearchSpace& space,
            const Profile& profile)
      : options_(options),
        space_(space),
        evaluator_(scenario, profile),
        progress_(ShowsProgress(options)),
        evaluations_(space.legal.size()) {}

  // Evaluates this process's share. Errors: Failed if interrupted, or if the state file cannot be written.
  Status Run(SharedState& state);
  // Waits for the other processes' shares. Errors: Failed if interrupted, or if nothing has come for long.
  Status Gather(SharedState& state);

  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  int64_t resumed() const { return resumed_; }
  double configurations_per_s() const {
    return seconds_ > 0 ? static_cast<double>(simulated_) / seconds_ : 0;
  }
  double configurations_per_cpu_s() const {
    return cpu_seconds_ > 0 ? static_cast<double>(simulated_) / cpu_seconds_ : 0;
  }

 private:
  void Evaluate(int64_t id, SharedState& state);
  void ShowProgress(int64_t all);

  const Options& options_;
  const SearchSpace& space_;
  const Evaluator evaluator_;
  Progress progress_;
  std::vector<Evaluation> evaluations_;
  std::mutex mutex_;  // guards the state file and status_
  Status status_;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int64_t> done_ = 0, simulated_ = 0;
  int64_t resumed_ = 0;
  std::chrono::steady_clock::time_point begin_;
  double seconds_ = 0, cpu_seconds_ = 0;
};

}  // namespace windtunnel
