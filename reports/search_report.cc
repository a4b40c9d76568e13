#include "reports/search_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/format.h"
#include "plan/outline.h"
#include "reports/result.h"
#include "reports/version.h"
#include "reports/words.h"
#include "scenarios/characters.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order of docs/contract.md

constexpr double kWorthSaying = 0.5;  // seconds; a shorter time of the predictions in full is not mentioned

// As a scenario file spells it.
Json ParallelJson(const ParallelSpec& parallel) {
  const DataParallelSpec& data = parallel.data;
  Json json;
  json["data"] = {{"kind", WordOf(data.kind)}, {"size", data.size}};
  const bool replicated = data.kind == DataParallelKind::kNone || data.kind == DataParallelKind::kDp;
  if (!replicated && data.kind != DataParallelKind::kFsdp) json["data"]["overlap"] = data.overlap;
  if (data.kind == DataParallelKind::kFsdp) {
    json["data"]["sharding"] = WordOf(data.sharding);
    Json& reshards = json["data"]["reshard_after_forward"];
    if (data.reshard_ranks > 0) reshards = data.reshard_ranks;
    else reshards = data.reshard_after_forward;
  }
  if (!replicated) json["data"]["sync"] = WordOf(data.sync);
  if (data.shard_size > 0) json["data"]["shard_size"] = data.shard_size;
  if (data.offload != Offload::kNone) json["data"]["offload"] = WordOf(data.offload);
  json["pipeline"] = {{"size", parallel.pipeline.size}};
  if (parallel.pipeline.size > 1) {
    json["pipeline"]["schedule"] = parallel.pipeline.schedule;
    json["pipeline"]["virtual_stages"] = parallel.pipeline.virtual_stages;
    json["pipeline"]["balance"] = parallel.pipeline.balance;
  }
  json["tensor"] = {{"size", parallel.tensor.size},
                    {"sequence", parallel.tensor.sequence},
                    {"overlap", parallel.tensor.overlap}};
  json["context"] = {{"size", parallel.context.size}};
  if (parallel.context.size > 1) json["context"]["kind"] = WordOf(parallel.context.kind);
  json["expert"] = {{"size", parallel.expert.size}};
  if (parallel.TensorRanksHaveExperts()) json["expert"]["tensor"] = 1;
  if (parallel.expert.size > 1) json["expert"]["dispatcher"] = WordOf(parallel.expert.dispatcher);
  if (parallel.expert.overlap) {
    json["expert"]["overlap"] = true;
    json["expert"]["delay_wgrad"] = parallel.expert.delay_wgrad;
  }
  return json;
}

// Whether what the allocator reserves may be more than the device has: if half as much again as is allocated
// would be, and it has not been predicted in full.
bool MayNotFit(const FoundConfiguration& found, Bytes device_memory) {
  constexpr double kSafe = 2.0 / 3;
  return !found.predicted.is_in_full() && device_memory > Bytes(0) &&
         static_cast<double>(found.choice.memory.count()) >
             kSafe * static_cast<double>(device_memory.count());
}

Json FoundJson(const FoundConfiguration& found, Bytes device_memory) {
  const Scenario& scenario = found.scenario;
  Json json;
  json["configuration"] = found.choice.id;
  json["devices"] = found.choice.devices;
  json["parallel"] = ParallelJson(scenario.parallel);
  json["batch"] = {{"micro", scenario.batch.micro}, {"accumulate", scenario.batch.accumulate}};
  json["recompute"] = WordOf(scenario.recompute);
  for (const RecomputeModule module : scenario.recompute_modules)
    json["recompute_modules"].push_back(WordOf(module));
  if (scenario.recompute_layers > 0) json["recompute_layers"] = scenario.recompute_layers;
  if (scenario.activation_offload) json["activation_offload"] = true;
  json["cluster"] = {{"nodes", scenario.cluster.nodes},
                     {"devices_per_node", scenario.cluster.devices_per_node}};
  json["set"] = Json::array();
  for (const Override& override : found.overrides) json["set"].push_back(override.key + "=" + override.value);
  json["step_time_s"] = ToSeconds(found.choice.step_time);
  if (found.is_lower_bound) json["step_time_is_lower_bound"] = true;
  json["memory_bytes"] = found.choice.memory.count();
  // Whether what the allocator reserves fits is known of what was predicted in full.
  json["fits"] = found.predicted.is_in_full() ? Json(true) : Json();
  if (MayNotFit(found, device_memory)) json["may_not_fit"] = true;
  json["predicted"] = Json::parse(found.predicted.json);
  return json;
}

Json CountsJson(const std::map<std::string, int64_t>& counts) {
  Json json = Json::object();
  for (const auto& [reason, count] : counts) json[reason] = count;
  return json;
}

int64_t Sum(const std::map<std::string, int64_t>& counts) {
  int64_t sum = 0;
  for (const auto& [reason, count] : counts) sum += count;
  return sum;
}

