#include "runtime/checkpoint/hugging_face_names.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace windtunnel {
namespace {

using Mapping = HuggingFaceMapping;
using Shape = std::vector<int64_t>;

// The models of transformers that compute what a scenario's model does. All but GPT-2 are variants of Llama:
// Mixtral has experts in place of every MLP, Mistral a window, Qwen2 biases of queries, keys and values,
// Qwen3 norms of queries' and keys' heads; OLMo 2 norms of all of a token's heads together, and behind
// attention and the MLP instead of before them, and OLMo 3 windows in some layers, too.
enum class Family { kGpt2, kLlama, kMistral, kMixtral, kOlmo2, kOlmo3, kQwen2, kQwen3, kQwen3Moe };

bool IsLlama(const ModelSpec& model) {
  return model.norm == NormKind::kRmsNorm && model.position == PositionKind::kRope &&
         (model.activation == ActivationKind::kSwiglu || model.activation == ActivationKind::kGeglu);
}

bool IsOlmo(const ModelSpec& model) {
  return IsLlama(model) && !model.pre_norm && model.qk_norm && model.qk_norm_over == QkNormSpan::kAllHeads &&
         !model.bias && !model.qkv_bias && !model.experts && model.rope_dim == 0;
}

// These models' routers take the softmax over all experts and divide the chosen experts' weights by their
// sum, which equals the softmax over the chosen ones. With top_k 1 that weight is always 1, while this
// project keeps the softmax over all experts.
Result<Family> FamilyOfExperts(const ModelSpec& model) {
  const auto differs = [](const char* what) {
    return Unsupported(
        "of mixtures of experts Hugging Face's names are known of Mixtral and Qwen3, and this model is "
        "neither: {}",
        what);
  };
  if (!IsLlama(model))
    return differs("expected model.norm rmsnorm, position rope and activation swiglu or geglu");
  if (model.bias) return differs("model.bias is true, expected false");
  if (model.qkv_bias) return differs("model.qkv_bias is true, expected false");
  if (model.experts->bias) return differs("model.experts.bias is true, expected false");
  if (model.experts->shared_ffn > 0) return differs("model.experts.shared_ffn is given");
  if (model.experts->latent > 0) return differs("model.experts.latent is given");
  if (model.MixesExperts()) return differs("some layers have no experts (model.experts.first_dense, every)");
  if (model.experts->top_k_groups > 0 && model.experts->top_k_groups < model.experts->groups)
    return differs("tokens go to some groups of experts (model.experts.top_k_groups)");
  if (model.experts->top_k == 1) return differs("model.experts.top_k is 1, expected at least 2");
  return model.qk_norm ? Family::kQwen3Moe : Family::kMixtral;
}

Result<Family> FamilyOf(const ModelSpec& model) {
  if (model.kind != ModelKind::kTransformer)
    return Unsupported("Hugging Face's names are known of GPT-2, Llama, Mixtral and Qwen, not of an MLP");
  if (model.encoder) return Unsupported("Hugging Face's names are not known of models with model.encoder");
  if (model.has_pattern())
    return Unsupported("Hugging Face's names are not known of models with {}", model.pattern_block());
  if (model.attention_gate)
    return Unsupported("Hugging Face's names are not known of models with model.attention_gate");
  if (model.mtp) return Unsupported("Hugging Face's names are not known of models with model.mtp");
  if (model.latent_attention)
    return Unsupported("Hugging Face's names are not known of models with model.latent_attention");
  if (model.parallel_residual != ParallelResidual::kNone)
    return Unsupported("Hugging Face's names are not known of models with model.parallel_residual");
  if (!model.causal || model.residual_from_norm)
    return Unsupported(
        "Hugging Face's names are not known of models with model.causal: false or model.residual_from_norm");
  if (IsOlmo(model)) return model.HasWindows() ? Family::kOlmo3 : Family::kOlmo2;
  if (model.post_norm)
    return Unsupported(
        "Hugging Face's names are not known of models with model.post_norm, except OLMo's (pre_norm false, "
        "qk_norm_over all_heads, without biases and experts)");
  if (model.qk_norm_over != QkNormSpan::kHead)
    return Unsupported(
        "Hugging Face's names are not known of models with model.qk_norm_over all_heads and model.pre_norm");
  if (model.rope_dim > 0)
    return Unsupported("Hugging Face's names are not known of models with model.rope_dim");
  if (model.HasWindows() && model.sliding_window->full_every > 0)
    return Unsupported(
        "Hugging Face's names are not known of models some layers of which see all tokens "
        "(model.sliding_window.full_every)");
  if (model.experts) return FamilyOfExperts(model);
  if (IsLlama(model)) {
    if (model.qk_norm && !model.bias && !model.qkv_bias) return Family::kQwen3;
    if (!model.qk_norm && model.qkv_bias && !model.bias) return Family::kQwen2;
    if (model.HasWindows() && !model.qk_norm && !model.qkv_bias && !model.bias) return Family::kMistral;
    if (!model.HasWindows() && !model.qk_norm && model.qkv_bias == model.bias) return Family::kLlama;
    return Unsupported(
        "Hugging Face's names are known of Llama, Mistral (model.sliding_window without biases), Qwen2 "
        "(qkv_bias without bias) and Qwen3 (qk_norm without biases); this model is none of them");
  }
  const bool is_gpt2 = model.norm == NormKind::kLayerNorm && model.position == PositionKind::kLearned &&
                       !IsGated(model.activation) && model.kv_heads == model.heads &&
                       model.heads * model.head_dim == model.hidden && model.qkv_bias == model.bias &&
                       !model.qk_norm && !model.HasWindows();
  if (is_gpt2) return Family::kGpt2;
  return Unsupported(
      "Hugging Face's names are known of GPT-2 (model.norm layernorm, position learned, activation gelu, "
      "relu or squared_relu, kv_heads as heads, head_dim hidden / heads) and of Llama (rmsnorm, rope, swiglu "
      "or "
      "geglu); this model is neither");
}

class Mappings {
 public:
  Mappings(const ModelSpec& model, Family family) : model_(model), family_(family) {}

