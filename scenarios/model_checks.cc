#include "scenarios/model_checks.h"

#include <algorithm>

#include "scenarios/derived.h"
#include "scenarios/layer_pattern.h"
#include "scenarios/model_spec.h"

namespace windtunnel {
namespace {

void CheckLatentAttention(const ModelSpec& model, Checker& check) {
  if (!model.latent_attention) return;
  const LatentAttentionSpec& latent = *model.latent_attention;
  const char* rope_dim = "model.latent_attention.rope_dim";
  check.Expect(model.position == PositionKind::kRope, {"model.position", "model.latent_attention"},
               "model.position is {}, expected rope with model.latent_attention", WordOf(model.position));
  check.Expect(latent.rope_dim % 2 == 0, {rope_dim}, "{} is {}, expected an even number", rope_dim,
               latent.rope_dim);
  check.Expect(latent.rope_dim < model.head_dim, {rope_dim, "model.head_dim"},
               "{} is {}, expected less than model.head_dim ({}), of which it is a part", rope_dim,
               latent.rope_dim, model.head_dim);
  check.Expect(
      model.kv_heads == model.heads, {"model.kv_heads"},
      "model.kv_heads is {}, expected model.heads ({}) with model.latent_attention: each head has keys "
      "of its own",
      model.kv_heads, model.heads);
  check.Expect(!model.qkv_bias, {"model.qkv_bias", "model.bias", "model.norm"},
               "model.qkv_bias is true, expected false with model.latent_attention");
  check.Expect(!model.qk_norm, {"model.qk_norm"},
               "model.qk_norm is true, expected false with model.latent_attention, which normalises latents");
}

void CheckAttentionGate(const ModelSpec& model, Checker& check) {
  if (!model.attention_gate) return;
  const char* key = "model.attention_gate";
  check.Expect(!model.latent_attention, {key, "model.latent_attention"},
               "{} is true, expected false with model.latent_attention", key);
  check.Expect(!model.encoder, {key, "model.encoder"}, "{} is true, expected false with model.encoder", key);
}

void CheckSlidingWindow(const ModelSpec& model, Checker& check) {
  if (!model.sliding_window) return;
  const int64_t full = model.sliding_window->full_every;
  check.Expect(full != 1, {"model.sliding_window.full_every"},
               "model.sliding_window.full_every is 1, which leaves no layer with a window; expected at least "
               "2, or no model.sliding_window");
  check.Expect(full <= model.layers, {"model.sliding_window.full_every", "model.layers"},
               "model.sliding_window.full_every is {}, expected at most model.layers ({}), or 0: no layer "
               "sees all tokens",
               full, model.layers);
}

void CheckDocuments(const ModelSpec& model, Checker& check) {
  if (model.document_tokens == 0) return;
  check.Expect(model.seq_len % model.document_tokens == 0, {"model.document_tokens", "model.seq_len"},
               "model.document_tokens is {}, expected a divisor of model.seq_len ({})", model.document_tokens,
               model.seq_len);
  check.Expect(
      model.attention == AttentionKind::kFlash, {"model.attention", "model.document_tokens"},
      "model.attention is eager, expected flash with model.document_tokens: eager attention computes "
      "whole sequences and masks them");
  check.Expect(model.dropout == 0, {"model.dropout", "model.document_tokens"},
               "model.dropout is {}, expected 0 with model.document_tokens", model.dropout);
}

// The letters of a module's layer: an MLP or experts with a mixer before them, or one of these alone.
void CheckLayerOfModules(const ModelSpec& model, Checker& check) {
  const char* const key = "model.mtp.pattern";
  const std::string& pattern = model.mtp->pattern;
  if (pattern.empty()) return;
  check.Expect(model.has_pattern(), {key, "model.mamba"},
               "{} is '{}', expected model.mamba or model.delta_net with it", key, pattern);
  const char* const letters = model.delta_net ? "G*-E" : "M*-E";
  const bool is_layer =
      pattern.find_first_not_of(letters) == std::string::npos && LayersInPattern(pattern) == 1;
  check.Expect(
      is_layer, {key},
      "{} is '{}', expected the letters of one layer: {} or *, with or without - or E behind it, or - "
      "or E alone",
      key, pattern, letters[0]);
  check.Expect(pattern.find('E') == std::string::npos || model.experts, {key, "model.experts"},
               "{} is '{}', expected model.experts with E", key, pattern);
}

void CheckTokenPrediction(const ModelSpec& model, Checker& check) {
  if (!model.mtp) return;
  CheckLayerOfModules(model, check);
  check.Expect(model.position == PositionKind::kRope || model.position == PositionKind::kNone,
               {"model.position", "model.mtp"}, "model.position is {}, expected rope or none with model.mtp",
               WordOf(model.position));
  check.Expect(model.mtp->layers < model.seq_len, {"model.mtp.layers", "model.seq_len"},
               "model.mtp.layers is {}, expected less than model.seq_len ({}): the last one has no token to "
               "predict",
               model.mtp->layers, model.seq_len);
}

// All groups have equally many experts, and the groups that a token may go to have enough for its top_k.
void CheckExpertGroups(const ExpertsSpec& experts, Checker& check) {
  const int groups = experts.groups, chosen = experts.top_k_groups;
  check.Expect(groups == 0 || experts.count % groups == 0, {"model.experts.groups"},
               "model.experts.groups is {}, expected a divisor of count ({})", groups, experts.count);
  check.Expect(chosen <= groups, {"model.experts.top_k_groups"},
               "model.experts.top_k_groups is {}, expected at most groups ({})", chosen, groups);
  const int each = groups > 0 ? experts.count / groups : 0;
  check.Expect(
      chosen == 0 || int64_t{chosen} * each >= experts.top_k,
      {"model.experts.top_k_groups", "model.experts.top_k"},
      "model.experts.top_k_groups is {}, expected groups enough for the {} experts of a token, {} in "
      "each",
      chosen, experts.top_k, each);
}

void CheckRotatedColumns(const ModelSpec& model, Checker& check) {
  if (model.rope_dim == 0) return;
  const char* const key = "model.rope_dim";
  check.Expect(model.position == PositionKind::kRope, {key, "model.position"},
               "{} is {}, expected it left out for position: learned", key, model.rope_dim);
  check.Expect(!model.latent_attention, {key, "model.latent_attention"},
               "{} is {}, expected model.latent_attention.rope_dim instead", key, model.rope_dim);
  check.Expect(model.rope_dim % 2 == 0 && model.rope_dim <= model.head_dim, {key, "model.head_dim"},
               "{} is {}, expected an even number of up to model.head_dim ({})", key, model.rope_dim,
               model.head_dim);
}

void CheckParallelResidual(const ModelSpec& model, Checker& check) {
  if (model.parallel_residual == ParallelResidual::kNone) return;
  const auto expect_none = [&](bool is_fine, const char* key) {
    check.Expect(is_fine, {"model.parallel_residual", key},
                 "model.parallel_residual is {}, expected none with {}", WordOf(model.parallel_residual),
                 key);
  };
  expect_none(!model.post_norm, "model.post_norm");
  expect_none(!model.experts, "model.experts");
  expect_none(!model.latent_attention, "model.latent_attention");
  expect_none(!model.mtp, "model.mtp");
}

void CheckResidualFromNorm(const ModelSpec& model, Checker& check) {
  if (!model.residual_from_norm) return;
  const auto expect = [&](bool is_fine, const char* key, const char* expected) {
    check.Expect(is_fine, {"model.residual_from_norm", key},
                 "model.residual_from_norm is true, expected {} with it", expected);
  };
  expect(model.pre_norm, "model.pre_norm", "model.pre_norm: true");
  expect(!model.post_norm, "model.post_norm", "model.post_norm: false");
  expect(model.parallel_residual == ParallelResidual::kNone, "model.parallel_residual",
         "model.parallel_residual: none");
  expect(!model.mtp, "model.mtp", "no model.mtp");
}

void CheckMasks(const ModelSpec& model, Checker& check) {
  check.Expect(!model.causal || model.masked_share == ModelSpec().masked_share,
               {"model.masked_share", "model.causal"},
               "model.masked_share is {}, expected model.causal: false with it", model.masked_share);
  if (model.causal) return;
  check.Expect(model.vocab > 1, {"model.vocab", "model.causal"},
               "model.vocab is {}, expected at least 2 with model.causal: false: the last token is the mask",
               model.vocab);
  check.Expect(!model.sliding_window, {"model.causal", "model.sliding_window"},
               "model.causal is false, expected true with model.sliding_window");
  check.Expect(!model.mtp, {"model.causal", "model.mtp"},
               "model.causal is false, expected true with model.mtp, which predicts the tokens that follow");
}

void CheckNorms(const ModelSpec& model, Checker& check) {
  check.Expect(model.pre_norm || model.post_norm, {"model.pre_norm", "model.post_norm"},
               "model.pre_norm is false, expected model.post_norm: true then: a block without norms does not "
               "train");
  check.Expect(model.qk_norm || model.qk_norm_over == QkNormSpan::kHead,
               {"model.qk_norm_over", "model.qk_norm"},
               "model.qk_norm_over is {}, expected model.qk_norm: true with it", WordOf(model.qk_norm_over));
}

// Whether no dimension that others follow from is missing.
bool CheckDimensions(const ModelSpec& model, Checker& check) {
  struct Dimension {
    const char* path;
    int64_t value;
  };
  const Dimension dimensions[] = {{"model.layers", model.layers},
                                  {"model.hidden", model.hidden},
                                  {"model.heads", model.heads},
                                  {"model.vocab", model.vocab},
                                  {"model.seq_len", model.seq_len}};
  for (const Dimension& dimension : dimensions) {
    check.Expect(dimension.value > 0, {dimension.path},
                 "{} is missing, expected a value, model.preset or model.config", dimension.path);
    if (dimension.value <= 0) return false;
  }
  return true;
}

void CheckHeads(const ModelSpec& model, Checker& check) {
  check.Expect(model.head_dim > 0, {"model.heads", "model.hidden"},
               "model.heads is {}, expected a divisor of model.hidden ({}), or model.head_dim", model.heads,
               model.hidden);
  check.Expect(Divides(model.kv_heads, model.heads), {"model.kv_heads", "model.heads"},
               "model.kv_heads is {}, expected a divisor of model.heads ({})", model.kv_heads, model.heads);
  bool rotates = model.position == PositionKind::kRope;
  check.Expect(!rotates || model.head_dim % 2 == 0, {"model.head_dim", "model.heads", "model.hidden"},
               "the head dimension is {}, expected an even one for position: rope", model.head_dim);
}

void CheckExperts(const ModelSpec& model, Checker& check) {
  if (!model.experts) return;
  const ExpertsSpec& experts = *model.experts;
  check.Expect(experts.latent == 0 || !experts.bias, {"model.experts.latent", "model.experts.bias"},
               "model.experts.latent is {}, expected model.experts.bias: false with it: its projections have "
               "no biases",
               experts.latent);
  check.Expect(experts.top_k <= experts.count, {"model.experts.top_k", "model.experts.count"},
               "model.experts.top_k is {}, expected at most count ({})", experts.top_k, experts.count);
  check.Expect(!experts.shared_gate || experts.shared_ffn > 0,
               {"model.experts.shared_gate", "model.experts.shared_ffn"},
               "model.experts.shared_gate is true, expected false without model.experts.shared_ffn");
  CheckExpertGroups(experts, check);
  check.Expect(
      model.has_pattern() || model.LayersWithExperts() > 0,
      {"model.experts.first_dense", "model.experts.every", "model.layers"},
      "no layer has experts: model.experts.first_dense is {} and every {}, expected one of the {} layers "
      "behind the first {} to be a multiple of {}",
      experts.first_dense, experts.every, model.layers, experts.first_dense, experts.every);
  check.Expect(experts.dense_ffn == 0 || model.LayersWithExperts() < model.layers || model.MixesExperts(),
               {"model.experts.dense_ffn"},
               "model.experts.dense_ffn is {}, expected it only where some layers have no experts "
               "(model.experts.first_dense, every)",
               experts.dense_ffn);
  const double most = static_cast<double>(experts.count) / static_cast<double>(experts.top_k);
  check.Expect(
      experts.imbalance <= std::max(most, 1.0), {"model.experts.imbalance", "model.experts.count"},
      "model.experts.imbalance is {}, expected at most count / top_k ({}), where every token goes to "
      "the busiest expert",
      experts.imbalance, most);
}

}  // namespace

void CheckTransformer(const ModelSpec& model, Checker& check) {
  if (!CheckDimensions(model, check)) return;
  CheckHeads(model, check);
  CheckRotatedColumns(model, check);
  check.Expect(model.widths.empty(), {"model.widths"},
               "model.widths is for kind: mlp, expected layers, hidden, ...");
  CheckLatentAttention(model, check);
  CheckAttentionGate(model, check);
  CheckSlidingWindow(model, check);
  CheckDocuments(model, check);
  CheckTokenPrediction(model, check);
  CheckParallelResidual(model, check);
  CheckResidualFromNorm(model, check);
  CheckMasks(model, check);
  CheckNorms(model, check);
  CheckExperts(model, check);
}

void CheckMlp(const ModelSpec& model, Checker& check) {
  for (const char* key : {"layers",
                          "hidden",
                          "heads",
                          "kv_heads",
                          "head_dim",
                          "ffn",
                          "vocab",
                          "seq_len",
                          "norm",
                          "norm_epsilon",
                          "position",
                          "rope_theta",
                          "rope_dim",
                          "qkv_bias",
                          "qk_norm",
                          "qk_norm_over",
                          "attention_gate",
                          "pre_norm",
                          "post_norm",
                          "residual_from_norm",
                          "parallel_residual",
                          "tie_embeddings",
                          "attention",
                          "latent_attention",
                          "sliding_window",
                          "causal",
                          "masked_share",
                          "document_tokens",
                          "encoder",
                          "mamba",
                          "delta_net",
                          "experts",
                          "mtp",
                          "lora",
                          "flash_kernels"}) {
    std::string path = std::string("model.") + key;
    check.Expect(!check.Gives(path), {path}, "{} is for kind: transformer, expected model.widths only", path);
  }
  check.Expect(model.widths.size() >= 2, {"model.widths"},
               "model.widths has {} entries, expected at least 2 (input and output)", model.widths.size());
  check.Expect(!IsGated(model.activation), {"model.activation"},
               "model.activation is '{}', expected gelu, relu or squared_relu for kind: mlp",
               WordOf(model.activation));
}

}  // namespace windtunnel
