#include "scenarios/pattern_checks.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

std::string KeyOf(const ModelSpec& model, const char* key) {
  return std::string(model.pattern_block()) + "." + key;
}

void CheckPattern(const ModelSpec& model, Checker& check) {
  const std::string key = KeyOf(model, "pattern"), block = model.pattern_block();
  const std::string& pattern = model.pattern();
  const bool has_states = model.mamba.has_value();
  const size_t other = pattern.find_first_not_of(has_states ? "M*-E" : "G*-E");
  constexpr size_t kMostLetters = 1000;
  check.Expect(pattern.size() <= kMostLetters, {key},
               "{} has {} letters, expected at most {} (it is repeated over model.layers)", key,
               pattern.size(), kMostLetters);
  check.Expect(!pattern.empty() && other == std::string::npos, {key},
               "{} is '{}', expected letters {}, * (attention), - (an MLP) and E (experts)", key, pattern,
               has_states ? "M (Mamba-2)" : "G (a gated delta network)");
  if (pattern.empty() || other != std::string::npos || pattern.size() > kMostLetters) return;
  check.Expect(model.RecurrentLayers() > 0, {key, "model.layers"},
               "{} is '{}', expected {} for one of the {} layers, or no {}", key, pattern,
               has_states ? 'M' : 'G', model.layers, block);
  const bool has_experts = pattern.find('E') != std::string::npos;
  check.Expect(!has_experts || model.experts, {key, "model.experts"},
               "{} is '{}', expected model.experts with E", key, pattern);
  check.Expect(model.LayersWithExperts() > 0 || !model.experts, {key, "model.experts", "model.layers"},
               "{} is '{}', expected E for one of the {} layers, or no model.experts", key, pattern,
               model.layers);
}

void CheckSizes(const MambaSpec& mamba, const ModelSpec& model, Checker& check) {
  check.Expect(mamba.heads > 0, {"model.mamba.heads", "model.mamba.head_dim", "model.hidden"},
               "model.mamba.head_dim is {}, expected at most twice model.hidden ({}), or model.mamba.heads",
               mamba.head_dim, model.hidden);
  check.Expect(Divides(mamba.groups, mamba.heads), {"model.mamba.groups", "model.mamba.heads"},
               "model.mamba.groups is {}, expected a divisor of model.mamba.heads ({})", mamba.groups,
               mamba.heads);
}

void CheckSizes(const DeltaNetSpec& net, Checker& check) {
  check.Expect(Divides(net.key_heads, net.value_heads),
               {"model.delta_net.key_heads", "model.delta_net.value_heads"},
               "model.delta_net.key_heads is {}, expected a divisor of model.delta_net.value_heads ({})",
               net.key_heads, net.value_heads);
}

void CheckModel(const ModelSpec& model, Checker& check) {
  const std::string block = model.pattern_block(), pattern = KeyOf(model, "pattern");
  const auto expect = [&](bool is_fine, const char* key, std::string_view expected) {
    check.Expect(is_fine, {block, key}, "{} is given, expected {} with it", block, expected);
  };
  expect(!model.mamba || !model.delta_net, "model.mamba", "no model.mamba");
  expect(model.kind == ModelKind::kTransformer, "model.kind", "kind: transformer");
  expect(model.causal, "model.causal", "model.causal: true");
  expect(model.pre_norm, "model.pre_norm", "model.pre_norm: true");
  expect(!model.post_norm, "model.post_norm", "model.post_norm: false");
  expect(!model.residual_from_norm, "model.residual_from_norm", "model.residual_from_norm: false");
  expect(model.parallel_residual == ParallelResidual::kNone, "model.parallel_residual",
         "model.parallel_residual: none");
  expect(model.position != PositionKind::kRelative, "model.position", "another model.position than relative");
  expect(!model.latent_attention, "model.latent_attention", "no model.latent_attention");
  expect(!model.sliding_window, "model.sliding_window", "no model.sliding_window");
  expect(model.document_tokens == 0, "model.document_tokens",
         "model.document_tokens: 0 (states would go on into the next document)");
  expect(!model.encoder, "model.encoder", "no model.encoder");
  expect(!model.lora, "model.lora", "no model.lora");
  if (!model.experts) return;
  const ExpertsSpec unset;
  expect(model.experts->first_dense == unset.first_dense, "model.experts.first_dense",
         fmt::format("model.experts.first_dense: 0 ({} says which layers have experts)", pattern));
  expect(model.experts->every == unset.every, "model.experts.every",
         fmt::format("model.experts.every: 1 ({} says which layers have experts)", pattern));
}

void CheckParallel(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  const ModelSpec& model = scenario.model;
  const std::string block = model.pattern_block(), key = KeyOf(model, model.mamba ? "groups" : "key_heads");
  const int64_t tensor = parallel.tensor.size, context = parallel.context.size;
  const int64_t groups = model.mamba ? model.mamba->groups : model.delta_net->key_heads;
  check.Expect(Divides(tensor, groups), {"parallel.tensor.size", key},
               "parallel.tensor.size is {}, expected a divisor of {} ({}), which its ranks share", tensor,
               key, groups);
  check.Expect(!Divides(tensor, groups) || Divides(context * tensor, groups), {"parallel.context.size", key},
               "parallel.context.size is {}, expected context x tensor ({}) to divide {} ({}), which their "
               "ranks share",
               context, context * tensor, key, groups);
  check.Expect(
      context == 1 || SplitsStates(scenario.framework), {"parallel.context.size", block, "framework"},
      "parallel.context.size is {}, expected 1 with {} and framework: {}, which cannot split sequences among "
      "{}",
      context, block, WordOf(scenario.framework),
      model.mamba ? "state space models" : "gated delta networks");
  check.Expect(!parallel.expert.overlap, {"parallel.expert.overlap", block},
               "parallel.expert.overlap is true, expected false with {}", block);
  check.Expect(scenario.recompute != Recompute::kSelectiveOp, {"recompute", block},
               "recompute is selective_op, expected none, selective or full with {}", block);
}

}  // namespace

void CheckPatterns(const Scenario& scenario, Checker& check) {
  const ModelSpec& model = scenario.model;
  if (!model.has_pattern()) return;
  CheckPattern(model, check);
  if (model.mamba) CheckSizes(*model.mamba, model, check);
  if (model.delta_net) CheckSizes(*model.delta_net, check);
  CheckModel(model, check);
  CheckParallel(scenario, check);
}

}  // namespace windtunnel
