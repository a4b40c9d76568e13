#include "cli/search_selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <optional>

#include "base/format.h"
#include "base/parallel.h"
#include "cli/elapsed.h"
#include "cli/interrupts.h"
#include "cli/notes.h"
#include "cli/search_run.h"
#include "cli/terminal.h"
#include "plan/outline.h"
#include "plan/plan.h"
#include "reports/progress.h"
#include "scenarios/difference.h"
#include "sim/operator_room.h"

namespace windtunnel {

Result<std::vector<Override>> OverridesFor(std::vector<Override> given, const Scenario& made,
                                           const Scenario& scenario) {
  WT_ASSIGN_OR_RETURN(std::vector<Override> changes, OverridesThatMake(made, scenario));
  for (Override& change : changes) {
    std::erase_if(given, [&](const Override& override) { return override.key == change.key; });
    given.push_back(std::move(change));
  }
  return given;
}

Selection::Selection(const Options& options, const Scenario& scenario, const SearchSpace& space,
                     const Costs& costs, std::vector<Override> given,
                     const std::vector<Evaluation>& evaluations)
    : options_(options), scenario_(scenario), space_(space), costs_(costs), given_(std::move(given)) {
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const Evaluation& evaluation = evaluations[i];
    if (evaluation.outcome != Evaluation::Outcome::kFeasible) continue;
    if (evaluation.is_lower_bound) lower_bounds_.insert(static_cast<int64_t>(i));
    choices_.push_back(
        {static_cast<int64_t>(i), evaluation.step_time, evaluation.memory, space.legal[i].devices()});
  }
}

Status Selection::Select(SearchReport& report) {
  std::vector<Choice> front = ParetoFront(choices_), top = Top();
  for (bool changes = !options_.quick; changes && !front.empty();) {
    WT_ASSIGN_OR_RETURN(changes, Verify(ToVerify(front, top)));
    if (choices_.empty()) choices_ = tight_;  // better than none
    front = ParetoFront(choices_);
    top = Top();
  }
  for (const Choice& choice : front) report.pareto.push_back(Found(choice));
  for (const Choice& choice : top) report.top.push_back(Found(choice));
  report.fragmented = fragmented_;
  report.tight = static_cast<int64_t>(tight_.size());
  for (const auto& [reason, count] : refused_) {
    report.refused[reason] += count;
    report.evaluated -= count;
  }
  return Ok();
}

std::vector<Choice> Selection::Top() const {
  std::vector<Choice> top = choices_;
  const size_t count = std::min(top.size(), static_cast<size_t>(options_.top));
  std::partial_sort(top.begin(), top.begin() + static_cast<ptrdiff_t>(count), top.end(), IsBetter);
  top.resize(count);
  return top;
}

// All of the front and the fastest with --full, or if that is quick. Otherwise the best one.
std::vector<Choice> Selection::ToVerify(const std::vector<Choice>& front,
                                        const std::vector<Choice>& top) const {
  std::vector<Choice> all = front;
  for (const Choice& choice : top) {
    const bool is_on_front =
        std::any_of(front.begin(), front.end(), [&](const Choice& other) { return other.id == choice.id; });
    if (!is_on_front) all.push_back(choice);
  }
  return options_.full || AreQuick(all) ? all : std::vector<Choice>{front.front()};
}

// The time of a full prediction, like its memory, grows with the operators, unless ranks are simulated apart
// or several steps are drawn.
bool Selection::AreQuick(const std::vector<Choice>& choices) const {
  const ClusterSpec& cluster = scenario_.cluster;
  if (cluster.jitter != 0 || cluster.straggler || cluster.slow_link || cluster.topology.is_given())
    return false;
  constexpr double kMost = 0.6e9;  // about two seconds on a core, at 0.2 ms per block and micro-batch
  double bytes = 0;
  for (const Choice& choice : choices) {
    const Scenario scenario = ScenarioOf(scenario_, space_.legal[static_cast<size_t>(choice.id)]);
    bytes += static_cast<double>(OperatorMemory(scenario).count());
  }
  return bytes <= kMost;
}

