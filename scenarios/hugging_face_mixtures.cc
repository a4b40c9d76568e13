// Hugging Face's mixtures of experts.
#include <algorithm>

#include "scenarios/hugging_face_models.h"
#include "scenarios/rules.h"
#include "scenarios/scalars.h"

namespace windtunnel::hugging_face {

Result<ExpertsSpec> ReadExperts(const Config& config, std::string_view count_key, int64_t default_count,
                                int64_t default_top_k) {
  WT_ASSIGN_OR_RETURN(const int64_t count, config.Size(count_key, default_count, From(2, 65536)));
  WT_ASSIGN_OR_RETURN(const int64_t top_k, config.Size("num_experts_per_tok", default_top_k, From(1, 65536)));
  if (top_k == 1)
    return config.NotModelled(
        "num_experts_per_tok",
        "is 1, expected at least 2: transformers weighs an only expert by 1, Windtunnel by its share of all");
  if (top_k > count)
    return config.Wrong("num_experts_per_tok", "is {}, expected at most {} ({})", top_k, count_key, count);
  return ExpertsSpec{
      .count = static_cast<int>(count), .top_k = static_cast<int>(top_k), .capacity_factor = 0};
}

Status ReadExpertGroups(const Config& config, ExpertsSpec& experts) {
  const YamlNode* type = config.Get("model_type");
  const bool has_default = type != nullptr && type->text == "deepseek_v3";
  const auto fallback = [&](int64_t value) { return has_default ? std::optional(value) : std::nullopt; };
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> groups,
                      config.SizeOrNull("n_group", fallback(8), From(1, kMostExpertGroups)));
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> chosen,
                      config.SizeOrNull("topk_group", fallback(4), From(1, kMostExpertGroups)));
  if (groups.value_or(1) == 1) return Ok();
  experts.groups = static_cast<int>(*groups);
  experts.top_k_groups = static_cast<int>(chosen.value_or(*groups));
  return Ok();
}

namespace {

// Experts behind the first layers, and several shared experts as one.
Status ReadExpertsBehindOthers(const Config& config, ModelSpec& model) {
  WT_ASSIGN_OR_RETURN(model.experts, ReadExperts(config, "n_routed_experts", 0, 8));
  ExpertsSpec& experts = *model.experts;
  const int64_t dense_ffn = model.ffn;
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("moe_intermediate_size"));
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> shared,
                      config.SizeOrNull("n_shared_experts", std::nullopt, From(0, 65536)));
  experts.shared_ffn = shared.value_or(0) * model.ffn;
  WT_ASSIGN_OR_RETURN(experts.first_dense, config.Size("first_k_dense_replace", 0, From(0, 65536)));
  WT_ASSIGN_OR_RETURN(experts.every, config.Size("moe_layer_freq", 1));
  if (experts.every != 1)
    return config.NotModelled("moe_layer_freq", "is {}, expected 1: all layers behind the first have experts",
                              experts.every);
  if (model.MixesExperts()) experts.dense_ffn = dense_ffn;
  WT_RETURN_IF_ERROR(ReadExpertGroups(config, experts));
  return Ok();
}

// Checks that a list of the layers with experts, if there is one, names each `every`-th layer.
Status CheckLayersWithExperts(const Config& config, int64_t every, int64_t layers) {
  const YamlNode* listed = config.Get("moe_layers");
  if (listed == nullptr) return Ok();
  if (!listed->is_list())
    return config.Wrong("moe_layers", "is {}, expected a list of layers", Found(*listed));
  int64_t next = every - 1;
  for (const YamlNode& item : listed->items) {
    const Reading<int64_t> layer = ReadInteger(item);
    if (!layer || *layer != next)
      return config.NotModelled("moe_layers",
                                "has {} where interleave_moe_layer_step ({}) has {}, expected the same",
                                Found(item), every, next);
    next += every;
  }
  if (next >= layers) return Ok();
  return config.NotModelled("moe_layers",
                            "ends before layer {}, expected all of one in {} (interleave_moe_layer_step)",
                            next, every);
}

}  // namespace

