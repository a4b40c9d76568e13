#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "cli/paths.h"
#include "cli/session.h"
#include "cli/validation_rows.h"
#include "reports/outcome.h"
#include "reports/validation_report.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// A row with the file that it is from.
struct SourcedRow {
  std::string source;
  ValidationRow row;
};

// What became of one row.
struct RowOutcome {
  std::vector<ValidatedValue> values;
  std::optional<Error> error;
};

// "dir/foundry_a100.jsonl" is the source foundry_a100, unless another file has that name too.
std::string SourceOf(const std::string& file, const std::vector<std::string>& files) {
  auto stem = [](const std::string& path) { return std::filesystem::path(path).stem().string(); };
  const auto same = [&](const std::string& other) { return stem(other) == stem(file); };
  return std::count_if(files.begin(), files.end(), same) > 1 ? file : stem(file);
}

// Profiles by name: rows by the hundred share a few.
class ProfileShelf {
 public:
  explicit ProfileShelf(const Options& options) : options_(options) {}

  // The profile stays where it is. Errors: FindCosts'.
  Result<const Costs*> Find(const Plan& plan) {
    std::lock_guard lock(mutex_);
    const std::string& device = plan.scenario.cluster.device;
    // A machine's own costs depend on the scenario.
    const std::string key = options_.profile.empty() && device == "cpu" ? plan.scenario.name : device;
    auto found = costs_.find(key);
    if (found == costs_.end()) {
      WT_ASSIGN_OR_RETURN(Costs costs, FindCosts(options_, plan));
      found = costs_.emplace(key, std::move(costs)).first;
    }
    return &found->second;
  }

 private:
  const Options& options_;
  std::mutex mutex_;
  std::map<std::string, Costs> costs_;
};

// Rows of which one can say that the faster is the better choice.
std::string ComparableTo(const Plan& plan) {
  const Scenario& s = plan.scenario;
  const ModelSpec& m = s.model;
  return fmt::format("{} {} {} {} {} {} {} | {} x {} | {}", m.layers, m.hidden, m.heads, m.kv_heads, m.ffn,
                     m.vocab, m.seq_len, plan.world_size, s.cluster.device, plan.model.tokens_per_step);
}

Bytes LargestPeak(const Prediction& prediction) {
  Bytes largest;
  for (const PredictedMemory& memory : prediction.memory)
    largest = std::max(largest, memory.steady.allocated);
  return largest;
}

std::vector<ValidatedValue> ValuesOf(const SourcedRow& row, const Plan& plan, const Profile& profile,
                                     const Prediction& prediction) {
  std::vector<ValidatedValue> values;
  auto add = [&](const char* quantity, double predicted, std::optional<double> measured, double tolerance) {
    if (!measured) return;
    values.push_back({.id = row.row.id,
                      .source = row.source,
                      .quantity = quantity,
                      .predicted = predicted,
                      .measured = *measured,
                      .counts = values.empty(),
                      .tolerance = tolerance,
                      .comparable_to = ComparableTo(plan)});
  };
  const PublishedMeasurement& measured = row.row.measured;
  const ToleranceSpec& tolerance = plan.scenario.tolerance;
  std::optional<double> step;
  if (auto time = StepTimeOf(measured, plan, DensePeak(plan, profile))) step = ToSeconds(*time);
  const Bytes used = prediction.peak_reserved + prediction.outside_allocator;
  add(kStepTime, ToSeconds(prediction.p50), step, tolerance.step_time);
  add(kPeakMemory, static_cast<double>(LargestPeak(prediction).count()), measured.peak_memory_bytes,
      tolerance.peak_memory);
  add(kDeviceMemory, static_cast<double>(used.count()), measured.device_memory_used_bytes,
      tolerance.peak_memory);
  return values;
}

Result<std::vector<ValidatedValue>> Evaluate(const SourcedRow& row, const std::vector<Override>& overrides,
                                             ProfileShelf& profiles) {
  WT_ASSIGN_OR_RETURN(Scenario scenario, ParseScenario(row.row.scenario, row.row.place, ".", overrides));
  Plan uncompiled;
  uncompiled.scenario = scenario;
  WT_ASSIGN_OR_RETURN(const Costs* costs, profiles.Find(uncompiled));
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(WithBalance(std::move(scenario), *costs)));
  WT_ASSIGN_OR_RETURN(const Prediction prediction, PredictFrom(*costs, plan));
  std::vector<ValidatedValue> values = ValuesOf(row, plan, costs->profile, prediction);
  if (values.empty()) return InvalidInput("nothing that was measured can be predicted");
  return values;
}

Result<std::vector<SourcedRow>> LoadRows(const std::vector<std::string>& files) {
  std::vector<SourcedRow> rows;
  for (const std::string& file : files) {
    WT_ASSIGN_OR_RETURN(std::vector<ValidationRow> of_file, LoadValidationRows(file));
    for (ValidationRow& row : of_file) rows.push_back({SourceOf(file, files), std::move(row)});
  }
  return rows;
}

// On all cores; outcomes are by row, whichever came first.
std::vector<RowOutcome> EvaluateAll(const std::vector<SourcedRow>& rows,
                                    const std::vector<Override>& overrides, const Options& options) {
  std::vector<RowOutcome> outcomes(rows.size());
  ProfileShelf profiles(options);
  Progress progress(ShowsProgress(options));
  std::atomic<size_t> next = 0, done = 0;
  auto work = [&] {
    for (size_t i = next++; i < rows.size(); i = next++) {
      auto values = Evaluate(rows[i], overrides, profiles);
      if (values) outcomes[i].values = std::move(*values);
      else outcomes[i].error = values.error();
      ++done;
    }
  };
  std::vector<std::thread> threads;
  const size_t cores = std::max(std::thread::hardware_concurrency(), 1u);
  for (size_t i = 0; i < std::min(cores, rows.size()); ++i) threads.emplace_back(work);
  while (done < rows.size()) {
    progress.Show("predicting rows", static_cast<double>(done) / static_cast<double>(rows.size()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

Validation Collect(const std::vector<SourcedRow>& rows, std::vector<RowOutcome> outcomes) {
  Validation validation;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (validation.sources.empty() || validation.sources.back() != rows[i].source)
      validation.sources.push_back(rows[i].source);
    if (outcomes[i].error)
      validation.refused.push_back({rows[i].row.id, rows[i].source, outcomes[i].error->message});
    for (ValidatedValue& value : outcomes[i].values) validation.values.push_back(std::move(value));
  }
  return validation;
}

}  // namespace

Result<int> ValidateCommand(const Options& options) {
  WT_ASSIGN_OR_RETURN(const std::vector<SourcedRow> rows, LoadRows(options.files));
  WT_ASSIGN_OR_RETURN(const std::vector<Override> overrides, OverridesOf(options));
  const Validation validation = Collect(rows, EvaluateAll(rows, overrides, options));
  if (options.json != "-") {
    Ink ink = StandardInk();
    fmt::print("{}", options.quiet ? ValidationSummary(validation, ink) : ValidationTable(validation, ink));
    if (std::fflush(stdout) != 0) return Failed("cannot write to standard output");
  }
  if (!options.json.empty()) WT_RETURN_IF_ERROR(WriteText(options.json, ValidationJson(validation)));
  const ErrorStatistics all = StatisticsOf(validation, "");
  return all.within_tolerance == all.rows ? 0 : kOutsideTolerance;
}

}  // namespace windtunnel