  std::vector<Mapping> Make() {
    if (family_ == Family::kGpt2) AddGpt2();
    else AddLlama();
    return std::move(mappings_);
  }

 private:
  void Add(const std::string& tensor, Shape shape, const std::string& name, bool transposed = false) {
    const int64_t rows = shape[0];
    mappings_.push_back({"model." + tensor, std::move(shape), {{name, 0, rows, transposed}}});
  }
  void AddNorm(const std::string& tensor, const std::string& name) {
    Add(tensor + ".weight", {model_.hidden}, name + ".weight");
    if (model_.bias && model_.norm == NormKind::kLayerNorm)
      Add(tensor + ".bias", {model_.hidden}, name + ".bias");
  }
  // A linear layer whose outputs are, one after the other, those of transformers' layers `names` with `rows`
  // outputs each.
  void AddLinear(const std::string& tensor, int64_t in, const std::vector<std::string>& names,
                 const std::vector<int64_t>& rows, bool transposed, bool has_bias) {
    int64_t out = 0;
    Mapping weight{"model." + tensor + ".weight", {}, {}}, bias{"model." + tensor + ".bias", {}, {}};
    for (size_t i = 0; i < names.size(); ++i) {
      weight.parts.push_back({names[i] + ".weight", out, rows[i], transposed});
      bias.parts.push_back({names[i] + ".bias", out, rows[i]});
      out += rows[i];
    }
    weight.shape = {out, in};
    bias.shape = {out};
    mappings_.push_back(std::move(weight));
    if (has_bias) mappings_.push_back(std::move(bias));
  }

  void AddGpt2() {
    const int64_t hidden = model_.hidden;
    const std::string root = "transformer.";
    Add("wte.weight", {model_.vocab, hidden}, root + "wte.weight");
    Add("wpe.weight", {model_.seq_len, hidden}, root + "wpe.weight");
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      const std::string block = fmt::format("blocks.{}.", layer), h = fmt::format("{}h.{}.", root, layer);
      AddNorm(block + "norm1", h + "ln_1");
      AddLinear(block + "attn.qkv", hidden, {h + "attn.c_attn"}, {3 * hidden}, true, model_.bias);
      AddLinear(block + "attn.proj", hidden, {h + "attn.c_proj"}, {hidden}, true, model_.bias);
      AddNorm(block + "norm2", h + "ln_2");
      AddLinear(block + "mlp.up", hidden, {h + "mlp.c_fc"}, {model_.ffn}, true, model_.bias);
      AddLinear(block + "mlp.down", model_.ffn, {h + "mlp.c_proj"}, {hidden}, true, model_.bias);
    }
    AddNorm("norm_f", root + "ln_f");
    if (!model_.tie_embeddings) Add("head.weight", {model_.vocab, hidden}, "lm_head.weight");
  }

