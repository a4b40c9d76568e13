// Hugging Face's models whose attention and MLP take the same stream (ModelSpec::parallel_residual).
#include <string>

#include "scenarios/hugging_face_models.h"
#include "scenarios/rules.h"

namespace windtunnel::hugging_face {
namespace {

// The columns of a head that are rotated: 0 for all of them.
int64_t RotatedColumns(const ModelSpec& model, double share) {
  const double head_dim = static_cast<double>(model.hidden / model.heads);
  return share < 1 ? static_cast<int64_t>(head_dim * share) : 0;
}

// The sizes that these configurations name as Llama's does, without the key and value heads.
Result<ModelSpec> ReadDimensions(const Config& config) {
  ModelSpec model;
  model.position = PositionKind::kRope;
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("num_hidden_layers"));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("hidden_size"));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("num_attention_heads"));
  if (model.hidden % model.heads != 0)
    return config.Wrong("hidden_size", "is {}, expected a multiple of num_attention_heads ({})", model.hidden,
                        model.heads);
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("max_position_embeddings", 2048));
  return model;
}

}  // namespace

// GPTNeoXConfig (GPT-NeoX 20B, Pythia): GPT-2's layers, rotary positions of a quarter of each head.
Result<ModelSpec> ReadGptNeox(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadDimensions(config));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("intermediate_size"));
  WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "hidden_act"));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_eps", 1e-5, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", false));
  WT_ASSIGN_OR_RETURN(const double base, config.Number("rotary_emb_base", 10'000, AtLeast(1)));
  WT_ASSIGN_OR_RETURN(model.rope_theta, config.RopeTheta(base));
  WT_ASSIGN_OR_RETURN(const double share, config.Number("rotary_pct", 0.25, MoreThanUpTo(0, 1)));
  WT_ASSIGN_OR_RETURN(const double rotated, config.RotaryShare(share));
  model.rope_dim = RotatedColumns(model, rotated);
  WT_ASSIGN_OR_RETURN(const bool has_bias, config.Flag("attention_bias", true));
  if (!has_bias)
    return config.NotModelled("attention_bias", "is false, expected true: the other layers have biases");
  WT_ASSIGN_OR_RETURN(const bool is_parallel, config.Flag("use_parallel_residual", true));
  if (is_parallel) model.parallel_residual = ParallelResidual::kTwoNorms;
  return model;
}

// PhiConfig (Phi-1 to Phi-2). The head's bias is left out.
Result<ModelSpec> ReadPhi(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadDimensions(config));
  WT_ASSIGN_OR_RETURN(model.kv_heads, config.Size("num_key_value_heads", 0));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("intermediate_size"));
  WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "hidden_act"));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_eps", 1e-5, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", false));
  WT_ASSIGN_OR_RETURN(model.rope_theta, config.RopeTheta());
  WT_ASSIGN_OR_RETURN(const double rotated, config.RotaryShare(0.5));
  model.rope_dim = RotatedColumns(model, rotated);
  WT_ASSIGN_OR_RETURN(const bool has_norms, config.Flag("qk_layernorm", false));
  if (has_norms)
    return config.NotModelled("qk_layernorm", "is true, expected false: norms of heads are RMS norms");
  model.parallel_residual = ParallelResidual::kOneNorm;
  return model;
}

// FalconConfig. Its norms' biases are left out where its linear layers have none.
Result<ModelSpec> ReadFalcon(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadDimensions(config));
  WT_ASSIGN_OR_RETURN(const bool is_new, config.Flag("new_decoder_architecture", false));
  WT_ASSIGN_OR_RETURN(const bool has_one, config.Flag("multi_query", true));
  const int64_t fallback = has_one && !is_new ? 1 : 0;
  WT_ASSIGN_OR_RETURN(model.kv_heads, config.Size("num_kv_heads", fallback));
  // (Only the new architecture reads that key.)
  if (!is_new) model.kv_heads = fallback;
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("ffn_hidden_size", 4 * model.hidden));
  WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "activation"));
  WT_ASSIGN_OR_RETURN(model.bias, config.Flag("bias", false));
  model.qkv_bias = model.bias;
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_epsilon", 1e-5, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", true));
  WT_ASSIGN_OR_RETURN(model.rope_theta, config.RopeTheta());
  WT_ASSIGN_OR_RETURN(const bool has_alibi, config.Flag("alibi", false));
  if (has_alibi)
    return config.NotModelled("alibi", "is true, expected false: attention has no biases by distance");
  WT_ASSIGN_OR_RETURN(const bool is_parallel, config.Flag("parallel_attn", true));
  WT_ASSIGN_OR_RETURN(const int64_t norms, config.Size("num_ln_in_parallel_attn", is_new ? 2 : 1));
  if (is_new || is_parallel)
    model.parallel_residual = is_new && norms == 2 ? ParallelResidual::kTwoNorms : ParallelResidual::kOneNorm;
  return model;
}

// CohereConfig (Command R, Aya): SwiGLU, no biases, not even of norms.
Result<ModelSpec> ReadCohere(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, {.ties_embeddings = true}));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Command R"));
  model.norm = NormKind::kLayerNorm;
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_eps", 1e-5, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(const bool has_norms, config.Flag("use_qk_norm", false));
  if (has_norms)
    return config.NotModelled("use_qk_norm", "is true, expected false: norms of heads are RMS norms");
  model.parallel_residual = ParallelResidual::kOneNorm;
  return model;
}

}  // namespace windtunnel::hugging_face
