#include "reports/words.h"

#include <fmt/format.h>

#include <string_view>

#include "base/format.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

void AppendAxis(std::string& text, std::string_view axis, int64_t size, std::string_view how) {
  if (size <= 1) return;
  text += fmt::format(", {} {}", axis, size);
  if (!how.empty()) text += fmt::format(" ({})", how);
}

std::string Dimensions(const ModelSpec& model) {
  if (model.kind == ModelKind::kMlp) {
    std::string widths;
    for (int64_t width : model.widths) widths += fmt::format("{}{}", widths.empty() ? "" : "-", width);
    return "mlp " + widths;
  }
  return fmt::format("{}, {} layers × {}, {} heads, vocab {}",
                     model.preset.empty() ? "transformer" : model.preset, model.layers, model.hidden,
                     model.heads, model.vocab);
}

}  // namespace

std::string ModelInWords(const Plan& plan) {
  return fmt::format("{} · {} parameters", Dimensions(plan.scenario.model),
                     FormatCount(static_cast<double>(plan.model.parameters)));
}

std::string ParallelismInWords(const Scenario& scenario) {
  const ParallelSpec& parallel = scenario.parallel;
  std::string text = Counted(scenario.WorldSize(), "rank");
  AppendAxis(text, "data", parallel.data.size, WordOf(parallel.data.kind));
  AppendAxis(text, "pipeline", parallel.pipeline.size, parallel.pipeline.schedule);
  AppendAxis(text, "tensor", parallel.tensor.size, parallel.tensor.sequence ? "sequence" : "");
  AppendAxis(text, "context", parallel.context.size, WordOf(parallel.context.kind));
  AppendAxis(text, "expert", parallel.expert.size, "");
  return text;
}

std::string BatchInWords(const Plan& plan) {
  const Scenario& scenario = plan.scenario;
  std::string unit = TokenWord(scenario);
  std::string micro = scenario.model.kind == ModelKind::kMlp
                          ? Counted(scenario.batch.micro, "sample")
                          : fmt::format("{} × {} {}", scenario.batch.micro, scenario.model.seq_len, unit);
  std::string text = scenario.batch.accumulate == 1 ? micro + " a rank and step"
                                                    : fmt::format("{} a micro-batch, {} micro-batches a step",
                                                                  micro, scenario.batch.accumulate);
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

std::string Counted(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string TokenWord(const Scenario& scenario) {
  return scenario.model.kind == ModelKind::kMlp ? "samples" : "tokens";
}

}  // namespace windtunnel