  void AddLlama() {
    const int64_t hidden = model_.hidden, queries = model_.heads * model_.head_dim,
                  keys = model_.kv_heads * model_.head_dim;
    const std::string root = "model.";
    Add("wte.weight", {model_.vocab, hidden}, root + "embed_tokens.weight");
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      const std::string block = fmt::format("blocks.{}.", layer),
                        l = fmt::format("{}layers.{}.", root, layer);
      const std::string attention = l + "self_attn.", mlp = l + "mlp.";
      if (model_.pre_norm) AddNorm(block + "norm1", l + "input_layernorm");
      AddLinear(block + "attn.qkv", hidden,
                {attention + "q_proj", attention + "k_proj", attention + "v_proj"}, {queries, keys, keys},
                false, model_.qkv_bias);
      if (model_.qk_norm) {
        const bool is_whole = model_.qk_norm_over == QkNormSpan::kAllHeads;
        Add(block + "attn.q_norm.weight", {is_whole ? queries : model_.head_dim},
            attention + "q_norm.weight");
        Add(block + "attn.k_norm.weight", {is_whole ? keys : model_.head_dim}, attention + "k_norm.weight");
      }
      AddLinear(block + "attn.proj", queries, {attention + "o_proj"}, {hidden}, false, model_.bias);
      AddNorm(block + (model_.pre_norm ? "norm2" : "attn_post_norm"), l + "post_attention_layernorm");
      if (model_.experts) {
        AddExperts(block + "mlp.", family_ == Family::kMixtral ? l + "block_sparse_moe." : mlp);
        continue;
      }
      AddLinear(block + "mlp.gate_up", hidden, {mlp + "gate_proj", mlp + "up_proj"}, {model_.ffn, model_.ffn},
                false, model_.bias);
      AddLinear(block + "mlp.down", model_.ffn, {mlp + "down_proj"}, {hidden}, false, model_.bias);
      if (!model_.pre_norm) AddNorm(block + "mlp_post_norm", l + "post_feedforward_layernorm");
    }
    AddNorm("norm_f", root + "norm");
    if (!model_.tie_embeddings) Add("head.weight", {model_.vocab, hidden}, "lm_head.weight");
  }

  // Experts follow each other in the rows of one tensor. In "up" each expert's gate (Mixtral's w1) comes
  // before its up matrix (w3); "down" holds w2.
  void AddExperts(const std::string& mlp, const std::string& moe) {
    const bool is_mixtral = family_ == Family::kMixtral;
    std::vector<std::string> up, down;
    for (int expert = 0; expert < model_.experts->count; ++expert) {
      const std::string name = fmt::format("{}experts.{}.", moe, expert);
      up.push_back(name + (is_mixtral ? "w1" : "gate_proj"));
      up.push_back(name + (is_mixtral ? "w3" : "up_proj"));
      down.push_back(name + (is_mixtral ? "w2" : "down_proj"));
    }
    AddLinear(mlp + "router", model_.hidden, {moe + "gate"}, {model_.experts->count}, false, false);
    AddLinear(mlp + "experts.up", model_.hidden, up, std::vector<int64_t>(up.size(), model_.ffn), false,
              false);
    AddLinear(mlp + "experts.down", model_.ffn, down, std::vector<int64_t>(down.size(), model_.hidden), false,
              false);
  }

  const ModelSpec& model_;
  const Family family_;
  std::vector<Mapping> mappings_;
};

struct FamilyNames {
  const char *architecture, *type;
};
FamilyNames NamesOf(Family family) {
  switch (family) {
    case Family::kGpt2:
      return {"GPT2LMHeadModel", "gpt2"};
    case Family::kLlama:
      return {"LlamaForCausalLM", "llama"};
    case Family::kMistral:
      return {"MistralForCausalLM", "mistral"};
    case Family::kMixtral:
      return {"MixtralForCausalLM", "mixtral"};
    case Family::kOlmo2:
      return {"Olmo2ForCausalLM", "olmo2"};
    case Family::kOlmo3:
      return {"Olmo3ForCausalLM", "olmo3"};
    case Family::kQwen2:
      return {"Qwen2ForCausalLM", "qwen2"};
    case Family::kQwen3:
      return {"Qwen3ForCausalLM", "qwen3"};
    case Family::kQwen3Moe:
      return {"Qwen3MoeForCausalLM", "qwen3_moe"};
  }
  return {"?", "?"};
}

