#include "scenarios/lora_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

// The layers of a block that targets can name, with this model and framework.
std::vector<LoraTarget> TargetsOf(const Scenario& scenario) {
  const ModelSpec& model = scenario.model;
  std::vector<LoraTarget> targets = {LoraTarget::kQkv, LoraTarget::kProjection};
  const bool is_gated = IsGated(model.activation);
  const bool has_modules = IsPytorch(scenario.framework) && is_gated;
  if (has_modules)
    targets.insert(targets.begin(), {LoraTarget::kQueries, LoraTarget::kKeys, LoraTarget::kValues});
  if (model.experts) return targets;
  if (has_modules) targets.push_back(LoraTarget::kGate);
  if (has_modules || !is_gated) targets.push_back(LoraTarget::kUp);
  if (is_gated) targets.push_back(LoraTarget::kGateUp);
  targets.push_back(LoraTarget::kDown);
  return targets;
}

void CheckTargets(const Scenario& scenario, Checker& check) {
  const std::vector<LoraTarget> known = TargetsOf(scenario), &given = scenario.model.lora->targets;
  std::vector<std::string_view> words;
  for (const LoraTarget target : known) words.push_back(WordOf(target));
  for (const LoraTarget target : given) {
    check.Expect(std::find(known.begin(), known.end(), target) != known.end(),
                 {"model.lora.targets", "framework", "model.lora"},
                 "model.lora.targets has {}, which no block of the model has in framework {}{}, expected {}",
                 WordOf(target), WordOf(scenario.framework),
                 scenario.model.experts ? " (adapters of experts are not modelled)" : "",
                 fmt::join(words, ", "));
    check.Expect(std::count(given.begin(), given.end(), target) == 1, {"model.lora.targets"},
                 "model.lora.targets has {} more than once", WordOf(target));
  }
}

void CheckQuantization(const Scenario& scenario, Checker& check) {
  const LoraSpec& lora = *scenario.model.lora;
  if (!lora.is_quantized()) return;
  const std::string_view word = WordOf(lora.quantize);
  check.Expect(
      !scenario.model.experts, {"model.lora.quantize", "model.experts"},
      "model.lora.quantize is {}, expected none with model.experts: experts in 4 bits are not modelled",
      word);
  check.Expect(scenario.precision.fp8_recipe == Fp8Recipe::kNone,
               {"model.lora.quantize", "precision.compute"},
               "model.lora.quantize is {}, expected none with precision.compute: {}", word,
               WordOf(scenario.precision.compute));
  const DataParallelSpec& data = scenario.parallel.data;
  check.Expect(data.kind != DataParallelKind::kZero3, {"model.lora.quantize", "parallel.data.kind"},
               "model.lora.quantize is {}, expected none with parallel.data.kind: zero3", word);
  if (scenario.search) {
    const std::vector<DataParallelKind>& kinds = scenario.search->kind;
    check.Expect(std::find(kinds.begin(), kinds.end(), DataParallelKind::kZero3) == kinds.end(),
                 {"search.kind", "model.lora.quantize"},
                 "search.kind has zero3, expected others with model.lora.quantize: {}", word);
  }
  check.Expect(data.kind != DataParallelKind::kFsdp || data.reshard_ranks <= 1,
               {"model.lora.quantize", "parallel.data.reshard_after_forward"},
               "model.lora.quantize is {}, expected none with parallel.data.reshard_after_forward: {}", word,
               data.reshard_ranks);
}

}  // namespace

void CheckLora(const Scenario& scenario, Checker& check) {
  if (!scenario.model.lora) return;
  const ModelSpec& model = scenario.model;
  const DataParallelSpec& data = scenario.parallel.data;
  CheckTargets(scenario, check);
  CheckQuantization(scenario, check);
  check.Expect(!model.latent_attention, {"model.lora", "model.latent_attention"},
               "model.lora is given, expected none with model.latent_attention");
  check.Expect(!model.mtp, {"model.lora", "model.mtp"}, "model.lora is given, expected none with model.mtp");
  const PrecisionSpec& precision = scenario.precision;
  check.Expect(
      precision.fp8_recipe == Fp8Recipe::kNone || scenario.framework == Framework::kMegatronCore,
      {"precision.compute", "framework", "model.lora"},
      "precision.compute is {} with framework {} and model.lora, expected framework megatron_core, or "
      "16 or 32 bits",
      WordOf(precision.compute), WordOf(scenario.framework));
  check.Expect(!precision.fp8_param_gather, {"precision.fp8_param_gather", "model.lora"},
               "precision.fp8_param_gather is true, expected false with model.lora");
  check.Expect(scenario.recompute != Recompute::kSelectiveOp, {"recompute", "model.lora"},
               "recompute is selective_op, expected none, selective or full with model.lora");
  const bool searches = scenario.search.has_value();
  check.Expect(!searches || std::find(scenario.search->recompute.begin(), scenario.search->recompute.end(),
                                      Recompute::kSelectiveOp) == scenario.search->recompute.end(),
               {"search.recompute", "model.lora"},
               "search.recompute has selective_op, expected none, selective or full with model.lora");
  const PipelineSpec& pipeline = scenario.parallel.pipeline;
  const std::vector<int64_t>& balance = pipeline.balance;
  const bool ends_are_stages = balance.empty() && pipeline.size > 1 &&
                               EndsAreStages(scenario, pipeline.size * pipeline.virtual_stages, model.layers);
  check.Expect(
      !ends_are_stages && std::find(balance.begin(), balance.end(), 0) == balance.end(),
      {"parallel.pipeline.balance", "parallel.pipeline.size", "model.lora"},
      "a pipeline stage has no layers, expected at least one in each with model.lora: nothing of the "
      "stage is trained");
  check.Expect(!scenario.parallel.tensor.overlap, {"parallel.tensor.overlap", "model.lora"},
               "parallel.tensor.overlap is true, expected false with model.lora");
  check.Expect(data.kind != DataParallelKind::kDp, {"parallel.data.kind", "model.lora"},
               "parallel.data.kind is dp, expected ddp with model.lora");
  check.Expect(data.kind != DataParallelKind::kFsdp || data.version == 2,
               {"parallel.data.version", "model.lora"},
               "parallel.data.version is {}, expected 2 with model.lora: version 1 flattens the weights of a "
               "unit, which must all be trained, or none of them",
               data.version);
}

}  // namespace windtunnel
