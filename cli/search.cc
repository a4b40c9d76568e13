#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/digest.h"
#include "base/format.h"
#include "base/parallel.h"
#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/paths.h"
#include "cli/session.h"
#include "plan/outline.h"
#include "plan/plan.h"
#include "reports/html/html_report.h"
#include "reports/search_report.h"
#include "reports/version.h"
#include "scenarios/difference.h"
#include "scenarios/load.h"
#include "sim/operator_room.h"
#include "sim/search/evaluator.h"
#include "sim/search/state_file.h"

namespace windtunnel {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> interrupted = 0;  // set by a signal handler, read by all threads
static_assert(std::atomic<int>::is_always_lock_free);

// While it lives, Ctrl-C, a polite end and a terminal that goes away are noted instead of obeyed; a second one is obeyed. As `nohup`
// leaves it, the last is ignored.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &old_interrupt_);
    sigaction(SIGTERM, &action, &old_terminate_);
    sigaction(SIGHUP, nullptr, &old_hang_up_);
    if (old_hang_up_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  }
  ~InterruptGuard() {
    sigaction(SIGINT, &old_interrupt_, nullptr);
    sigaction(SIGTERM, &old_terminate_, nullptr);
    sigaction(SIGHUP, &old_hang_up_, nullptr);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_interrupt_ = {}, old_terminate_ = {}, old_hang_up_ = {};
};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int ThreadsFor(const Options& options) {
  if (options.threads > 0) return options.threads;
  return Cores();
}

// Work ends early when interrupted.
template <typename Work, typename Idle>
void RunOnThreads(int threads, size_t count, const Work& work, const Idle& idle) {
  ForEachInParallel(threads, count, work, idle, [] { return interrupted != 0; });
}

// The processes of one search, each with a share of it, and the files in which they meet: the state file for the first, with the number
// of each other one behind its name.
class SharedState {
 public:
  // Errors: StateFile's; InvalidInput for several processes without a file.
  static Result<SharedState> Open(const Options& options, const std::string& key) {
    SharedState shared{options.state, key, ThisJobProcess(), std::nullopt, {}};
    if (options.state.empty()) {
      if (shared.process_.count == 1) return shared;
      return InvalidInput(
          "{} processes were started: --state FILE is missing, in a file system that all of them see, where "
          "they meet",
          shared.process_.count);
    }
    WT_ASSIGN_OR_RETURN(StateFile own, StateFile::Open(shared.PathOf(shared.process_.rank), key));
    shared.own_.emplace(std::move(own));
    WT_RETURN_IF_ERROR(shared.ReadAll());
    return shared;
  }

  const JobProcess& process() const { return process_; }
  bool is_kept() const { return own_.has_value(); }
  bool IsOwn(int64_t id) const { return id % process_.count == process_.rank; }
  const std::map<int64_t, Evaluation>& known() const { return known_; }
  Status Append(int64_t id, const Evaluation& evaluation) { return own_->Append(id, evaluation); }

  // What the others have found by now.
  Status ReadAll() {
    for (int rank = 0; rank < process_.count; ++rank) {
      WT_ASSIGN_OR_RETURN(const auto known, StateFile::Read(PathOf(rank), key_));
      known_.insert(known.begin(), known.end());
    }
    return Ok();
  }

 private:
  SharedState(std::string path, std::string key, JobProcess process, std::optional<StateFile> own,
              std::map<int64_t, Evaluation> known)
      : path_(std::move(path)),
        key_(std::move(key)),
        process_(process),
        own_(std::move(own)),
        known_(std::move(known)) {}

  std::string PathOf(int rank) const { return rank == 0 ? path_ : fmt::format("{}.{}", path_, rank); }

  std::string path_, key_;
  JobProcess process_;
  std::optional<StateFile> own_;
  std::map<int64_t, Evaluation> known_;
};

// The evaluation of all legal configurations.
class SearchRun {
 public:
  SearchRun(const Options& options, const Scenario& scenario, const SearchSpace& space,
            const Profile& profile)
      : options_(options),
        space_(space),
        evaluator_(scenario, profile),
        progress_(ShowsProgress(options)),
        evaluations_(space.legal.size()) {}

