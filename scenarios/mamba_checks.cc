#include "scenarios/mamba_checks.h"

#include <algorithm>
#include <string>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

const char* const kKey = "model.mamba";
const char* const kPattern = "model.mamba.pattern";

void CheckPattern(const ModelSpec& model, Checker& check) {
  const std::string& pattern = model.mamba->pattern;
  const size_t other = pattern.find_first_not_of("M*-E");
  constexpr size_t kMostLetters = 1000;
  check.Expect(pattern.size() <= kMostLetters, {kPattern},
               "{} has {} letters, expected at most {} (it is repeated over model.layers)", kPattern,
               pattern.size(), kMostLetters);
  check.Expect(!pattern.empty() && other == std::string::npos, {kPattern},
               "{} is '{}', expected letters M (Mamba-2), * (attention), - (an MLP) and E (experts)",
               kPattern, pattern);
  if (pattern.empty() || other != std::string::npos || pattern.size() > kMostLetters) return;
  check.Expect(model.MambaLayers() > 0, {kPattern, "model.layers"},
               "{} is '{}', expected M for one of the {} layers, or no model.mamba", kPattern, pattern,
               model.layers);
  const bool has_experts = pattern.find('E') != std::string::npos;
  check.Expect(!has_experts || model.experts, {kPattern, "model.experts"},
               "{} is '{}', expected model.experts with E", kPattern, pattern);
  check.Expect(model.LayersWithExperts() > 0 || !model.experts, {kPattern, "model.experts", "model.layers"},
               "{} is '{}', expected E for one of the {} layers, or no model.experts", kPattern, pattern,
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

void CheckModel(const ModelSpec& model, Checker& check) {
  const auto expect = [&](bool is_fine, const char* key, const char* expected) {
    check.Expect(is_fine, {kKey, key}, "model.mamba is given, expected {} with it", expected);
  };
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
         "model.experts.first_dense: 0 (model.mamba.pattern says which layers have experts)");
  expect(model.experts->every == unset.every, "model.experts.every",
         "model.experts.every: 1 (model.mamba.pattern says which layers have experts)");
}

void CheckParallel(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  const int64_t tensor = parallel.tensor.size, groups = scenario.model.mamba->groups;
  const int64_t context = parallel.context.size;
  check.Expect(Divides(tensor, groups), {"parallel.tensor.size", "model.mamba.groups"},
               "parallel.tensor.size is {}, expected a divisor of model.mamba.groups ({}), which its ranks "
               "share",
               tensor, groups);
  check.Expect(
      !Divides(tensor, groups) || Divides(context * tensor, groups),
      {"parallel.context.size", "model.mamba.groups"},
      "parallel.context.size is {}, expected context x tensor ({}) to divide model.mamba.groups ({}), "
      "which their ranks share",
      context, context * tensor, groups);
  check.Expect(
      context == 1 || SplitsStates(scenario.framework), {"parallel.context.size", kKey, "framework"},
      "parallel.context.size is {}, expected 1 with model.mamba and framework: {}, which cannot split "
      "sequences among state space models",
      context, WordOf(scenario.framework));
  check.Expect(!parallel.expert.overlap, {"parallel.expert.overlap", kKey},
               "parallel.expert.overlap is true, expected false with model.mamba");
  check.Expect(scenario.recompute != Recompute::kSelectiveOp, {"recompute", kKey},
               "recompute is selective_op, expected none, selective or full with model.mamba");
}

}  // namespace

void CheckMamba(const Scenario& scenario, Checker& check) {
  const ModelSpec& model = scenario.model;
  if (!model.mamba) return;
  CheckPattern(model, check);
  CheckSizes(*model.mamba, model, check);
  CheckModel(model, check);
  CheckParallel(scenario, check);
}

}  // namespace windtunnel
