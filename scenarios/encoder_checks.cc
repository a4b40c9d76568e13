#include "scenarios/encoder_checks.h"

#include <algorithm>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

const char* const kKey = "model.encoder";

void CheckModel(const ModelSpec& model, Checker& check) {
  const auto expect = [&](bool is_fine, const char* key, const char* expected) {
    check.Expect(is_fine, {kKey, key}, "model.encoder is given, expected {} with it", expected);
  };
  expect(model.kind == ModelKind::kTransformer, "model.kind", "kind: transformer");
  expect(model.causal, "model.causal", "model.causal: true (of the decoder; encoders see all of the source)");
  expect(model.pre_norm, "model.pre_norm", "model.pre_norm: true");
  expect(!model.post_norm, "model.post_norm", "model.post_norm: false");
  expect(!model.qk_norm, "model.qk_norm", "model.qk_norm: false");
  expect(model.parallel_residual == ParallelResidual::kNone, "model.parallel_residual",
         "model.parallel_residual: none");
  expect(!model.latent_attention, "model.latent_attention", "no model.latent_attention");
  expect(!model.sliding_window, "model.sliding_window", "no model.sliding_window");
  expect(model.document_tokens == 0, "model.document_tokens", "model.document_tokens: 0");
  expect(!model.experts, "model.experts", "no model.experts");
  expect(!model.mtp, "model.mtp", "no model.mtp");
  expect(!model.lora, "model.lora", "no model.lora");
}

void CheckParallel(const ParallelSpec& parallel, Checker& check) {
  const auto expect_one = [&](const char* key, int64_t size) {
    check.Expect(size == 1, {key, kKey}, "{} is {}, expected 1 with model.encoder", key, size);
  };
  expect_one("parallel.pipeline.size", parallel.pipeline.size);
  expect_one("parallel.context.size", parallel.context.size);
  check.Expect(parallel.data.kind != DataParallelKind::kDp, {"parallel.data.kind", kKey},
               "parallel.data.kind is dp, expected ddp with model.encoder: dp scatters one tensor of inputs");
}

void CheckRecompute(const Scenario& scenario, Checker& check) {
  check.Expect(scenario.recompute != Recompute::kSelectiveOp, {"recompute", kKey},
               "recompute is selective_op, expected none, selective or full with model.encoder");
  const auto& modules = scenario.recompute_modules;
  check.Expect(std::find(modules.begin(), modules.end(), RecomputeModule::kLayerNorm) == modules.end(),
               {"recompute_modules", kKey},
               "recompute_modules has layernorm, expected core_attn and mlp only with model.encoder");
  check.Expect(
      !scenario.activation_offload, {"activation_offload", kKey},
      "activation_offload is given, expected none with model.encoder, whose output all blocks of the "
      "decoder read");
}

void CheckTokens(const Scenario& scenario, Checker& check) {
  const int64_t tensor = scenario.parallel.tensor.size;
  const int64_t tokens = scenario.batch.micro * scenario.model.encoder->seq_len;
  check.Expect(!scenario.parallel.tensor.sequence || Divides(tensor, tokens),
               {"parallel.tensor.sequence", "model.encoder.seq_len"},
               "parallel.tensor.sequence is true, expected tensor.size ({}) to divide the {} tokens of a "
               "micro-batch's sources (batch.micro {} x model.encoder.seq_len {})",
               tensor, tokens, scenario.batch.micro, scenario.model.encoder->seq_len);
}

}  // namespace

void CheckEncoder(const Scenario& scenario, Checker& check) {
  if (!scenario.model.encoder) return;
  CheckModel(scenario.model, check);
  CheckParallel(scenario.parallel, check);
  CheckRecompute(scenario, check);
  CheckTokens(scenario, check);
}

void CheckRelativePositions(const Scenario& scenario, Checker& check) {
  const ModelSpec& model = scenario.model;
  if (model.kind != ModelKind::kTransformer || model.position != PositionKind::kRelative) return;
  const char* const key = "model.position";
  const auto expect = [&](bool is_fine, const char* other, const char* expected) {
    check.Expect(is_fine, {key, other}, "model.position is relative, expected {} with it", expected);
  };
  expect(model.attention == AttentionKind::kEager, "model.attention",
         "model.attention: eager, which adds biases to scores,");
  expect(!model.sliding_window, "model.sliding_window", "no model.sliding_window");
  expect(!model.lora, "model.lora", "no model.lora");
  expect(scenario.parallel.pipeline.size == 1, "parallel.pipeline.size",
         "parallel.pipeline.size: 1 (all blocks share one table)");
  expect(scenario.parallel.context.size == 1, "parallel.context.size", "parallel.context.size: 1");
}

}  // namespace windtunnel
