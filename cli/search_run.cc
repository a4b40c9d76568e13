#include "cli/search_run.h"

#include <fmt/format.h>

#include <ctime>
#include <string>
#include <thread>

#include "base/format.h"
#include "base/parallel.h"
#include "cli/elapsed.h"
#include "cli/interrupts.h"

namespace windtunnel {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

int ThreadsFor(const Options& options) { return options.threads > 0 ? options.threads : Cores(); }

Status SearchRun::Run(SharedState& state) {
  std::vector<int64_t> open;
  for (size_t i = 0; i < evaluations_.size(); ++i) {
    const int64_t id = static_cast<int64_t>(i);
    if (const auto known = state.known().find(id); known != state.known().end())
      evaluations_[i] = known->second;
    else if (state.IsOwn(id)) open.push_back(id);
  }
  resumed_ = static_cast<int64_t>(state.known().size());
  begin_ = Clock::now();
  const std::clock_t cpu = std::clock();
  ForEachInParallel(
      ThreadsFor(options_), open.size(), [&](size_t i) { Evaluate(open[i], state); },
      [&] { ShowProgress(static_cast<int64_t>(open.size())); },
      [&] { return IsInterrupted() || has_failed_; });
  seconds_ = SecondsSince(begin_);
  cpu_seconds_ = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  progress_.Clear();
  WT_RETURN_IF_ERROR(status_);
  if (done_ == static_cast<int64_t>(open.size())) return Ok();
  const std::string how = state.is_kept() ? "the same command goes on" : "with --state FILE it could go on";
  return Failed("interrupted after {} of {} configurations; {}", resumed_ + done_, evaluations_.size(), how);
}

Status SearchRun::Gather(SharedState& state) {
  constexpr double kPatience = 600;  // seconds
  auto last_news = Clock::now();
  for (size_t before = 0; state.process().count > 1;
       std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    WT_RETURN_IF_ERROR(state.ReadAll());
    if (state.known().size() == evaluations_.size()) break;
    if (IsInterrupted()) return Failed("interrupted; the same command goes on");
    if (state.known().size() > before) last_news = Clock::now();
    before = state.known().size();
    if (SecondsSince(last_news) > kPatience)
      return Failed("{} of {} configurations are missing, and no other process has found any for {} s",
                    evaluations_.size() - before, evaluations_.size(), kPatience);
    progress_.Show("waiting for the other processes",
                   static_cast<double>(before) / static_cast<double>(evaluations_.size()));
  }
  progress_.Clear();
  for (const auto& [id, evaluation] : state.known())
    if (id < static_cast<int64_t>(evaluations_.size())) evaluations_[static_cast<size_t>(id)] = evaluation;
  return Ok();
}

void SearchRun::Evaluate(int64_t id, SharedState& state) {
  Evaluation& evaluation = evaluations_[static_cast<size_t>(id)];
  evaluation = evaluator_.Evaluate(space_.legal[static_cast<size_t>(id)]);
  if (evaluation.outcome == Evaluation::Outcome::kFeasible) ++simulated_;
  ++done_;
  if (!state.is_kept()) return;
  std::lock_guard lock(mutex_);
  if (status_) status_ = state.Append(id, evaluation);
  has_failed_ = !status_;
}

void SearchRun::ShowProgress(int64_t all) {
  const int64_t done = done_;
  const double elapsed = SecondsSince(begin_), rate = elapsed > 0 ? static_cast<double>(done) / elapsed : 0;
  std::string what = fmt::format("{} of {} configurations, {:.4g}/s", done, all, rate);
  if (rate > 0)
    what += fmt::format(", {} left", FormatDuration(Seconds(static_cast<double>(all - done) / rate)));
  progress_.Show(what, all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 1);
}

}  // namespace windtunnel
