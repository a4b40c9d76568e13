#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ceil_divide.h"
#include "base/format.h"
#include "plan/axes.h"
#include "reports/outcome.h"
#include "reports/remedies.h"
#include "scenarios/characters.h"
#include "scenarios/checks.h"
#include "scenarios/derived.h"
#include "sim/role_memory.h"

namespace windtunnel {
namespace {

constexpr size_t kShown = 3;
// No more remedies are tried once so many fit. Each takes a prediction, and one for each variant of it. (The
// list has 75; what does not fit takes the simulation of its memory alone.)
constexpr size_t kCompared = 8;

// Of the rank that reserves most.
struct Reserved {
  Bytes bytes, requested;
  int64_t retries = 0;
};

// Like a prediction's on a device with `room` (SimulateMemoryWithin).
Result<Reserved> ReservedBy(const Plan& plan, AllocatorKind allocator, Bytes room) {
  Reserved most;
  for (const Role& role : plan.roles) {
    WT_ASSIGN_OR_RETURN(const RoleMemory memory, SimulateMemoryWithin(room, role, allocator));
    most.bytes = std::max(most.bytes, memory.steady.reserved);
    most.requested = std::max(most.requested, memory.steady.requested);
    most.retries = std::max(most.retries, memory.steady.retries);
  }
  return most;
}

// With few micro-batches (WithFewMicroBatches) if the schedule holds no more with more.
Result<Plan> CompileForMemory(const Scenario& scenario, const CompileScenario& compile) {
  const PipelineSpec& pipeline = scenario.parallel.pipeline;
  const bool holds_more_with_more =
      pipeline.size > 1 && pipeline.schedule != "1f1b" && pipeline.schedule != "interleaved";
  if (holds_more_with_more) return compile(scenario);
  Result<Plan> plan = compile(WithFewMicroBatches(scenario));
  return plan ? std::move(plan) : compile(scenario);  // (a schedule may be for one number of micro-batches)
}

// Whether `remedy` changes all that `less` does, or makes micro-batches smaller still.
bool IsMore(const Remedy& remedy, const Remedy& less) {
  return std::all_of(less.settings.begin(), less.settings.end(), [&](const std::string& setting) {
    if (setting.starts_with("batch.")) return remedy.scenario.batch.micro <= less.scenario.batch.micro;
    return std::find(remedy.settings.begin(), remedy.settings.end(), setting) != remedy.settings.end();
  });
}

std::string Describe(const Remedy& remedy) {
  std::string text;
  for (const std::string& setting : remedy.settings)
    text += fmt::format("{}--set {}", text.empty() ? "" : " ", ShellWord(setting));
  return text;
}

// A line of the table of what would fit.
struct Row {
  Bytes memory;
  std::optional<Duration> step;
  std::string time, settings;  // as text
};

// Tries remedies one after another, and collects rows for those that fit. A remedy fits if a prediction says
// so, and if its allocator need not give back cached memory in every step, which is slow.
class Trials {
 public:
  Trials(const Scenario& scenario, Bytes room, Bytes outside, const CompileScenario& compile,
         const PredictPlan& predict)
      : scenario_(scenario), room_(room), outside_(outside), compile_(compile), predict_(predict) {}

  // Nothing if what is known to fit changes less.
  void Try(const Remedy& remedy) {
    if (IsMoreThanEnough(remedy)) return;
    const std::optional<Candidate> tried = Measure(remedy);
    if (!tried) return;
    const std::string text = Describe(tried->remedy);
    if (!text.empty() && (!least_ || tried->reserved < least_->first)) least_.emplace(tried->reserved, text);
    if (!tried->fits || IsMoreThanEnough(tried->remedy)) return;
    const std::optional<Candidate> larger = WithLargestMicroBatch(tried->remedy);
    const std::optional<Row> row = RowOf(larger ? *larger : *tried);
    if (!row) return;
    fit_.push_back(tried->remedy);
    rows_.push_back(*row);
    if (larger) return;
    for (const auto& variant : {WithFewestLayers(tried->remedy), WithSmallestGroups(tried->remedy)}) {
      const std::optional<Row> other = variant ? RowOf(*variant) : std::nullopt;
      if (other && (!row->step || other->step < row->step)) rows_.push_back(*other);
    }
  }

  size_t fitting() const { return fit_.size(); }
  // The fastest come first; those whose step is not known last.
  std::vector<Row> TakeRows() {
    std::stable_sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
      return a.step.value_or(Duration::Max()) < b.step.value_or(Duration::Max());
    });
    return std::move(rows_);
  }
  // Of all that were tried, the one that reserves least.
  const std::optional<std::pair<Bytes, std::string>>& least() const { return least_; }