// "62.5K tokens/s, 477 TFLOP/s of a device, MFU 48.2 %"
std::string ThroughputInWords(const FoundConfiguration& found) {
  const FoundPrediction& predicted = found.predicted;
  std::string text =
      fmt::format("{} {}/s, {:.3g} TFLOP/s of a device", FormatCount(predicted.throughput.tokens_per_s),
                  TokenWord(found.scenario), predicted.throughput.flops_per_device.flops_per_second() / 1e12);
  if (predicted.mfu) text += ", MFU " + FormatPercent(*predicted.mfu);
  return text;
}

// " --profile a100-sxm-80g --set parallel.data.size=2 …"
std::string OptionsOf(const SearchReport& report, const FoundConfiguration& found) {
  std::string text;
  if (!report.profile_option.empty()) text += " --profile " + ShellWord(report.profile_option);
  if (!report.framework_option.empty()) text += " --framework-profile " + ShellWord(report.framework_option);
  for (const Override& override : found.overrides)
    text += " --set " + ShellWord(override.key + "=" + override.value);
  return text;
}

// Has a column of reserved memory if all rows were predicted in full.
std::string RowsOf(const char* title, const std::vector<FoundConfiguration>& rows, Bytes device_memory,
                   Ink ink) {
  const bool shows =
      std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.predicted.is_in_full(); });
  const auto line = [&](const std::string& time, const std::string& memory, const std::string& all,
                        const std::string& devices, const std::string& what) {
    return fmt::format("{:>10}{:>12}{}{:>9}  {}", time, memory, shows ? fmt::format("{:>12}", all) : "",
                       devices, what);
  };
  const auto is_at_limit = [&](const FoundConfiguration& row) {
    const std::optional<Bytes>& memory = row.predicted.reserved;
    return memory && device_memory > Bytes(0) && IsAtLimit(*memory, device_memory);
  };
  std::string text = ink.Bold(line("step time", "memory", "reserved", "devices", title)) + "\n";
  for (const FoundConfiguration& row : rows) {
    const Choice& choice = row.choice;
    text += line((row.is_lower_bound ? "> " : "") + FormatDuration(choice.step_time),
                 (MayNotFit(row, device_memory) ? "? " : "") + FormatBytes(choice.memory),
                 shows ? (is_at_limit(row) ? "! " : "") + FormatBytes(*row.predicted.reserved) : "",
                 std::to_string(choice.devices), Describe(row.configuration)) +
            "\n";
  }
  if (std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.is_lower_bound; }))
    text +=
        "         > : without what collectives of different groups take from each other on network cards "
        "(--full predicts it)\n";
  if (shows && std::any_of(rows.begin(), rows.end(), is_at_limit))
    text += "         ! : at the limit of the device's memory: predictions of peaks are some per cent off\n";
  const auto may_not_fit = [&](const FoundConfiguration& row) { return MayNotFit(row, device_memory); };
  if (std::any_of(rows.begin(), rows.end(), may_not_fit))
    text +=
        "         ? : fits as allocated; what the allocator reserves beside that may not (--full predicts "
        "it)\n";
  return text;
}

std::string ReasonsOf(const char* title, const std::map<std::string, int64_t>& counts, Ink ink) {
  if (counts.empty()) return "";
  std::string text = "\n" + ink.Bold(title) + "\n";
  for (const auto& [reason, count] : counts) text += fmt::format("{:>10} x  {}\n", count, reason);
  return text;
}

}  // namespace

FoundPrediction PredictedInFull(const Outcome& outcome) {
  const Prediction& prediction = *outcome.prediction;
  const Duration step = StepTimesOf(prediction).p50;
  Bytes reserved;
  for (const PredictedMemory& memory : prediction.memory)
    reserved = std::max(reserved, memory.steady.reserved);
  return {Json::parse(ResultJsonOf(outcome)).at("predicted").dump(), ThroughputOf(outcome.plan, step),
          MfuOf(outcome.plan, outcome.profile, step), reserved + prediction.outside_allocator};
}

FoundPrediction Composed(const Plan& plan, const Profile& profile, Duration step) {
  const double seconds = ToSeconds(step);
  const Throughput throughput = ThroughputOf(plan, step);
  Json json;
  // One step is computed, not drawn: how far steps are apart is not known.
  const bool varies = plan.scenario.cluster.jitter != 0;
  const Json end = varies ? Json() : Json(seconds);
  json["step_time_s"] = {{"p10", end}, {"p50", seconds}, {"p90", end}};
  json["tokens_per_s"] = throughput.tokens_per_s;
  const auto mfu = MfuOf(plan, profile, step);
  json["mfu"] = mfu ? Json(*mfu) : Json();
  json["mfu_convention"] = "palm";
  json["tflops_per_device"] = throughput.flops_per_device.flops_per_second() / 1e12;
  return {json.dump(), throughput, mfu, std::nullopt};
}

