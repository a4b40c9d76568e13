#include "scenarios/recompute_checks.h"

#include <algorithm>
#include <vector>

#include "scenarios/words.h"

namespace windtunnel {
bool HasModule(const ModelSpec& model, RecomputeModule module) {
  switch (module) {
    case RecomputeModule::kCoreAttention:
      return !model.has_pattern() || model.AnyLayer(ModelSpec::HasAttention);
    case RecomputeModule::kLayerNorm:
      return true;
    case RecomputeModule::kLatentUp:
      return model.latent_attention.has_value();
    case RecomputeModule::kMlp:
      if (model.has_pattern()) return model.AnyLayer(ModelSpec::HasPlainMlp);
      return !model.experts || model.LayersWithExperts() < model.layers;
    case RecomputeModule::kMoe:
    case RecomputeModule::kMoeActivation:
      return model.experts.has_value();
    case RecomputeModule::kSharedExperts:
      return model.experts && model.experts->shared_ffn > 0;
  }
  return false;
}

namespace {

// A search has its own range of `recompute`.
bool MayRecompute(const Scenario& scenario, Recompute recompute) {
  if (scenario.recompute == recompute) return true;
  if (!scenario.search) return false;
  const std::vector<Recompute>& range = scenario.search->recompute;
  return std::find(range.begin(), range.end(), recompute) != range.end();
}

void CheckPostNorm(const Scenario& scenario, Checker& check) {
  check.Expect(
      !scenario.model.post_norm || !MayRecompute(scenario, Recompute::kSelectiveOp),
      {"model.post_norm", "recompute", "search.recompute"},
      "model.post_norm is true, expected false with recompute selective_op: what every second matmul "
      "gives would be normalised again");
}

void CheckLatentsOfExperts(const Scenario& scenario, Checker& check) {
  if (!scenario.model.experts || scenario.model.experts->latent == 0) return;
  check.Expect(scenario.recompute != Recompute::kSelectiveOp, {"recompute", "model.experts.latent"},
               "recompute is selective_op, expected none, selective or full with model.experts.latent, whose "
               "two products it does not count");
}

void CheckGates(const Scenario& scenario, Checker& check) {
  const ModelSpec& model = scenario.model;
  const bool counts = scenario.recompute == Recompute::kSelectiveOp;
  check.Expect(!model.attention_gate || !counts, {"recompute", "model.attention_gate"},
               "recompute is selective_op, expected none, selective or full with model.attention_gate, whose "
               "product it does not count");
  check.Expect(!model.experts || !model.experts->shared_gate || !counts,
               {"recompute", "model.experts.shared_gate"},
               "recompute is selective_op, expected none, selective or full with model.experts.shared_gate, "
               "whose product it does not count");
}

void CheckPreNorm(const Scenario& scenario, Checker& check) {
  const std::vector<RecomputeModule>& modules = scenario.recompute_modules;
  check.Expect(scenario.model.pre_norm ||
                   std::find(modules.begin(), modules.end(), RecomputeModule::kLayerNorm) == modules.end(),
               {"recompute_modules", "model.pre_norm"},
               "recompute_modules has layernorm, expected others with model.pre_norm: false");
}

// Modules that share a norm, or take the same stream, are not run again one by one.
void CheckParallelResidual(const Scenario& scenario, Checker& check) {
  if (scenario.model.parallel_residual == ParallelResidual::kNone) return;
  const std::string_view word = WordOf(scenario.model.parallel_residual);
  check.Expect(!MayRecompute(scenario, Recompute::kSelectiveOp),
               {"recompute", "model.parallel_residual", "search.recompute"},
               "recompute is selective_op, expected none, full or selective with model.parallel_residual: {}",
               word);
  const std::vector<RecomputeModule>& modules = scenario.recompute_modules;
  check.Expect(std::find(modules.begin(), modules.end(), RecomputeModule::kLayerNorm) == modules.end(),
               {"recompute_modules", "model.parallel_residual"},
               "recompute_modules has layernorm, expected others with model.parallel_residual: {}", word);
}

// recompute_modules need recompute: selective (or a search with it), and a framework that has them.
void CheckWhereModulesCount(const Scenario& scenario, Checker& check) {
  check.Expect(MayRecompute(scenario, Recompute::kSelective), {"recompute_modules", "recompute"},
               "recompute_modules is given, expected recompute: selective, not {}",
               WordOf(scenario.recompute));
  check.Expect(
      scenario.framework != Framework::kMegatron && scenario.framework != Framework::kDeepspeed,
      {"recompute_modules", "framework"},
      "recompute_modules is given, expected framework windtunnel, megatron_core, pytorch or pytorch_compile, "
      "which have them, not {}",
      WordOf(scenario.framework));
}

void CheckRecomputedLayers(const Scenario& scenario, Checker& check) {
  const bool may = MayRecompute(scenario, Recompute::kFull);
  check.Expect(scenario.recompute_layers == 0 || may, {"recompute_layers", "recompute"},
               "recompute_layers is {}, expected recompute: full, not {}", scenario.recompute_layers,
               WordOf(scenario.recompute));
  check.Expect(scenario.recompute_every == 1 || may, {"recompute_every", "recompute"},
               "recompute_every is {}, expected recompute: full, not {}", scenario.recompute_every,
               WordOf(scenario.recompute));
}

// Each module must exist in the model, be listed once, and not be a part of another listed one.
void CheckRecomputeModules(const Scenario& scenario, Checker& check) {
  const std::vector<RecomputeModule>& modules = scenario.recompute_modules;
  if (modules.empty()) return;
  CheckWhereModulesCount(scenario, check);
  const auto count = [&](RecomputeModule module) {
    return std::count(modules.begin(), modules.end(), module);
  };
  const bool has_moe = count(RecomputeModule::kMoe) > 0;
  for (const RecomputeModule module : modules) {
    const std::string_view word = WordOf(module);
    check.Expect(HasModule(scenario.model, module), {"recompute_modules"},
                 "recompute_modules has {}, which no layer of the model has", word);
    check.Expect(count(module) == 1, {"recompute_modules"},
                 "recompute_modules has {} {} times, expected once", word, count(module));
    const bool is_part =
        module == RecomputeModule::kMoeActivation || module == RecomputeModule::kSharedExperts;
    check.Expect(!is_part || !has_moe, {"recompute_modules"},
                 "recompute_modules has moe and {}, which is a part of it", word);
  }
}

void CheckActivationOffload(const Scenario& scenario, Checker& check) {
  const bool offloads = scenario.activation_offload;
  const bool may =
      offloads || (scenario.search && std::count(scenario.search->activation_offload.begin(),
                                                 scenario.search->activation_offload.end(), true) > 0);
  check.Expect(scenario.activation_offload_layers == 0 || may,
               {"activation_offload_layers", "activation_offload"},
               "activation_offload_layers is {}, expected activation_offload: true",
               scenario.activation_offload_layers);
  if (!offloads) return;
  check.Expect(scenario.model.kind == ModelKind::kTransformer, {"activation_offload", "model.kind"},
               "activation_offload is true, expected false for kind: mlp, which has no blocks");
  const ParallelSpec& parallel = scenario.parallel;
  check.Expect(parallel.data.kind != DataParallelKind::kDp, {"activation_offload", "parallel.data.kind"},
               "activation_offload is true, expected false with parallel.data.kind: dp");
  check.Expect(!parallel.expert.overlap, {"activation_offload", "parallel.expert.overlap"},
               "activation_offload is true, expected false with parallel.expert.overlap, where blocks of two "
               "micro-batches take turns");
}

}  // namespace

void CheckRecomputation(const Scenario& scenario, Checker& check) {
  CheckPostNorm(scenario, check);
  CheckPreNorm(scenario, check);
  CheckLatentsOfExperts(scenario, check);
  CheckGates(scenario, check);
  CheckParallelResidual(scenario, check);
  CheckRecomputeModules(scenario, check);
  CheckRecomputedLayers(scenario, check);
  CheckActivationOffload(scenario, check);
}

}  // namespace windtunnel
