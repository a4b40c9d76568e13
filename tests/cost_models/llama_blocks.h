// Layers of a Llama of 8 billion parameters on an H100, whose GEMMs share a power limit with other kernels.
#pragma once

#include "scenarios/scenario.h"

namespace windtunnel::test {

inline Scenario LlamaOnH100(Framework framework) {
  Scenario s;
  ModelSpec& model = s.model;
  model.kind = ModelKind::kTransformer;
  model.layers = 32;
  model.hidden = 4096;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.ffn = 14336;
  model.vocab = 32000;
  model.seq_len = 8192;
  model.activation = ActivationKind::kSwiglu;
  model.norm = NormKind::kRmsNorm;
  model.position = PositionKind::kRope;
  model.bias = model.qkv_bias = model.tie_embeddings = false;
  s.precision.param = s.precision.compute = Precision::kBf16;
  s.framework = framework;
  s.cluster.device = "h100-sxm-80g";
  return s;
}

}  // namespace windtunnel::test