 private:
  struct Candidate {
    Remedy remedy;
    Bytes reserved;
    bool fits = false;
  };

  bool IsMoreThanEnough(const Remedy& remedy) const {
    return std::any_of(fit_.begin(), fit_.end(), [&](const Remedy& less) { return IsMore(remedy, less); });
  }
  bool Fits(const Reserved& reserved) const { return reserved.bytes <= room_ && reserved.retries == 0; }

  // With expandable segments if it is only by fragmentation that the remedy does not fit. Nothing if it cannot
  // be compiled.
  std::optional<Candidate> Measure(const Remedy& remedy) const {
    const auto plan = CompileForMemory(remedy.scenario, compile_);
    if (!plan) return std::nullopt;
    const AllocatorKind allocator = plan->scenario.allocator;
    const auto reserved = ReservedBy(*plan, allocator, room_);
    if (!reserved) return std::nullopt;
    const Candidate as_is{remedy, reserved->bytes, Fits(*reserved)};
    if (as_is.fits || allocator != AllocatorKind::kPytorch || reserved->requested > room_) return as_is;
    const auto expandable = ReservedBy(*plan, AllocatorKind::kPytorchExpandable, room_);
    if (!expandable || !Fits(*expandable)) return as_is;
    Candidate whole{remedy, expandable->bytes, true};
    whole.remedy.scenario.allocator = AllocatorKind::kPytorchExpandable;
    whole.remedy.settings.emplace_back("allocator=pytorch_expandable");
    return whole;
  }

  // `remedy` with a further change, if it fits.
  std::optional<Candidate> MeasureVariant(const Remedy& remedy) const {
    const auto plan = CompileForMemory(remedy.scenario, compile_);
    if (!plan) return std::nullopt;
    const auto reserved = ReservedBy(*plan, plan->scenario.allocator, room_);
    if (!reserved || !Fits(*reserved)) return std::nullopt;
    return Candidate{remedy, reserved->bytes, true};
  }

  // Some layers instead of all: as few of each stage as fit, or with PyTorch every so many-th of the model.
  // Nothing if all have to be recomputed, or `full` does something else besides.
  std::optional<Candidate> WithFewestLayers(const Remedy& full) const {
    const std::vector<std::string>& settings = full.settings;
    const bool recomputes = std::find(settings.begin(), settings.end(), "recompute=full") != settings.end();
    if (!recomputes || full.scenario.RecomputesSomeLayers()) return std::nullopt;
    const auto with = [&](const char* key, int64_t Scenario::*value, int64_t tried) {
      Remedy some = full;
      some.scenario.*value = tried;
      some.settings.push_back(fmt::format("{}={}", key, tried));
      return MeasureVariant(some);
    };
    if (IsPytorch(full.scenario.framework)) {
      for (const int64_t every : {8, 4, 3, 2})
        if (auto some = with("recompute_every", &Scenario::recompute_every, every)) return some;
      return std::nullopt;
    }
    const PipelineSpec& pipeline = full.scenario.parallel.pipeline;
    const int64_t stages = std::max<int64_t>(pipeline.size * pipeline.virtual_stages, 1);
    const ModelSpec& model = full.scenario.model;
    // `low` layers are too few, `high` are enough.
    int64_t low = 0, high = CeilDivide(std::max(model.layers, model.EncoderLayers()), stages);
    std::optional<Candidate> fewest;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      if (auto some = with("recompute_layers", &Scenario::recompute_layers, middle)) {
        fewest = std::move(some);
        high = middle;
      } else {
        low = middle;
      }
    }
    return fewest;
  }

  // Where `all` has one shard group instead of the scenario's: groups of more ranks, but as few as fit.
  std::optional<Candidate> WithSmallestGroups(const Remedy& all) const {
    const DataParallelSpec &own = scenario_.parallel.data, &of_all = all.scenario.parallel.data;
    const bool widens = own.kind == DataParallelKind::kFsdp && own.sharding == Sharding::kHybridShard &&
                        of_all.sharding == Sharding::kFullShard;
    if (!widens) return std::nullopt;
    Remedy some = all;
    std::erase_if(some.settings, [](const std::string& setting) {
      return setting.starts_with("parallel.data.sharding=") ||
             setting.starts_with("parallel.data.shard_size=");
    });
    const std::vector<std::string> settings = some.settings;
    DataParallelSpec& data = some.scenario.parallel.data;
    data.sharding = own.sharding;
    some.scenario.derived.shard_size = false;
    for (data.shard_size = 2 * own.shard_size; data.shard_size < ShardRanks(all.scenario);
         data.shard_size *= 2) {
      some.settings = settings;
      some.settings.push_back(fmt::format("parallel.data.shard_size={}", data.shard_size));
      if (!CheckScenario(some.scenario)) continue;
      if (auto fits = MeasureVariant(some)) return fits;
    }
    return std::nullopt;
  }

  // The largest micro-batch that fits, where single sequences do.
  std::optional<Candidate> WithLargestMicroBatch(const Remedy& single) const {
    if (single.scenario.batch.micro != 1) return std::nullopt;
    const BatchSpec& own = scenario_.batch;
    Remedy larger = single;
    std::erase_if(larger.settings, [](const std::string& setting) { return setting.starts_with("batch."); });
    for (int64_t micro = own.micro / 2; micro > 1; --micro) {
      if (own.micro % micro != 0) continue;
      Remedy tried = larger;
      tried.scenario.batch = own;
      if (!TakeSequences(micro, tried)) continue;
      if (auto fits = MeasureVariant(tried)) return fits;
    }
    return std::nullopt;
  }

  // With the memory and the step time that are predicted; nothing if that memory is too much after all (the
  // remedy's communicators may need more than the scenario's). The host's optimizer is predicted at the least
  // that it can take.
  std::optional<Row> RowOf(const Candidate& candidate) const {
    const Scenario& scenario = candidate.remedy.scenario;
    Row row{candidate.reserved + outside_, {}, "?", Describe(candidate.remedy)};
    const auto plan = compile_(scenario);
    const auto prediction = plan ? predict_(*plan) : tl::unexpected(plan.error());
    if (!prediction) return row;
    row.memory = prediction->peak_reserved + prediction->outside_allocator;
    if (row.memory > room_ + outside_ || !DescribeRetries(*prediction).empty()) return std::nullopt;
    row.step = prediction->p50;
    const bool updates_on_host = scenario.parallel.data.offload != Offload::kNone;
    row.time = (updates_on_host ? "≥ " : "") + FormatDuration(prediction->p50);
    std::vector<std::string> notes;
    if (IsAtLimit(row.memory, room_ + outside_)) notes.emplace_back("at the limit");
    if (updates_on_host || scenario.activation_offload)
      notes.push_back(fmt::format("{} of host memory a node",
                                  FormatBytes(PredictedHostMemoryOfNode(scenario, *prediction))));
    if (!notes.empty()) row.settings += fmt::format("  # {}", fmt::join(notes, ", "));
    return row;
  }

  const Scenario& scenario_;
  const Bytes room_, outside_;
  const CompileScenario& compile_;
  const PredictPlan& predict_;
  std::vector<Remedy> fit_;
  std::vector<Row> rows_;
  std::optional<std::pair<Bytes, std::string>> least_;
};

}  // namespace

