#include "cli/row_predictions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/parallel.h"
#include "base/read_file.h"
#include "cli/load_plan.h"
#include "cli/outputs.h"
#include "cli/terminal.h"
#include "cost_models/cost_model.h"
#include "cost_models/device_spec.h"
#include "plan/outline.h"
#include "reports/outcome.h"
#include "scenarios/load.h"
#include "scenarios/words.h"
#include "sim/composed/composed_step.h"
#include "sim/operator_room.h"

namespace windtunnel {
namespace {

// The source of "dir/foundry_a100.jsonl" is foundry_a100, unless another file has that name too.
std::string SourceOf(const std::string& file, const std::vector<std::string>& files) {
  auto stem = [](const std::string& path) { return std::filesystem::path(path).stem().string(); };
  const auto same = [&](const std::string& other) { return stem(other) == stem(file); };
  return std::count_if(files.begin(), files.end(), same) > 1 ? file : stem(file);
}

// A key of rows that are comparable: the faster of two is the better choice.
std::string ComparableTo(const Plan& plan) {
  const Scenario& s = plan.scenario;
  const ModelSpec& m = s.model;
  const int64_t experts = m.experts ? m.experts->count : 0, top_k = m.experts ? m.experts->top_k : 0;
  const int64_t shared = m.experts ? m.experts->shared_ffn : 0, modules = m.mtp ? m.mtp->Modules() : 0;
  const MambaSpec mamba = m.mamba.value_or(MambaSpec{.pattern = ""});
  const DeltaNetSpec net = m.delta_net.value_or(DeltaNetSpec{.pattern = ""});
  return fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} | {} x {} | {}",
      net.pattern, net.packed(), mamba.pattern, mamba.state, mamba.heads, mamba.groups, m.EncoderLayers(),
      m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim, m.ffn, m.vocab, m.seq_len, WordOf(m.activation),
      m.tie_embeddings, experts, top_k, shared, m.LayersWithExperts(), m.DenseFfn(),
      m.latent_attention ? m.latent_attention->kv_rank : 0, m.AttentionTokens(), m.ExpertWidth(),
      m.MtpLayers(), modules, fmt::join(m.widths, "-"), plan.world_size, s.cluster.device,
      plan.model.tokens_per_step);
}

bool HasMemory(const PublishedMeasurement& measured) {
  return measured.peak_memory_bytes || measured.reserved_memory_bytes || measured.device_memory_used_bytes;
}

// The peaks of `rank`, or the largest of all ranks.
struct Peaks {
  Bytes allocated, reserved;
};
Peaks PeaksOf(const Prediction& prediction, std::optional<int64_t> rank) {
  Peaks peaks;
  for (const PredictedMemory& memory : prediction.memory) {
    if (rank && !std::binary_search(memory.ranks.begin(), memory.ranks.end(), *rank)) continue;
    peaks.allocated = std::max(peaks.allocated, memory.steady.allocated);
    peaks.reserved = std::max(peaks.reserved, memory.steady.reserved);
  }
  return peaks;
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
  add(kStepTime, ToSeconds(prediction.p50), step, tolerance.step_time);
  if (prediction.memory.empty()) return values;
  const Bytes used = prediction.peak_reserved + prediction.outside_allocator;
  const Peaks peaks = PeaksOf(prediction, measured.memory_rank);
  add(kPeakMemory, static_cast<double>(peaks.allocated.count()), measured.peak_memory_bytes,
      tolerance.peak_memory);
  add(kReservedMemory, static_cast<double>(peaks.reserved.count()), measured.reserved_memory_bytes,
      tolerance.peak_memory);
  add(kDeviceMemory, static_cast<double>(used.count()), measured.device_memory_used_bytes,
      tolerance.peak_memory);
  return values;
}