Result<ModelSpec> ReadMixtral(const Config& config, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(
      ModelSpec model,
      ReadMistral(config, {.kv_heads = 8, .epsilon = 1e-5, .rope_theta = 1e6}, std::nullopt, seq_len));
  WT_ASSIGN_OR_RETURN(model.experts, ReadExperts(config, "num_local_experts", 8, 2));
  return model;
}

// Qwen3MoeConfig: experts in every layer, with a width of their own.
Result<ModelSpec> ReadQwen3Moe(const Config& config, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadQwen3(config, {.kv_heads = 4}, seq_len));
  const std::string_view count = config.Spelling("num_experts", "num_local_experts");
  WT_ASSIGN_OR_RETURN(model.experts, ReadExperts(config, count, 128, 8));
  const int64_t dense_ffn = model.ffn;
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("moe_intermediate_size", 768));
  WT_ASSIGN_OR_RETURN(model.experts->every, config.Size("decoder_sparse_step", 1));
  WT_ASSIGN_OR_RETURN(model.experts->first_dense, config.Leading("mlp_only_layers"));
  if (model.MixesExperts()) model.experts->dense_ffn = dense_ffn;
  WT_ASSIGN_OR_RETURN(const bool normalizes, config.Flag("norm_topk_prob", false));
  if (!normalizes)
    return config.NotModelled("norm_topk_prob",
                              "is false, expected true: the chosen experts' weights add up to 1");
  return model;
}

// OlmoeConfig: experts in every layer, and norms of all heads of queries and of keys together.
Result<ModelSpec> ReadOlmoe(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, {.epsilon = 1e-5}));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "OLMoE"));
  if (const YamlNode* clip = config.Get("clip_qkv"))
    return config.NotModelled("clip_qkv", "is {}, expected null: queries, keys and values are not clipped",
                              clip->text);
  model.qk_norm = true;
  model.qk_norm_over = QkNormSpan::kAllHeads;
  WT_ASSIGN_OR_RETURN(model.experts, ReadExperts(config, "num_experts", 64, 8));
  return model;
}

// GptOssConfig: every second layer sees all tokens, and all layers have experts. As in the presets, what
// changes no shape is not modelled: attention sinks (a logit per head without a token), the router's bias,
// the scaling of positions.
Result<ModelSpec> ReadGptOss(const Config& config, std::optional<int64_t> seq_len) {
  constexpr LlamaDefaults kDefaults{.kv_heads = 8, .head_dim = 64, .epsilon = 1e-5, .rope_theta = 150'000};
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, kDefaults));
  WT_ASSIGN_OR_RETURN(model.bias, config.Flag("attention_bias", true));
  model.qkv_bias = model.bias;
  WT_RETURN_IF_ERROR(ReadWindow(config, 128, 2, seq_len, model));
  const std::string_view count = config.Spelling("num_local_experts", "num_experts");
  WT_ASSIGN_OR_RETURN(model.experts, ReadExperts(config, count, 128, 4));
  model.experts->bias = true;
  WT_ASSIGN_OR_RETURN(const double limit, config.Number("swiglu_limit", kGateLimit, FromToBelow(0, 1e6)));
  if (limit != kGateLimit)
    return config.NotModelled("swiglu_limit", "is {}, expected {}: gpt-oss's activation has no other", limit,
                              kGateLimit);
  WT_ASSIGN_OR_RETURN(const double alpha, config.Number("swiglu_alpha", kGateSteepness, FromToBelow(0, 1e6)));
  if (static_cast<float>(alpha) != kGateSteepness)
    return config.NotModelled("swiglu_alpha", "is {}, expected {}: gpt-oss's activation has no other", alpha,
                              kGateSteepness);
  model.activation = ActivationKind::kClampedSwiglu;
  return model;
}

