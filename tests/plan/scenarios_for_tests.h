// Scenarios for tests, made in code and small enough to reason about.
#pragma once

#include "scenarios/scenario.h"

namespace windtunnel {

// Two layers, hidden 32, two heads, sequence 16, vocabulary 64, two sequences a micro-batch.
inline Scenario TinyGpt(int64_t ranks = 1) {
  Scenario s;
  s.name = "tiny-gpt";
  s.model.layers = 2;
  s.model.hidden = 32;
  s.model.heads = 2;
  s.model.kv_heads = 2;
  s.model.head_dim = 16;
  s.model.ffn = 128;
  s.model.vocab = 64;
  s.model.seq_len = 16;
  s.model.tie_embeddings = false;
  s.model.attention = AttentionKind::kEager;
  s.batch.micro = 2;
  s.parallel.data.kind = ranks > 1 ? DataParallelKind::kDdp : DataParallelKind::kNone;
  s.parallel.data.size = ranks;
  s.cluster.devices_per_node = ranks;
  return s;
}

// The same in Llama's style: rotary positions, RMS norm, SwiGLU, grouped queries, no biases.
inline Scenario TinyLlama(int64_t ranks = 1) {
  Scenario s = TinyGpt(ranks);
  s.name = "tiny-llama";
  s.model.heads = 4;
  s.model.kv_heads = 2;
  s.model.head_dim = 8;
  s.model.activation = ActivationKind::kSwiglu;
  s.model.norm = NormKind::kRmsNorm;
  s.model.position = PositionKind::kRope;
  s.model.bias = s.model.qkv_bias = false;
  s.model.attention = AttentionKind::kFlash;
  return s;
}

// In Qwen3's style: heads wider than hidden / heads, and norms of queries and keys.
inline Scenario TinyQwen3(int64_t ranks = 1) {
  Scenario s = TinyLlama(ranks);
  s.name = "tiny-qwen3";
  s.model.head_dim = 12;
  s.model.qk_norm = true;
  s.model.norm_epsilon = 1e-6;
  s.model.rope_theta = 1e6;
  return s;
}

// As GLM: half of each head is rotated.
inline Scenario RotatedInPart(Scenario s) {
  s.model.rope_dim = s.model.head_dim / 2;
  return s;
}

// In Gemma 3's style: GEGLU, and a norm after each half of a block.
inline Scenario TinyGemma3(int64_t ranks = 1) {
  Scenario s = TinyQwen3(ranks);
  s.name = "tiny-gemma3";
  s.model.activation = ActivationKind::kGeglu;
  s.model.post_norm = true;
  return s;
}

// In OLMo 2's style: norms behind each half of a block instead of before it, and of all heads together.
inline Scenario TinyOlmo(int64_t ranks = 1) {
  Scenario s = TinyQwen3(ranks);
  s.name = "tiny-olmo";
  s.model.qk_norm_over = QkNormSpan::kAllHeads;
  s.model.pre_norm = false;
  s.model.post_norm = true;
  return s;
}

// In GPT-NeoX's style: attention and MLP take the same stream, each behind a norm of its own.
inline Scenario TinyNeox(int64_t ranks = 1) {
  Scenario s = TinyGpt(ranks);
  s.name = "tiny-neox";
  s.model.position = PositionKind::kRope;
  s.model.rope_dim = 4;
  s.model.parallel_residual = ParallelResidual::kTwoNorms;
  return s;
}

// In Command R's style: attention and MLP have one norm.
inline Scenario TinyCommandR(int64_t ranks = 1) {
  Scenario s = TinyLlama(ranks);
  s.name = "tiny-command-r";
  s.model.norm = NormKind::kLayerNorm;
  s.model.tie_embeddings = true;
  s.model.parallel_residual = ParallelResidual::kOneNorm;
  return s;
}

inline Scenario TinyMlp(int64_t ranks = 1) {
  Scenario s;
  s.name = "tiny-mlp";
  s.model.kind = ModelKind::kMlp;
  s.model.widths = {10, 100, 10};
  s.model.activation = ActivationKind::kRelu;
  s.batch.micro = 20;
  s.parallel.data.kind = ranks > 1 ? DataParallelKind::kDdp : DataParallelKind::kNone;
  s.parallel.data.size = ranks;
  s.cluster.devices_per_node = ranks;
  return s;
}

// As torch.autocast: parameters stay in fp32.
inline Scenario Autocast(Scenario s, Precision compute = Precision::kBf16) {
  s.precision.compute = compute;
  return s;
}

// The scenario with DataParallel (torch.nn.DataParallel).
inline Scenario Dp(Scenario s) {
  s.parallel.data.kind = DataParallelKind::kDp;
  return s;
}

// A head of 12.6 MB beside one small block.
inline Scenario WithLargeHead(Scenario s) {
  s.model.vocab = 49'152;
  s.model.hidden = 64;
  s.model.layers = 1;
  s.model.seq_len = 8;
  s.batch.micro = 1;
  return s;
}

}  // namespace windtunnel
