#include "reports/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "base/format.h"
#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

void AppendAxis(std::string& text, std::string_view axis, int64_t size, std::string_view how) {
  if (size <= 1) return;
  text += fmt::format(", {} {}", axis, size);
  if (!how.empty()) text += fmt::format(" ({})", how);
}

std::string ScheduleInWords(const PipelineSpec& pipeline) {
  if (pipeline.virtual_stages <= 1) return pipeline.schedule;
  return fmt::format("{}, {}", pipeline.schedule, Counted(pipeline.virtual_stages, "virtual stage"));
}

// The stages' numbers of layers, equal neighbours once: "7, 14 × 6, 5 layers"; "12 layers" if all are equal.
std::string Balance(const std::vector<StageRange>& stages) {
  std::string text;
  for (size_t first = 0, end; first < stages.size(); first = end) {
    const int64_t layers = stages[first].end - stages[first].first;
    for (end = first; end < stages.size() && stages[end].end - stages[end].first == layers;) ++end;
    if (first == 0 && end == stages.size()) return Counted(layers, "layer");
    if (!text.empty()) text += ", ";
    text += end - first > 1 ? fmt::format("{} × {}", end - first, layers) : std::to_string(layers);
  }
  return text + " layers";
}

std::string Dimensions(const ModelSpec& model) {
  if (model.kind == ModelKind::kMlp) {
    std::string widths;
    for (int64_t width : model.widths) widths += fmt::format("{}{}", widths.empty() ? "" : "-", width);
    return "mlp " + widths;
  }
  const std::string layers = model.encoder ? fmt::format("{} + {}", model.encoder->layers, model.layers)
                                           : fmt::format("{}", model.layers);
  if (model.has_pattern())
    return fmt::format(
        "{}, {} layers × {}, {} with {}, vocab {}", model.preset.empty() ? "hybrid" : model.preset, layers,
        model.hidden, model.RecurrentLayers(), model.mamba ? "Mamba-2" : "gated delta networks", model.vocab);
  return fmt::format("{}, {} layers × {}, {} heads, vocab {}",
                     model.preset.empty() ? "transformer" : model.preset, layers, model.hidden, model.heads,
                     model.vocab);
}

// "fsdp 2 hybrid_shard in groups of 8", "fsdp 2 full_shard, resharded to 8 after forward", "zero1, optimizer
// offloaded"
std::string DataInWords(const DataParallelSpec& data) {
  std::string text(WordOf(data.kind));
  const bool is_fsdp = data.kind == DataParallelKind::kFsdp;
  if (is_fsdp) text += fmt::format(" {} {}", data.version, WordOf(data.sharding));
  if ((is_fsdp ? IsHybrid(data.sharding) : IsSharded(data.kind)) && data.shard_size > 0)
    text += fmt::format(" in groups of {}", data.shard_size);
  if (is_fsdp && data.reshard_ranks > 0)
    text += fmt::format(", resharded to {} after forward", data.reshard_ranks);
  if (data.offload == Offload::kOptimizer) text += ", optimizer offloaded";
  if (data.offload == Offload::kParam) text += ", parameters offloaded";
  return text;
}

std::string TensorInWords(const TensorParallelSpec& tensor) {
  if (!tensor.sequence) return "";
  return tensor.overlap ? "sequence, overlapped" : "sequence";
}

std::string ExpertsInWords(const ParallelSpec& parallel) {
  std::vector<std::string_view> words;
  if (parallel.TensorRanksHaveExperts()) words.push_back("over tensor ranks");
  if (parallel.expert.dispatcher != ExpertDispatcher::kAllToAll)
    words.push_back(WordOf(parallel.expert.dispatcher));
  if (parallel.expert.overlap) words.push_back("overlapped");
  return fmt::to_string(fmt::join(words, ", "));
}

}  // namespace

std::string ModelInWords(const Plan& plan) {
  const ModelStatistics& model = plan.model;
  const auto count = [](int64_t parameters) { return FormatCount(static_cast<double>(parameters)); };
  const std::string trained =
      model.frozen_parameters == 0
          ? ""
          : fmt::format(", {} trained", count(model.parameters - model.frozen_parameters));
  return fmt::format("{} · {} parameters{}", Dimensions(plan.scenario.model), count(model.parameters),
                     trained);
}

std::string ParallelismInWords(const Scenario& scenario) {
  const ParallelSpec& parallel = scenario.parallel;
  std::string text = Counted(scenario.WorldSize(), "rank");
  AppendAxis(text, "data", parallel.data.size, DataInWords(parallel.data));
  AppendAxis(text, "pipeline", parallel.pipeline.size, ScheduleInWords(parallel.pipeline));
  AppendAxis(text, "tensor", parallel.tensor.size, TensorInWords(parallel.tensor));
  AppendAxis(text, "context", parallel.context.size, WordOf(parallel.context.kind));
  AppendAxis(text, "expert", parallel.expert.size, ExpertsInWords(parallel));
  return text;
}

std::string SearchInWords(const Plan& plan, const std::string& device) {
  const Scenario& scenario = plan.scenario;
  return fmt::format("{} {} a step · {} · framework {} · nodes of {}",
                     FormatCount(static_cast<double>(plan.model.tokens_per_step)), TokenWord(scenario),
                     device, WordOf(scenario.framework), scenario.cluster.devices_per_node);
}

std::string PipelineInWords(const Plan& plan) {
  const Schedule& schedule = plan.pipeline->schedule;
  const size_t a_rank = schedule.rank_of_stage.size() / schedule.ranks.size();
  return fmt::format("{} of {}{}", Counted(schedule.stages(), "stage"), Balance(plan.pipeline->stages),
                     a_rank > 1 ? fmt::format(", {} a rank", a_rank) : "");
}

std::string BatchInWords(const Plan& plan) {
  const Scenario& scenario = plan.scenario;
  std::string unit = TokenWord(scenario);
  const ModelSpec& model = scenario.model;
  const std::string tokens = model.encoder ? fmt::format("({} + {})", model.encoder->seq_len, model.seq_len)
                                           : fmt::format("{}", model.seq_len);
  std::string micro = model.kind == ModelKind::kMlp
                          ? Counted(scenario.batch.micro, "sample")
                          : fmt::format("{} × {} {}", scenario.batch.micro, tokens, unit);
  const ParallelSpec& parallel = scenario.parallel;
  const bool shares = parallel.tensor.size * parallel.context.size * parallel.pipeline.size > 1;
  std::string text =
      scenario.batch.accumulate == 1
          ? fmt::format("{} a {} and step", micro, shares ? "replica" : "rank")
          : fmt::format("{} a micro-batch, {} micro-batches a step", micro, scenario.batch.accumulate);
  return fmt::format("{}, {} {} over all ranks", text,
                     FormatCount(static_cast<double>(plan.model.tokens_per_step)), unit);
}

std::string RankRanges(const std::vector<int>& ranks) {
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += std::to_string(ranks[first]);
    if (last > first) text += "-" + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string NamedRanks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", NounFor(static_cast<int64_t>(ranks.size()), "rank"), RankRanges(ranks));
}

std::string TokenWord(const Scenario& scenario) {
  return scenario.model.kind == ModelKind::kMlp ? "samples" : "tokens";
}

}  // namespace windtunnel