// The name in transformers/activations.py; for a gated activation that of the gate.
const char* WordInTransformers(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kGelu:
    case ActivationKind::kGeglu:
      return "gelu";
    case ActivationKind::kRelu:
      return "relu";
    case ActivationKind::kSquaredRelu:
      return "relu2";
    case ActivationKind::kSwiglu:
      return "silu";
    case ActivationKind::kClampedSwiglu:
      return "?";  // gpt-oss's activation has no name there
  }
  return "?";
}

nlohmann::ordered_json Gpt2Config(const ModelSpec& model) {
  return {{"n_layer", model.layers},
          {"n_embd", model.hidden},
          {"n_head", model.heads},
          {"n_inner", model.ffn},
          {"n_positions", model.seq_len},
          {"vocab_size", model.vocab},
          {"activation_function", WordInTransformers(model.activation)},
          {"layer_norm_epsilon", model.norm_epsilon}};
}

nlohmann::ordered_json LlamaConfig(const ModelSpec& model, Family family) {
  nlohmann::ordered_json json = {{"num_hidden_layers", model.layers},
                                 {"hidden_size", model.hidden},
                                 {"num_attention_heads", model.heads},
                                 {"num_key_value_heads", model.kv_heads},
                                 {"head_dim", model.head_dim},
                                 {"intermediate_size", model.ffn},
                                 {"max_position_embeddings", model.seq_len},
                                 {"vocab_size", model.vocab},
                                 {"hidden_act", WordInTransformers(model.activation)},
                                 {"rms_norm_eps", model.norm_epsilon},
                                 {"rope_theta", model.rope_theta}};
  if (model.experts) json["num_experts_per_tok"] = model.experts->top_k;
  if (family == Family::kLlama) json["attention_bias"] = json["mlp_bias"] = model.bias;
  if (family == Family::kMixtral) json["num_local_experts"] = model.experts->count;
  if (family == Family::kMixtral || family == Family::kMistral) json["sliding_window"] = nullptr;
  if (model.HasWindows()) {
    json["sliding_window"] = model.sliding_window->tokens;
    if (family == Family::kOlmo3) {
      for (int64_t layer = 0; layer < model.layers; ++layer)
        json["layer_types"].push_back(model.WindowOf(layer) > 0 ? "sliding_attention" : "full_attention");
    } else if (family != Family::kMixtral && family != Family::kMistral) {  // Qwen's
      json["use_sliding_window"] = true;
      json["max_window_layers"] = 0;
    }
  }
  if (family == Family::kQwen3Moe) {
    json["num_experts"] = model.experts->count;
    json["moe_intermediate_size"] = model.ffn;
    json["norm_topk_prob"] = true;
  }
  return json;
}

std::string ConfigOf(const ModelSpec& model, Family family) {
  const FamilyNames names = NamesOf(family);
  nlohmann::ordered_json json = {{"architectures", {names.architecture}}, {"model_type", names.type}};
  json.update(family == Family::kGpt2 ? Gpt2Config(model) : LlamaConfig(model, family));
  json["tie_word_embeddings"] = model.tie_embeddings;
  json["torch_dtype"] = "float32";
  return json.dump(2) + "\n";
}

}  // namespace

Result<std::vector<Mapping>> HuggingFaceMappings(const ModelSpec& model) {
  WT_ASSIGN_OR_RETURN(const Family family, FamilyOf(model));
  return Mappings(model, family).Make();
}

Result<std::string> HuggingFaceConfig(const ModelSpec& model) {
  WT_ASSIGN_OR_RETURN(const Family family, FamilyOf(model));
  if (family == Family::kGpt2 && !model.bias)
    return Unsupported("model.bias is false, expected true: Hugging Face's GPT-2 has biases");
  return ConfigOf(model, family);
}

}  // namespace windtunnel