// Predict, but faster: if the step can be composed, only the median step time. Memory is predicted if it was
// measured and `with_memory` is set. `plan` is an outline at first, and becomes what had to be compiled, for
// which `room` is reserved.
Result<Prediction> PredictRow(const Costs& costs, const PublishedMeasurement& measured, bool with_memory,
                              std::optional<OperatorRoom>& room, Plan& plan) {
  WT_RETURN_IF_ERROR(CheckSupported(plan.scenario));
  const std::unique_ptr<CostModel> model = MakeProfileCostModel(costs.profile, plan);
  ComposedSteps steps;
  const auto step = steps.Compose(plan.scenario, *model, Bytes::Max());
  Prediction prediction;
  if (step && !(with_memory && HasMemory(measured))) {
    plan.model = StatisticsOf(plan.scenario);
  } else {
    room.emplace(plan.scenario);
    WT_ASSIGN_OR_RETURN(plan, CompilePlan(plan.scenario, {.checks = false, .predicts = true}));
    if (!step) return PredictFrom(costs, plan);
    WT_ASSIGN_OR_RETURN(prediction, PredictMemory(plan, *model));
  }
  prediction.p50 = step->Time();
  return prediction;
}

// The row's scenario is a line of its own whose columns are not the file's, so "rows.jsonl:2:1:1:17: …" would
// name no place. An error's place is the row's.
Result<Scenario> ScenarioOf(const ValidationRow& row, const std::vector<Override>& overrides,
                            const std::string& profile) {
  const std::string directory = std::filesystem::path(row.file).parent_path().string();
  Result<Scenario> scenario = ParseScenarioFor(EmbeddedProfile(profile) ? profile : "", row.scenario,
                                               row.place, directory, overrides);
  if (scenario) return scenario;
  Error error = scenario.error();
  const std::string begin = row.place + ":1:";
  const size_t end = error.message.find(": ");
  if (error.message.starts_with(begin) && end != std::string::npos)
    error.message = row.place + error.message.substr(end);
  error.others.clear();  // a row has one reason
  return tl::unexpected(std::move(error));
}

}  // namespace

bool HasStepTime(const PublishedMeasurement& measured) {
  return measured.step_time_s || measured.tokens_per_s_per_device || measured.tflops_per_device ||
         measured.mfu;
}

Result<std::vector<SourcedRow>> LoadRows(const std::vector<std::string>& files) {
  for (auto file = files.begin(); file != files.end(); ++file) {
    const auto is_it = [&](const std::string& other) { return IsOneFile(*file, other); };
    if (std::any_of(files.begin(), file, is_it))
      return InvalidInput("{} is given twice, expected each file of rows once", *file);
  }
  std::vector<SourcedRow> rows;
  for (const std::string& file : files) {
    WT_ASSIGN_OR_RETURN(std::vector<ValidationRow> of_file, LoadValidationRows(file));
    for (ValidationRow& row : of_file) rows.push_back({SourceOf(file, files), std::move(row)});
  }
  return rows;
}

Result<RowPredictor> RowPredictor::Make(const Options& options) {
  WT_ASSIGN_OR_RETURN(std::vector<Override> overrides, OverridesOf(options));
  WT_ASSIGN_OR_RETURN(NamedCosts named, LoadNamedCosts(options));
  return RowPredictor(options, std::move(overrides), std::move(named));
}

Result<const Costs*> RowPredictor::CostsOf(const Plan& plan) const {
  std::lock_guard lock(shelf_->mutex);
  const std::string& device = plan.scenario.cluster.device;
  const std::string key = device + "\n" + plan.scenario.framework_file;
  auto found = shelf_->costs.find(key);
  if (found == shelf_->costs.end()) {
    WT_ASSIGN_OR_RETURN(Costs costs, FindCosts(named_, plan));
    found = shelf_->costs.emplace(key, std::move(costs)).first;
  }
  return &found->second;
}

Status RowPredictor::CheckOverrides(const SourcedRow& row) const {
  const auto scenario = ScenarioOf(row.row, overrides_, options_.profile);
  if (scenario || !scenario.error().message.starts_with("--set ")) return Ok();
  return tl::unexpected(scenario.error());
}