Scenario WithFewMicroBatches(Scenario scenario) {
  const int64_t few = 2 * std::max<int64_t>(scenario.parallel.pipeline.size, 1);
  scenario.batch.accumulate = std::min(scenario.batch.accumulate, few);
  return scenario;
}

Result<Bytes> ReservedWith(const Remedy& remedy, const CompileScenario& compile) {
  WT_ASSIGN_OR_RETURN(const Plan plan, CompileForMemory(remedy.scenario, compile));
  WT_ASSIGN_OR_RETURN(const Reserved reserved, ReservedBy(plan, plan.scenario.allocator, Bytes::Max()));
  return reserved.bytes;
}

std::string DescribeRemedies(const Scenario& scenario, Bytes room, Bytes outside,
                             const CompileScenario& compile, const PredictPlan& predict) {
  Trials trials(scenario, room, outside, compile, predict);
  if (scenario.allocator == AllocatorKind::kPytorch) trials.Try({{}, scenario});  // with expandable segments
  for (const Remedy& remedy : RemediesFor(scenario)) {
    if (trials.fitting() == kCompared) break;
    trials.Try(remedy);
  }
  std::vector<Row> rows = trials.TakeRows();
  if (!rows.empty()) {
    std::string text = fmt::format("  what would fit:\n    {:>10}{:>11}\n", "memory", "step time");
    rows.resize(std::min(rows.size(), kShown));
    for (const Row& row : rows)
      text += fmt::format("    {:>10}{:>11}  {}\n", FormatBytes(row.memory), row.time, row.settings);
    return text;
  }
  const bool pipelines = scenario.parallel.data.kind != DataParallelKind::kZero3;
  const std::string devices =
      pipelines ? "more devices, or more tensor or pipeline ranks" : "more devices, or more tensor ranks";
  if (!trials.least()) return fmt::format("  what would fit?  {}\n", devices);
  const auto& [reserved, settings] = *trials.least();
  return fmt::format("  what would fit?  {}: of the changes that were tried, the least is {}, with {}{}\n",
                     devices, FormatBytes(reserved + outside), settings,
                     reserved > room ? "" : ", which is too tight");
}

}  // namespace windtunnel