  // Of this process's share. Errors: Failed when interrupted, or the state file cannot be written.
  Status Run(SharedState& state) {
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
        [&] { return interrupted != 0 || has_failed_; });
    seconds_ = SecondsSince(begin_);
    cpu_seconds_ = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    progress_.Clear();
    WT_RETURN_IF_ERROR(status_);
    if (done_ == static_cast<int64_t>(open.size())) return Ok();
    const std::string how = state.is_kept() ? "the same command goes on" : "with --state FILE it could go on";
    return Failed("interrupted after {} of {} configurations; {}", resumed_ + done_, evaluations_.size(),
                  how);
  }

  // Waits for the other processes' shares. Errors: Failed when interrupted, or nothing has come for long.
  Status Gather(SharedState& state) {
    constexpr double kPatience = 600;  // seconds
    auto last_news = Clock::now();
    for (size_t before = 0; state.process().count > 1;
         std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
      WT_RETURN_IF_ERROR(state.ReadAll());
      if (state.known().size() == evaluations_.size()) break;
      if (interrupted != 0) return Failed("interrupted; the same command goes on");
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

  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  int64_t resumed() const { return resumed_; }
  double configurations_per_s() const {
    return seconds_ > 0 ? static_cast<double>(simulated_) / seconds_ : 0;
  }

  double configurations_per_cpu_s() const {
    return cpu_seconds_ > 0 ? static_cast<double>(simulated_) / cpu_seconds_ : 0;
  }

 private:
  void Evaluate(int64_t id, SharedState& state) {
    Evaluation& evaluation = evaluations_[static_cast<size_t>(id)];
    evaluation = evaluator_.Evaluate(space_.legal[static_cast<size_t>(id)]);
    if (evaluation.outcome == Evaluation::Outcome::kFeasible) ++simulated_;
    ++done_;
    if (!state.is_kept()) return;
    std::lock_guard lock(mutex_);
    if (status_) status_ = state.Append(id, evaluation);
    has_failed_ = !status_;
  }

  void ShowProgress(int64_t all) {
    const int64_t done = done_;
    const double elapsed = SecondsSince(begin_), rate = elapsed > 0 ? static_cast<double>(done) / elapsed : 0;
    std::string what = fmt::format("{} of {} configurations, {:.4g}/s", done, all, rate);
    if (rate > 0)
      what += fmt::format(", {} left", FormatDuration(Seconds(static_cast<double>(all - done) / rate)));
    progress_.Show(what, all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 1);
  }

  const Options& options_;
  const SearchSpace& space_;
  const Evaluator evaluator_;
  Progress progress_;
  std::vector<Evaluation> evaluations_;
  std::mutex mutex_;  // of the state file and status_
  Status status_;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int64_t> done_ = 0, simulated_ = 0;
  int64_t resumed_ = 0;
  Clock::time_point begin_;
  double seconds_ = 0, cpu_seconds_ = 0;
};

// The configurations that the report names. The best one (with --full the whole Pareto front) is predicted in full: what the evaluator
// said is held against it, and what its allocator's fragments do not let into the device, or cannot be predicted so, is struck off.
// `given` are the command line's overrides.
class Selection {
 public:
  Selection(const Options& options, const Scenario& scenario, const SearchSpace& space, const Costs& costs,
            std::vector<Override> given, const std::vector<Evaluation>& evaluations)
      : options_(options), scenario_(scenario), space_(space), costs_(costs), given_(std::move(given)) {
    for (size_t i = 0; i < evaluations.size(); ++i) {
      const Evaluation& evaluation = evaluations[i];
      if (evaluation.outcome != Evaluation::Outcome::kFeasible) continue;
      choices_.push_back(
          {static_cast<int64_t>(i), evaluation.step_time, evaluation.memory, space.legal[i].devices()});
    }
  }

  // Errors: Failed when interrupted.
  Status Select(SearchReport& report) {
    std::vector<Choice> front = ParetoFront(choices_);
    for (bool changes = !options_.quick; changes && !front.empty();) {
      const size_t count = options_.full ? front.size() : 1;
      WT_ASSIGN_OR_RETURN(changes, Verify({front.begin(), front.begin() + static_cast<ptrdiff_t>(count)}));
      front = ParetoFront(choices_);
    }
    std::vector<Choice> top = choices_;
    const size_t count = std::min(top.size(), static_cast<size_t>(options_.top));
    std::partial_sort(top.begin(), top.begin() + static_cast<ptrdiff_t>(count), top.end(), IsBetter);
    top.resize(count);
    for (const Choice& choice : front) report.pareto.push_back(Found(choice));
    for (const Choice& choice : top) report.top.push_back(Found(choice));
    report.fragmented = fragmented_;
    for (const auto& [reason, count] : refused_) {
      report.refused[reason] += count;
      report.evaluated -= count;
    }
    return Ok();
  }

 private:
  struct Verified {
    std::string predicted;
    Duration step_time;
    Bytes memory;
    bool fits = true;
  };

  // Whether anything turned out otherwise.
  Result<bool> Verify(const std::vector<Choice>& choices) {
    std::vector<int64_t> open;
    for (const Choice& choice : choices)
      if (!verified_.contains(choice.id)) open.push_back(choice.id);
    std::vector<std::optional<Result<Verified>>> results(open.size());
    Progress progress(ShowsProgress(options_));
    std::atomic<size_t> done = 0;
    // A few at a time (of large ones fewer: OperatorRoom), and of few each on several threads.
    const int at_once = std::min(ThreadsFor(options_), 4);
    const int each = std::max(1, ThreadsFor(options_) / std::max(1, static_cast<int>(open.size())));
    RunOnThreads(
        at_once, open.size(),
        [&](size_t i) {
          results[i] = PredictInFull(open[i], each);
          ++done;
        },
        [&] {
          progress.Show("predicting the best in full",
                        static_cast<double>(done) / static_cast<double>(open.size()));
        });
    progress.Clear();
    bool changes = false;
    for (size_t i = 0; i < open.size(); ++i) {
      if (!results[i]) return Failed("interrupted while predicting the best configurations");
      Result<Verified>& verified = *results[i];
      if (!verified) {
        ++refused_[verified.error().message];
        Strike(open[i]);
        changes = true;
        continue;
      }
      changes |= Apply(open[i], *verified);
      verified_[open[i]] = std::move(*verified);
    }
    return changes;
  }

  std::vector<Choice>::iterator ChoiceOf(int64_t id) {
    return std::find_if(choices_.begin(), choices_.end(), [&](const Choice& c) { return c.id == id; });
  }

  void Strike(int64_t id) { choices_.erase(ChoiceOf(id)); }

  // Whether it changes what is known.
  bool Apply(int64_t id, const Verified& verified) {
    if (!verified.fits) {
      ++fragmented_;
      Strike(id);
      return true;
    }
    const auto choice = ChoiceOf(id);
    if (choice->step_time == verified.step_time && choice->memory == verified.memory) return false;
    Note(options_, fmt::format("{}: predicted in full it takes {} and {}, not {} and {}",
                               Describe(space_.legal[static_cast<size_t>(id)]),
                               FormatDuration(verified.step_time), FormatBytes(verified.memory),
                               FormatDuration(choice->step_time), FormatBytes(choice->memory)));
    choice->step_time = verified.step_time;
    choice->memory = verified.memory;
    return true;
  }

  Result<Verified> PredictInFull(int64_t id, int threads) const {
    const Scenario scenario = ScenarioOf(scenario_, space_.legal[static_cast<size_t>(id)]);
    const OperatorRoom room(scenario);  // until the plan is gone
    const auto begin = Clock::now();
    Outcome outcome;
    WT_ASSIGN_OR_RETURN(outcome.plan, CompilePlan(scenario, {.threads = threads}));
    outcome.profile = costs_.profile;
    WT_ASSIGN_OR_RETURN(outcome.prediction, PredictFrom(costs_, outcome.plan, /*fold=*/true, threads));
    outcome.prediction_wall = Seconds(SecondsSince(begin));
    Verified verified;
    verified.step_time = outcome.prediction->p50;
    for (const PredictedMemory& memory : outcome.prediction->memory)
      verified.memory = std::max(verified.memory, memory.steady.requested);
    verified.memory += outcome.prediction->outside_allocator;
    verified.fits = FitsInDevice(*outcome.prediction).value_or(true);
    verified.predicted = PredictedBlock(outcome);
    return verified;
  }

  FoundConfiguration Found(const Choice& choice) const {
    const Configuration& configuration = space_.legal[static_cast<size_t>(choice.id)];
    FoundConfiguration found{choice, configuration, ScenarioOf(scenario_, configuration), given_, ""};
    auto made_of = OverridesThatMake(found.scenario, scenario_);
    if (!made_of) {
      Note(options_, fmt::format("no overrides say what was found: {}", made_of.error().message));
      made_of.emplace();
    }
    for (Override& made : *made_of) {
      std::erase_if(found.overrides, [&](const Override& given) { return given.key == made.key; });
      found.overrides.push_back(std::move(made));
    }
    if (const auto verified = verified_.find(choice.id); verified != verified_.end()) {
      found.predicted = verified->second.predicted;
    } else {
      Plan plan = OutlineOf(found.scenario);
      plan.model = StatisticsOf(found.scenario);
      found.predicted = ComposedBlock(plan, costs_.profile, choice.step_time);
    }
    return found;
  }

  const Options& options_;
  const Scenario& scenario_;
  const SearchSpace& space_;
  const Costs& costs_;
  std::vector<Choice> choices_;
  const std::vector<Override> given_;
  std::map<int64_t, Verified> verified_;
  std::map<std::string, int64_t> refused_;  // by reason
  int64_t fragmented_ = 0;
};

void Count(const SearchSpace& space, const std::vector<Evaluation>& evaluations, SearchReport& report) {
  report.combinations = space.combinations;
  report.legal = static_cast<int64_t>(space.legal.size());
  report.illegal = space.illegal;
  for (const Evaluation& evaluation : evaluations) {
    switch (evaluation.outcome) {
      case Evaluation::Outcome::kFeasible:
        ++report.evaluated;
        break;
      case Evaluation::Outcome::kInfeasible:
        ++report.infeasible;
        break;
      case Evaluation::Outcome::kRefused:
        ++report.refused[evaluation.reason];
        break;
    }
  }
}

// Measured costs are of what was measured. Where they answer neither for the first configuration nor for the scenario as it stands, the
// others are not worth compiling, which takes long with many ranks: each would be refused.
Status CheckCosts(const Costs& costs, const Scenario& scenario, const Configuration& first) {
  if (costs.profile.hardware) return Ok();
  const Evaluation evaluation = Evaluator(scenario, costs.profile).Evaluate(first);
  if (evaluation.outcome != Evaluation::Outcome::kRefused) return Ok();
  const auto own = CompilePlan(WithBalance(scenario, costs));
  if (own && PredictFrom(costs, *own)) return Ok();
  return InvalidInput(
      "cluster.device is '{}', whose profile {} can predict neither the scenario nor the first configuration "
      "({}), expected a device with a datasheet, such as {}, or measured costs: {}",
      scenario.cluster.device, costs.profile.name, Describe(first), kDeviceNotAtHand, evaluation.reason);
}

// Why most of what cannot be trained cannot.
std::string MainReason(const SearchReport& report) {
  const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(report.refused.begin(), report.refused.end(), by_count);
  if (most == report.refused.end() || most->second < report.infeasible)
    return fmt::format("{} need more memory than the device has", report.infeasible + report.fragmented);
  return fmt::format("{} cannot be predicted: {}", most->second, most->first);
}

// What a state file is of: the scenario and its ranges, what the loader made of them, the costs, and the files behind both.
std::string StateKey(const SearchReport& report, const Scenario& scenario, const Profile& profile) {
  const DerivedKeys& derived = scenario.derived;
  std::string behind;
  for (bool is_derived : {derived.kind, derived.sync, derived.reshard_after_forward, derived.shard_size,
                          derived.virtual_stages})
    behind += is_derived ? '1' : '0';
  if (profile.framework) behind += " " + profile.framework->digest;
  std::vector<std::string> files = scenario.search->schedule;
  files.push_back(scenario.parallel.pipeline.schedule);
  std::erase_if(files, [](const std::string& schedule) { return !schedule.ends_with(".csv"); });
  for (const std::string& file : files) {
    const auto text = ReadFile(file, "a schedule");
    behind += " " + (text ? Sha256Hex(*text) : "missing");
  }
  return fmt::format("{} {} {} {}", report.scenario_digest, report.profile_digest, kVersion,
                     Sha256Hex(behind));
}

// The overrides of the command line, but for those of the ranges.
Result<std::vector<Override>> GivenOverrides(const Options& options) {
  WT_ASSIGN_OR_RETURN(std::vector<Override> given, OverridesOf(options));
  std::erase_if(given, [](const Override& override) {
    return override.key == "search" || override.key.starts_with("search.");
  });
  return given;
}

// With the best configuration's whole report, unless nothing was to be predicted in full.
Status WriteHtml(const Options& options, const Costs& costs, const SearchReport& report) {
  std::vector<Outcome> best;
  if (!options.quick && !report.pareto.empty()) {
    Outcome& outcome = best.emplace_back();
    WT_ASSIGN_OR_RETURN(outcome.plan, CompilePlan(report.pareto.front().scenario));
    outcome.profile = costs.profile;
    WT_ASSIGN_OR_RETURN(outcome.prediction, PredictFrom(costs, outcome.plan));
  }
  return WriteText(options.html, SearchHtmlReport(SearchJson(report), best, ScalingsOf(best)));
}

}  // namespace

Result<int> SearchCommand(const Options& options) {
  const auto begin = Clock::now();
  WT_RETURN_IF_ERROR(CheckReports(options));
  WT_ASSIGN_OR_RETURN(const Scenario scenario, LoadWithOverrides(options, options.files.front()));
  WT_RETURN_IF_ERROR(CheckRanges(scenario));
  for (const std::string& schedule : scenario.search->schedule) {
    if (!schedule.ends_with(".csv")) continue;
    const auto text = ReadFile(schedule, "a pipeline's schedule");
    if (!text) return InvalidInput("search.schedule: {}", text.error().message);
  }
  WT_ASSIGN_OR_RETURN(const Costs costs, FindCosts(options, OutlineOf(scenario)));
  NoteCosts(options, costs, scenario);
  const ChooseStages choose = [&](const Scenario& unbalanced) -> Result<std::vector<int64_t>> {
    const Scenario balanced = WithBalance(unbalanced, costs);
    if (balanced.parallel.pipeline.balance.empty()) return StagesByRoughCosts(unbalanced);
    return balanced.parallel.pipeline.balance;
  };
  WT_ASSIGN_OR_RETURN(const SearchSpace space, EnumerateSpace(scenario, choose));
  WT_RETURN_IF_ERROR(CheckCosts(costs, scenario, space.legal.front()));
  SearchReport report;
  report.scenario = scenario.name;
  report.scenario_digest = ScenarioDigest(scenario);
  report.profile = costs.profile.name;
  report.profile_digest = ProfileDigest(costs.profile);
  report.profile_option = options.profile;
  report.framework_option = options.framework_profile;

  const std::string key = options.state.empty() ? "" : StateKey(report, scenario, costs.profile);
  WT_ASSIGN_OR_RETURN(SharedState state, SharedState::Open(options, key));
  InterruptGuard guard;
  SearchRun run(options, scenario, space, costs.profile);
  WT_RETURN_IF_ERROR(run.Run(state));
  if (state.process().rank > 0) return 0;  // the first one reports
  WT_RETURN_IF_ERROR(run.Gather(state));
  Count(space, run.evaluations(), report);
  report.resumed = run.resumed();
  report.configurations_per_s = run.configurations_per_s();
  report.configurations_per_cpu_s = run.configurations_per_cpu_s();
  report.wall_s = SecondsSince(begin);
  WT_ASSIGN_OR_RETURN(std::vector<Override> given, GivenOverrides(options));
  Selection selection(options, scenario, space, costs, std::move(given), run.evaluations());
  WT_RETURN_IF_ERROR(selection.Select(report));
  report.full_s = SecondsSince(begin) - report.wall_s;
  if (options.json != "-" && options.html != "-") {
    const Ink ink = StandardInk();
    fmt::print("{}", options.quiet ? SearchVerdict(report, ink) : SearchTable(report, options.verbose, ink));
    if (std::fflush(stdout) != 0) return Failed("cannot write to standard output");
  }
  if (!options.json.empty()) WT_RETURN_IF_ERROR(WriteText(options.json, SearchJson(report)));
  if (!options.html.empty()) WT_RETURN_IF_ERROR(WriteHtml(options, costs, report));
  if (report.pareto.empty())
    return Failed("{}: none of {} legal configurations can be trained: {}", scenario.name, report.legal,
                  MainReason(report));
  return 0;
}

}  // namespace windtunnel