Status RowPredictor::CheckOutputs(const std::vector<SourcedRow>& rows) const {
  if (options_.json.empty() && options_.svg.empty() && options_.out.empty()) return Ok();
  for (const SourcedRow& row : rows)
    if (const auto scenario = ScenarioFor(row)) WT_RETURN_IF_ERROR(CheckOutputsAgainst(*scenario, options_));
  return Ok();
}

Result<Scenario> RowPredictor::ScenarioFor(const SourcedRow& row) const {
  return ScenarioOf(row.row, overrides_, options_.profile);
}

Result<FrameworkProfile> RowPredictor::FrameworkFor(const SourcedRow& row) const {
  WT_ASSIGN_OR_RETURN(const Scenario scenario, ScenarioFor(row));
  WT_ASSIGN_OR_RETURN(const Costs* costs, CostsOf(OutlineOf(scenario)));
  return costs->profile.framework ? *costs->profile.framework : FrameworkOf(scenario);
}

Result<std::string> RowPredictor::FrameworkTextFor(const SourcedRow& row) const {
  if (named_.framework) return named_.framework_text;  // may be a pipe, which can be read only once
  WT_ASSIGN_OR_RETURN(const Scenario scenario, ScenarioFor(row));
  if (scenario.framework_file.empty()) return std::string();
  return ReadFile(scenario.framework_file, "a framework profile");
}

Result<std::vector<ValidatedValue>> RowPredictor::Predict(
    const SourcedRow& row, const std::optional<ResidualFactors>& residuals) const {
  WT_ASSIGN_OR_RETURN(Scenario scenario, ScenarioFor(row));
  WT_ASSIGN_OR_RETURN(const Costs* shelved, CostsOf(OutlineOf(scenario)));
  std::optional<Costs> tuned;
  if (residuals) {
    tuned = *shelved;
    if (!tuned->profile.framework) tuned->profile.framework = FrameworkOf(scenario);
    tuned->profile.framework->residuals = *residuals;
  }
  const Costs& costs = tuned ? *tuned : *shelved;
  // Residuals do not change memory.
  const bool with_memory = !residuals || !HasStepTime(row.row.measured);
  std::optional<OperatorRoom> room;  // reserved as long as the plan lives
  Plan plan = OutlineOf(WithBalance(std::move(scenario), costs));
  if (const auto rank = row.row.measured.memory_rank; rank && *rank >= plan.world_size)
    return InvalidInput("measured.memory_rank is {}, expected a rank of the job, 0 to {}", *rank,
                        plan.world_size - 1);
  WT_ASSIGN_OR_RETURN(const Prediction prediction,
                      PredictRow(costs, row.row.measured, with_memory, room, plan));
  std::vector<ValidatedValue> values = ValuesOf(row, plan, costs.profile, prediction);
  if (values.empty())
    return InvalidInput(
        "nothing that was measured can be predicted, expected one of step_time_s, tokens_per_s_per_device, "
        "tflops_per_device, mfu, peak_memory_bytes, reserved_memory_bytes, device_memory_used_bytes");
  return values;
}

std::vector<RowOutcome> RowPredictor::PredictAll(const std::vector<SourcedRow>& rows,
                                                 const std::string& label,
                                                 const std::optional<ResidualFactors>& residuals) const {
  std::vector<RowOutcome> outcomes(rows.size());
  Progress progress(ShowsProgress(options_));
  std::atomic<size_t> done = 0;
  ForEachInParallel(
      Cores(), rows.size(),
      [&](size_t i) {
        auto values = Predict(rows[i], residuals);
        if (values) outcomes[i].values = std::move(*values);
        else outcomes[i].error = values.error();
        ++done;
      },
      [&] { progress.Show(label, static_cast<double>(done) / static_cast<double>(rows.size())); },
      [] { return false; });
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

}  // namespace windtunnel