std::string SearchJson(const SearchReport& report) {
  Json json;
  json["schema"] = kSearchSchema;
  json["context"] = {{"version", kVersion}};
  json["scenario"] = report.scenario;
  json["scenario_digest"] = report.scenario_digest;
  json["profile"] = report.profile;
  json["profile_digest"] = report.profile_digest;
  json["subject"] = report.subject;
  json["combinations"] = report.combinations;
  json["illegal"] = Sum(report.illegal);
  json["evaluated"] = report.evaluated;
  json["infeasible"] = report.infeasible;
  json["fragmented"] = report.fragmented;
  json["tight"] = report.tight;
  json["refused"] = Sum(report.refused);
  json["resumed"] = report.resumed;
  json["configurations_per_s"] = report.configurations_per_s;
  json["configurations_per_cpu_s"] = report.configurations_per_cpu_s;
  json["wall_s"] = report.wall_s;
  json["full_s"] = report.full_s;
  json["reasons"] = {{"illegal", CountsJson(report.illegal)}, {"refused", CountsJson(report.refused)}};
  json["pareto"] = Json::array();
  for (const FoundConfiguration& found : report.pareto)
    json["pareto"].push_back(FoundJson(found, report.device_memory));
  json["top"] = Json::array();
  for (const FoundConfiguration& found : report.top)
    json["top"].push_back(FoundJson(found, report.device_memory));
  if (report.least)
    json["least"] = {{"memory_bytes", report.least->memory.count()},
                     {"configuration", report.least->configuration}};
  json["best"] = report.pareto.empty() ? Json() : FoundJson(report.pareto.front(), report.device_memory);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string SearchVerdict(const SearchReport& report, Ink ink) {
  if (report.pareto.empty()) return ink.Red(report.scenario + ": no configuration can be trained") + "\n";
  const FoundConfiguration& best = report.pareto.front();
  return fmt::format("{}: {} on {} devices: {}\n", report.scenario, FormatDuration(best.choice.step_time),
                     best.choice.devices, Describe(best.configuration));
}

std::string SearchTable(const SearchReport& report, bool verbose, Ink ink) {
  std::string text = ink.Bold(report.scenario) + "\n";
  for (const std::string& line : report.subject) text += fmt::format("  {}\n", line);
  text += fmt::format("  {} combinations, {} legal: {} evaluated, {} need more memory than the device has",
                      report.combinations, report.legal, report.evaluated, report.infeasible);
  if (report.fragmented > 0) text += fmt::format(" ({} more with what lies idle between)", report.fragmented);
  if (report.tight > 0)
    text += fmt::format(", {} fit only by giving back cached memory in every step (slow: too tight)",
                        report.tight);
  if (!report.refused.empty()) text += fmt::format(", {} cannot be predicted", Sum(report.refused));
  text += fmt::format("\n  {:.3g} s, {:.4g} configurations/s ({:.4g}/s of processor time)", report.wall_s,
                      report.configurations_per_s, report.configurations_per_cpu_s);
  if (report.resumed > 0) text += fmt::format(", {} known before", report.resumed);
  if (report.full_s >= kWorthSaying) text += fmt::format("; the best in full: {:.3g} s more", report.full_s);
  text += "\n";
  if (report.pareto.empty()) {
    text += "\n" + ink.Red("no configuration can be trained") + "\n";
    if (report.least)
      text += fmt::format("  the least memory is {}, with {}\n", FormatBytes(report.least->memory),
                          report.least->configuration);
  } else {
    text += "\n" + RowsOf("the fastest", report.top, report.device_memory, ink);
    text +=
        "\n" + RowsOf("none is better in time, memory and devices", report.pareto, report.device_memory, ink);
    const FoundConfiguration& best = report.pareto.front();
    // What a search composes may be too large for predict.
    const Status can_predict = CheckSize(best.scenario);
    text += "\n" +
            ink.Bold((can_predict ? "the fastest again: windtunnel predict " : "the fastest: ") +
                     ShellWord(best.scenario.source_file)) +
            OptionsOf(report, best) + "\n";
    if (!can_predict) text += fmt::format("  too large for predict: {}\n", can_predict.error().message);
    text += "  " + ThroughputInWords(best);
    if (const auto reserved = best.predicted.reserved)
      text += fmt::format(
          "; {} of the device are then reserved (memory in the tables is what buffers ask for, and what is "
          "outside the "
          "allocator)\n",
          FormatBytes(*reserved));
    else if (can_predict)
      text += ink.Dim("; the command also says whether memory that lies idle in between fits") + "\n";
    else text += "\n";
  }
  if (verbose || report.pareto.empty()) text += ReasonsOf("not legal", report.illegal, ink);
  text += ReasonsOf("cannot be predicted", report.refused, ink);
  return text;
}

}  // namespace windtunnel