Result<bool> Selection::Verify(const std::vector<Choice>& choices) {
  std::vector<int64_t> open;
  for (const Choice& choice : choices)
    if (!verified_.contains(choice.id)) open.push_back(choice.id);
  std::vector<std::optional<Result<Verified>>> results(open.size());
  std::vector<char> is_too_large(open.size());
  Progress progress(ShowsProgress(options_));
  std::atomic<size_t> done = 0;
  // A few at a time (fewer large ones: OperatorRoom). If there are only a few, each gets several threads.
  const int at_once = std::min(ThreadsFor(options_), 4);
  const int each = std::max(1, ThreadsFor(options_) / std::max(1, static_cast<int>(open.size())));
  ForEachInParallel(
      at_once, open.size(),
      [&](size_t i) {
        try {
          results[i] = PredictInFull(open[i], each);
        } catch (const std::bad_alloc&) {
          is_too_large[i] = 1;
        }
        ++done;
      },
      [&] {
        progress.Show("predicting the best in full",
                      static_cast<double>(done) / static_cast<double>(open.size()));
      },
      IsInterrupted);
  progress.Clear();
  bool changes = false;
  for (size_t i = 0; i < open.size(); ++i) {
    if (is_too_large[i]) results[i] = AsComposed(open[i], "this machine has no memory to predict it in full");
    else if (results[i] && !*results[i] && results[i]->error().kind == ErrorKind::kUnsupported)
      results[i] = AsComposed(open[i], results[i]->error().message);  // more operators than can be simulated
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

std::vector<Choice>::iterator Selection::ChoiceOf(int64_t id) {
  return std::find_if(choices_.begin(), choices_.end(), [&](const Choice& c) { return c.id == id; });
}

bool Selection::Apply(int64_t id, const Verified& verified) {
  if (!verified.fits) {
    ++fragmented_;
    Strike(id);
    return true;
  }
  if (verified.is_tight) {
    Choice choice = *ChoiceOf(id);
    choice.step_time = verified.step_time;
    choice.memory = verified.memory;
    tight_.push_back(choice);
    Strike(id);
    return true;
  }
  const auto choice = ChoiceOf(id);
  if (choice->step_time == verified.step_time && choice->memory == verified.memory) return false;
  if (!lower_bounds_.contains(id))
    Note(options_, fmt::format("{}: predicted in full it takes {} and {}, not {} and {}",
                               Describe(space_.legal[static_cast<size_t>(id)]),
                               FormatDuration(verified.step_time), FormatBytes(verified.memory),
                               FormatDuration(choice->step_time), FormatBytes(choice->memory)));
  choice->step_time = verified.step_time;
  choice->memory = verified.memory;
  return true;
}

Result<Selection::Verified> Selection::PredictInFull(int64_t id, int threads) const {
  const Scenario scenario = ScenarioOf(scenario_, space_.legal[static_cast<size_t>(id)]);
  const OperatorRoom room(scenario);  // reserved as long as the plan lives
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  WT_ASSIGN_OR_RETURN(outcome.plan, CompilePlan(scenario, {.threads = threads, .predicts = true}));
  outcome.profile = costs_.profile;
  WT_ASSIGN_OR_RETURN(outcome.prediction, PredictFrom(costs_, outcome.plan, /*fold=*/true, threads));
  outcome.prediction_wall = TimeSince(begin);
  Verified verified;
  verified.step_time = outcome.prediction->p50;
  for (const PredictedMemory& memory : outcome.prediction->memory)
    verified.memory = std::max(verified.memory, memory.steady.requested);
  verified.memory += outcome.prediction->outside_allocator;
  verified.fits = FitsInDevice(*outcome.prediction).value_or(true);
  verified.is_tight = verified.fits && !DescribeRetries(*outcome.prediction).empty();
  verified.predicted = PredictedInFull(outcome);
  return verified;
}

Selection::Verified Selection::AsComposed(int64_t id, const std::string& why) {
  Note(options_, fmt::format("{}: {}; what is said of it is composed, as with --quick",
                             Describe(space_.legal[static_cast<size_t>(id)]), why));
  const auto choice = ChoiceOf(id);
  return {std::nullopt, choice->step_time, choice->memory};
}

FoundConfiguration Selection::Found(const Choice& choice) const {
  const Configuration& configuration = space_.legal[static_cast<size_t>(choice.id)];
  FoundConfiguration found{choice, configuration, ScenarioOf(scenario_, configuration), given_, {}, false};
  if (auto overrides = OverridesFor(given_, found.scenario, scenario_))
    found.overrides = *std::move(overrides);
  else Note(options_, fmt::format("no overrides say what was found: {}", overrides.error().message));
  if (const auto verified = verified_.find(choice.id);
      verified != verified_.end() && verified->second.predicted) {
    found.predicted = *verified->second.predicted;
  } else {
    Plan plan = OutlineOf(found.scenario);
    plan.model = StatisticsOf(found.scenario);
    found.predicted = Composed(plan, costs_.profile, choice.step_time);
    found.is_lower_bound = lower_bounds_.contains(choice.id);
  }
  return found;
}

}  // namespace windtunnel