// DeepseekV2Config and DeepseekV3Config, and those of models made after them: latent attention, experts
// behind the first layers, several shared experts as one. What they say about routing (scores, scale,
// balance) changes no shape. Modules for multi-token prediction are left out.
Result<ModelSpec> ReadDeepseek(const Config& config) {
  // The classes' defaults are those of one model each, and of other ones in other versions.
  for (const char* key : {"n_routed_experts", "n_shared_experts", "first_k_dense_replace", "q_lora_rank"})
    if (!config.Has(key)) return config.Wrong(key, "is missing, expected a whole number, or null for none");
  WT_ASSIGN_OR_RETURN(const int64_t rotated, config.Size("qk_rope_head_dim"));
  WT_ASSIGN_OR_RETURN(const int64_t unrotated, config.Size("qk_nope_head_dim"));
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "DeepSeek"));
  model.head_dim = unrotated + rotated;  // its own head_dim is the rotated part
  model.kv_heads = 0;
  LatentAttentionSpec latent{.rope_dim = rotated};
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> q_rank, config.SizeOrNull("q_lora_rank", std::nullopt));
  latent.q_rank = q_rank.value_or(0);
  WT_ASSIGN_OR_RETURN(latent.kv_rank, config.Size("kv_lora_rank"));
  WT_ASSIGN_OR_RETURN(latent.value_dim, config.Size("v_head_dim"));
  model.latent_attention = latent;
  if (config.Get("n_routed_experts") == nullptr) return model;
  WT_RETURN_IF_ERROR(ReadExpertsBehindOthers(config, model));
  return model;
}

// Llama4TextConfig, a part of Llama4Config. A layer with experts also has a shared expert of the same width,
// and routes each token to one expert. A sequence may be no longer than what layers with positions see
// (attention_chunk_size). As in the presets, what changes no shape is not modelled: that every fourth layer
// has no positions, norms of heads without weights, and how tokens are scored.
Result<ModelSpec> ReadLlama4(const Config& config, std::optional<int64_t> seq_len) {
  constexpr LlamaDefaults kDefaults{.kv_heads = 8, .head_dim = 128, .epsilon = 1e-5, .rope_theta = 500'000};
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, kDefaults));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Llama 4"));
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> chunk, config.SizeOrNull("attention_chunk_size", 8192));
  if (chunk && seq_len.value_or(0) > *chunk)
    return config.NotModelled("attention_chunk_size",
                              "is {}, expected null or at least seq_len ({}): attention within chunks is not "
                              "supported",
                              *chunk, *seq_len);
  if (chunk) model.seq_len = std::min(model.seq_len, *chunk);
  WT_ASSIGN_OR_RETURN(const int64_t count, config.Size("num_local_experts", 16, From(2, 65536)));
  WT_ASSIGN_OR_RETURN(const int64_t top_k, config.Size("num_experts_per_tok", 1, From(1, count)));
  WT_ASSIGN_OR_RETURN(const int64_t every,
                      config.Size("interleave_moe_layer_step", 1, From(1, model.layers)));
  WT_RETURN_IF_ERROR(CheckLayersWithExperts(config, every, model.layers));
  model.experts = ExpertsSpec{.count = static_cast<int>(count),
                              .top_k = static_cast<int>(top_k),
                              .capacity_factor = 0,
                              .shared_ffn = model.ffn,
                              .every = every};
  if (!model.MixesExperts()) return model;
  WT_ASSIGN_OR_RETURN(model.experts->dense_ffn, config.Size("intermediate_size_mlp", 16384));
  return model;
}

// Glm4MoeConfig: GLM with DeepSeek's experts. Modules for multi-token prediction are left out.
Result<ModelSpec> ReadGlm4Moe(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model,
                      ReadLlamaDimensions(config, {.kv_heads = 8, .epsilon = 1e-5, .rotary_share = 0.5}));
  WT_ASSIGN_OR_RETURN(model.qkv_bias, config.Flag("attention_bias", false));
  WT_ASSIGN_OR_RETURN(model.qk_norm, config.Flag("use_qk_norm", false));
  WT_RETURN_IF_ERROR(ReadExpertsBehindOthers(config, model));
  return model;
}

}  // namespace windtunnel::hugging_face
