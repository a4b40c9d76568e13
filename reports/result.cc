#include "reports/result.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/by_role.h"
#include "reports/version.h"
#include "reports/words.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order of docs/contract.md

Json ContextJson(const Profile& profile) {
  return {{"version", kVersion}, {"machine", profile.fingerprint}, {"libraries", profile.libraries}};
}

// The keys that prediction and measurement share.
Json StepJson(const Plan& plan, const Profile& profile, const StepTimes& times,
              const StepBreakdown& breakdown) {
  Throughput throughput = ThroughputOf(plan, times.p50);
  Json json;
  json["step_time_s"] = {
      {"p10", ToSeconds(times.p10)}, {"p50", ToSeconds(times.p50)}, {"p90", ToSeconds(times.p90)}};
  json["tokens_per_s"] = throughput.tokens_per_s;
  const std::optional<double> mfu = MfuOf(plan, profile, times.p50);
  json["mfu"] = mfu ? Json(*mfu) : Json(nullptr);  // a CPU has no dense peak to hold it against
  json["mfu_convention"] = "palm";
  json["tflops_per_device"] = throughput.flops_per_device.flops_per_second() / 1e12;
  json["bubble_fraction"] = breakdown.bubble_fraction();
  json["compute_s"] = ToSeconds(breakdown.compute);
  json["communication_s"] = ToSeconds(breakdown.communication);
  json["exposed_communication_s"] = ToSeconds(breakdown.exposed_communication);
  json["host_s"] = ToSeconds(breakdown.host);
  return json;
}

Json CategoriesJson(const Bytes (&by_category)[kCategories]) {
  Json json = Json::object();
  for (int i = 0; i < kCategories; ++i)
    json[std::string(Name(static_cast<Category>(i)))] = by_category[i].count();
  return json;
}

Json MemoryJson(const std::string& ranks, const MemoryPeak& peak) {
  Json json = {{"ranks", ranks},
               {"peak_allocated_bytes", peak.allocated.count()},
               {"peak_reserved_bytes", peak.reserved.count()},
               {"peak_requested_bytes", peak.requested.count()},
               {"at_peak", CategoriesJson(peak.by_category)},
               {"fragmentation",
                {{"reserved_bytes", peak.reserved.count()},
                 {"allocated_bytes", peak.allocated_at_reserved.count()},
                 {"largest_unserved_bytes", peak.largest_unserved.count()}}}};
  if (peak.retries > 0) json["fragmentation"]["allocation_retries"] = peak.retries;
  if (peak.host_allocated > Bytes(0)) {
    json["peak_host_bytes"] = peak.host_allocated.count();
    json["host_at_peak"] = CategoriesJson(peak.host_by_category);
  }
  return json;
}

Json RoleTimesJson(const std::vector<RoleTime>& times) {
  Json json = Json::array();
  for (const RoleTime& time : times)
    json.push_back({{"ranks", RankRanges(time.ranks)},
                    {"name", time.name},
                    {"compute_s", ToSeconds(time.breakdown.compute)},
                    {"exposed_communication_s", ToSeconds(time.breakdown.exposed_communication)},
                    {"bubble_s", ToSeconds(time.breakdown.bubble)},
                    {"host_s", ToSeconds(time.breakdown.host)},
                    {"bubble_fraction", time.breakdown.bubble_fraction()}});
  return json;
}

Json PredictedJson(const Outcome& outcome) {
  const Prediction& prediction = *outcome.prediction;
  Json json = StepJson(outcome.plan, outcome.profile, StepTimesOf(prediction), prediction.breakdown);
  json["compute_slowed_s"] = ToSeconds(prediction.slowed);
  if (const auto run = TrainingRunOf(outcome))
    json["training"] = {{"tokens", run->tokens},
                        {"steps", run->steps},
                        {"time_s", run->seconds},
                        {"device_hours", run->device_hours}};
  json["by_role"] = RoleTimesJson(TimeByRole(outcome.plan, prediction.by_rank));
  json["memory"] = Json::array();
  for (const PredictedMemory& memory : prediction.memory)
    json["memory"].push_back(MemoryJson(RankRanges(memory.ranks), memory.steady));
  json["initial_peak_bytes"] = prediction.initial_peak.count();
  json["outside_allocator_bytes"] = prediction.outside_allocator.count();
  if (const Bytes of_node = PredictedHostMemoryOfNode(outcome.plan.scenario, prediction); of_node > Bytes(0))
    json["host_memory_of_node_bytes"] = of_node.count();
  if (auto fits = FitsInDevice(prediction)) {
    json["device_memory_bytes"] = prediction.device_memory.count();
    json["fits"] = *fits;
  }
  if (outcome.cost_check) json["cost_drift"] = outcome.cost_check->drift;
  json["cost_sources"] = {{"measured", prediction.measured_share},
                          {"interpolated", prediction.interpolated_share},
                          {"modelled", prediction.modelled_share}};
  json["events"] = prediction.events;
  json["wall_s"] = ToSeconds(outcome.prediction_wall);
  return json;
}

// Adds what a run did apart from its steps, and what other processes used of the cores. Keys of what did not
// happen are left out.
void AddRun(const Measurement& measurement, Json& json) {
  if (measurement.first_step > 0) json["first_step"] = measurement.first_step;
  if (!measurement.restarts.empty()) json["restarts"] = measurement.restarts;
  if (!measurement.saves.empty()) {
    json["steps_after_saves"] = measurement.steps_after_saves;
    json["checkpoints"] = Json::array();
    for (const MeasuredSave& save : measurement.saves) {
      json["checkpoints"].push_back(
          {{"step", save.step}, {"time_s", ToSeconds(save.time)}, {"bytes", save.bytes.count()}});
    }
  }
  if (const auto& cores = measurement.cores)
    json["cores"] = {{"all", std::lround(cores->all)},
                     {"own", cores->own},
                     {"others", cores->others},
                     {"ranks", cores->ranks}};
  if (const auto& evaluation = measurement.evaluation) {
    json["evaluation"] = {{"loss", evaluation->loss}, {"sequences", evaluation->sequences}};
    if (evaluation->perplexity > 0) json["evaluation"]["perplexity"] = evaluation->perplexity;
  }
}

Json MeasuredJson(const Outcome& outcome) {
  const Measurement& measurement = *outcome.measurement;
  if (measurement.step_times.empty()) {  // all steps were done before this run
    Json json{{"steps", 0}};
    AddRun(measurement, json);
    return json;
  }
  Json json = StepJson(outcome.plan, outcome.profile, StepTimesOf(measurement), measurement.breakdown);
  json["by_rank"] = RoleTimesJson(TimeByRank(outcome.plan, measurement.by_rank));
  Bytes initial_peak, outside;
  json["memory"] = Json::array();
  for (const MeasuredMemory& memory : measurement.memory) {
    Json entry = MemoryJson(std::to_string(memory.rank), memory.steady);
    entry["initial_peak_bytes"] = memory.initial_peak.count();
    entry["resident_growth_bytes"] = memory.resident_growth.count();
    entry["outside_allocator_bytes"] = memory.outside_allocator.count();
    json["memory"].push_back(entry);
    initial_peak = std::max(initial_peak, memory.initial_peak);
    outside = std::max(outside, memory.outside_allocator);
  }
  json["initial_peak_bytes"] = initial_peak.count();
  json["outside_allocator_bytes"] = outside.count();
  json["wall_s"] = ToSeconds(outcome.measurement_wall);
  json["steps"] = measurement.step_times.size();
  json["step_times_s"] = Json::array();
  for (Duration step : measurement.step_times) json["step_times_s"].push_back(ToSeconds(step));
  json["losses"] = measurement.losses;
  if (!measurement.mtp_losses.empty()) json["mtp_losses"] = measurement.mtp_losses;
  if (!measurement.gradient_norms.empty()) json["gradient_norms"] = measurement.gradient_norms;
  if (!measurement.loss_scales.empty()) {
    json["loss_scales"] = measurement.loss_scales;
    json["skipped_steps"] = measurement.skipped_steps;
  }
  AddRun(measurement, json);
  return json;
}

Json ErrorJson(const Comparison& comparison) {
  return {{"step_time", comparison.step_time},
          {"peak_memory_bytes", comparison.peak_memory.count()},
          {"bubble_fraction", comparison.bubble_fraction},
          {"peak_host_bytes", comparison.peak_host.count()},
          {"initial_peak_bytes", comparison.initial_peak.count()},
          {"resident_bytes", comparison.resident.count()}};
}

Json OperatorsJson(const Outcome& outcome) {
  Json rows = Json::array();
  for (const OperatorRow& row : OperatorRows(outcome)) {
    Json entry;
    entry["operator"] = row.name;
    if (outcome.prediction) entry["predicted_s"] = ToSeconds(row.predicted);
    if (outcome.measurement) entry["measured_s"] = ToSeconds(row.measured);
    if (outcome.prediction && outcome.measurement) entry["contribution"] = row.contribution;
    rows.push_back(entry);
  }
  return rows;
}

Json OutcomeJson(const Outcome& outcome) {
  Json json;
  json["schema"] = kResultSchema;
  json["context"] = ContextJson(outcome.profile);
  json["scenario"] = outcome.plan.scenario.name;
  json["scenario_digest"] = ScenarioDigest(outcome.plan.scenario);
  if (outcome.prediction) {
    json["profile"] = outcome.profile.name;
    json["profile_digest"] = ProfileDigest(outcome.profile);
    json["predicted"] = PredictedJson(outcome);
  }
  if (outcome.measurement) json["measured"] = MeasuredJson(outcome);
  if (outcome.prediction && outcome.measurement) {
    Comparison comparison = Compare(outcome);
    json["error"] = ErrorJson(comparison);
    json["within_tolerance"] = comparison.within_tolerance();
  }
  json["by_operator"] = OperatorsJson(outcome);
  return json;
}

// Bytes of names that are not UTF-8 are replaced instead of causing an error.
std::string Text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string ResultJsonOf(const Outcome& outcome) { return Text(OutcomeJson(outcome)); }

std::string ResultJson(const std::vector<Outcome>& outcomes) {
  if (outcomes.size() == 1) return ResultJsonOf(outcomes.front());
  Json array = Json::array();
  for (const Outcome& outcome : outcomes) array.push_back(OutcomeJson(outcome));
  return Text(array);
}

}  // namespace windtunnel
