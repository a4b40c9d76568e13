#include "scenarios/hugging_face.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/read_file.h"
#include "scenarios/hugging_face_models.h"
#include "scenarios/rules.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace hugging_face {

Result<ActivationKind> ReadUngated(const Config& config, std::string_view key) {
  return config.Activation(key, ActivationKind::kGelu,
                           {{"gelu_new", ActivationKind::kGelu},
                            {"gelu", ActivationKind::kGelu},
                            {"gelu_pytorch_tanh", ActivationKind::kGelu},
                            {"gelu_fast", ActivationKind::kGelu},
                            {"relu", ActivationKind::kRelu},
                            {"relu2", ActivationKind::kSquaredRelu}});
}

namespace {

// transformers' GPT2Config: names and defaults.
Result<ModelSpec> ReadGpt2(const Config& config) {
  ModelSpec model;
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("n_layer"));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("n_embd"));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("n_head"));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("n_inner", 0));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("n_positions"));
  WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "activation_function"));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_epsilon", 1e-5, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", true));
  WT_ASSIGN_OR_RETURN(const bool has_cross_attention, config.Flag("add_cross_attention", false));
  if (has_cross_attention)
    return config.NotModelled("add_cross_attention", "is true, expected false: there is no encoder");
  return model;
}

// BertConfig. Not modelled: token types, the pooler, the transformation before the head.
Result<ModelSpec> ReadBert(const Config& config) {
  ModelSpec model;
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("num_hidden_layers"));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("hidden_size"));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("num_attention_heads"));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("intermediate_size"));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("max_position_embeddings"));
  WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "hidden_act"));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_eps", 1e-12, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", true));
  WT_ASSIGN_OR_RETURN(const bool is_decoder, config.Flag("is_decoder", false));
  WT_ASSIGN_OR_RETURN(const bool has_cross_attention, config.Flag("add_cross_attention", false));
  if (has_cross_attention)
    return config.NotModelled("add_cross_attention", "is true, expected false: there is no encoder");
  const YamlNode* positions = config.Get("position_embedding_type");
  if (positions != nullptr && positions->text != "absolute")
    return config.NotModelled("position_embedding_type", "is '{}', expected absolute", positions->text);
  model.causal = is_decoder;
  model.residual_from_norm = true;
  return model;
}

// RobertaConfig: positions begin behind that of padding.
Result<ModelSpec> ReadRoberta(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadBert(config));
  WT_ASSIGN_OR_RETURN(const int64_t padding, config.Size("pad_token_id", 1));
  if (model.seq_len <= padding + 1)
    return config.Wrong("max_position_embeddings", "is {}, expected more than pad_token_id + 1 ({})",
                        model.seq_len, padding + 1);
  model.seq_len -= padding + 1;
  return model;
}

// The activation of the gate, where transformers allow any. GELU's tanh approximation counts as GELU.
Result<ActivationKind> ReadGate(const Config& config, std::string_view key) {
  return config.Activation(key, ActivationKind::kSwiglu,
                           {{"silu", ActivationKind::kSwiglu},
                            {"swish", ActivationKind::kSwiglu},
                            {"gelu", ActivationKind::kGeglu},
                            {"gelu_new", ActivationKind::kGeglu},
                            {"gelu_pytorch_tanh", ActivationKind::kGeglu}});
}

// The sizes and rotary positions of a configuration of Llama's keys.
Result<ModelSpec> ReadSizes(const Config& config, const LlamaDefaults& defaults) {
  ModelSpec model;
  model.position = PositionKind::kRope;
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("num_hidden_layers"));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("hidden_size"));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("num_attention_heads"));
  WT_ASSIGN_OR_RETURN(model.kv_heads, config.Size("num_key_value_heads", defaults.kv_heads));
  const std::optional<int64_t> ffn = defaults.ffn > 0 ? std::optional(defaults.ffn) : std::nullopt;
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("intermediate_size", ffn));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("max_position_embeddings"));
  WT_ASSIGN_OR_RETURN(model.rope_theta, config.RopeTheta(defaults.rope_theta));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", defaults.ties_embeddings));
  WT_ASSIGN_OR_RETURN(model.head_dim, config.Size("head_dim", defaults.head_dim));
  if (model.head_dim == 0 && model.hidden % model.heads != 0)
    return config.Wrong("hidden_size", "is {}, expected a multiple of num_attention_heads ({}), or head_dim",
                        model.hidden, model.heads);
  WT_ASSIGN_OR_RETURN(const double share, config.RotaryShare(defaults.rotary_share.value_or(1)));
  if (share < 1 && !defaults.rotary_share)
    return config.NotModelled("partial_rotary_factor",
                              "is {}, expected 1: models of this type rotate whole heads", share);
  const int64_t head_dim = model.head_dim > 0 ? model.head_dim : model.hidden / model.heads;
  if (share < 1) model.rope_dim = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  return model;
}

}  // namespace

Result<ModelSpec> ReadLlamaDimensions(const Config& config, const LlamaDefaults& defaults) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadSizes(config, defaults));
  model.norm = NormKind::kRmsNorm;
  model.bias = model.qkv_bias = false;
  // Gemma's configurations use another key.
  const bool has_other_key = config.Get("hidden_activation") != nullptr;
  WT_ASSIGN_OR_RETURN(model.activation, ReadGate(config, has_other_key ? "hidden_activation" : "hidden_act"));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("rms_norm_eps", defaults.epsilon, FromToBelow(0, 1)));
  return model;
}

Status ExpectNoBias(const Config& config, std::string_view name) {
  WT_ASSIGN_OR_RETURN(const bool bias, config.Flag("attention_bias", false));
  if (bias) return config.NotModelled("attention_bias", "is true, expected false: {} has no biases", name);
  return Ok();
}

namespace {

Result<ModelSpec> ReadLlama(const Config& config, const LlamaDefaults& defaults = {}) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, defaults));
  WT_ASSIGN_OR_RETURN(model.bias, config.Flag("attention_bias", false));
  WT_ASSIGN_OR_RETURN(const bool mlp_bias, config.Flag("mlp_bias", false));
  if (mlp_bias != model.bias)
    return config.NotModelled("mlp_bias", "is {}, expected attention_bias ({})", mlp_bias, model.bias);
  model.qkv_bias = model.bias;
  return model;
}

// Derives SlidingWindowSpec::full_every from layer_types, the list of the layers' kinds of attention: every
// so many layers, one sees all tokens; 0: none does. `fallback`: without such a list.
Result<int64_t> ReadFullEvery(const Config& config, const ModelSpec& model, int64_t fallback) {
  const YamlNode* types = config.Get("layer_types");
  if (types == nullptr) return fallback;
  if (!types->is_list() || static_cast<int64_t>(types->items.size()) != model.layers)
    return config.Wrong("layer_types", "is {}, expected a list of num_hidden_layers ({}) entries",
                        Found(*types), model.layers);
  int64_t full_every = 0, layer = 0;
  for (const YamlNode& item : types->items) {
    const bool is_full = item.text == "full_attention";
    if (!is_full && item.text != "sliding_attention")
      return config.NotModelled("layer_types", "has {}, expected full_attention or sliding_attention",
                                Found(item));
    ++layer;
    if (is_full && full_every == 0) full_every = layer;
    if (is_full != (full_every > 0 && layer % full_every == 0))
      return config.NotModelled("layer_types",
                                "has {} for layer {}, expected one of full_attention after every {} of "
                                "sliding_attention, from the first layer on",
                                item.text, layer - 1, full_every - 1);
  }
  return full_every;
}

}  // namespace

Status ReadWindow(const Config& config, std::optional<int64_t> fallback, int64_t full_every,
                  std::optional<int64_t> seq_len, ModelSpec& model) {
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> size, config.SizeOrNull("sliding_window", fallback));
  if (!size || *size >= seq_len.value_or(model.seq_len)) return Ok();
  WT_ASSIGN_OR_RETURN(full_every, ReadFullEvery(config, model, full_every));
  if (full_every == 1) return Ok();  // all layers see all
  model.sliding_window = SlidingWindowSpec{.tokens = *size, .full_every = full_every};
  return Ok();
}

Result<ModelSpec> ReadMistral(const Config& config, const LlamaDefaults& defaults,
                              std::optional<int64_t> window, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, defaults));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Mistral"));
  WT_RETURN_IF_ERROR(ReadWindow(config, window, 0, seq_len, model));
  return model;
}

namespace {

// The keys that Qwen's configurations share. A window exists only if use_sliding_window is set, and only in
// layers from max_window_layers on.
Result<ModelSpec> ReadQwen(const Config& config, const LlamaDefaults& defaults,
                           std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, defaults));
  WT_ASSIGN_OR_RETURN(const bool has_window, config.Flag("use_sliding_window", false));
  constexpr int64_t kWindow = 4096, kLayersWithout = 28;
  WT_ASSIGN_OR_RETURN(const int64_t without,
                      config.Size("max_window_layers", kLayersWithout, From(0, 2147483647)));
  if (!has_window || without >= model.layers) return model;
  WT_RETURN_IF_ERROR(ReadWindow(config, kWindow, 0, seq_len, model));
  if (model.sliding_window && without > 0)
    return config.NotModelled(
        "max_window_layers",
        "is {}, expected 0, or num_hidden_layers ({}): layers with a window begin with the first", without,
        model.layers);
  return model;
}

Result<ModelSpec> ReadQwen2(const Config& config, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadQwen(config, {.kv_heads = 32}, seq_len));
  model.qkv_bias = true;
  return model;
}

}  // namespace

Result<ModelSpec> ReadQwen3(const Config& config, const LlamaDefaults& defaults,
                            std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadQwen(config, defaults, seq_len));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Qwen3"));
  model.qk_norm = true;
  return model;
}

namespace {

// Soft-capped logits are an operator that is not modelled.
Status ExpectNoCaps(const Config& config) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (const YamlNode* cap = config.Get(key))
      return config.NotModelled(key, "is {}, expected null: logits are not capped", cap->text);
  return Ok();
}

// GemmaConfig: Llama with another activation and a head tied to the embedding. As for Gemma 3, what changes
// no shape is not modelled: adding one to norms' weights, embeddings times the root of their width, the scale
// of queries.
Result<ModelSpec> ReadGemma(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Gemma"));
  const bool says = config.Get("hidden_act") != nullptr || config.Get("hidden_activation") != nullptr;
  if (!says) model.activation = ActivationKind::kGeglu;
  WT_ASSIGN_OR_RETURN(model.head_dim, config.Size("head_dim", 256));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", true));
  return model;
}

// Gemma3TextConfig: norms of heads and behind attention and the MLP; every sixth layer sees all tokens.
Result<ModelSpec> ReadGemma3(const Config& config, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadGemma(config));
  WT_RETURN_IF_ERROR(ExpectNoCaps(config));
  model.qk_norm = model.post_norm = true;
  const char* key =
      config.Get("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  WT_ASSIGN_OR_RETURN(const int64_t pattern, config.Size(key, 6));
  WT_ASSIGN_OR_RETURN(model.rope_theta, config.RopeTheta(1e6));
  WT_RETURN_IF_ERROR(ReadWindow(config, 4096, pattern, seq_len, model));
  return model;
}

// Olmo2Config and Olmo3Config: norms behind attention and the MLP instead of before them, and of all heads
// of queries and of keys together. In Olmo 3 three of four layers have a window.
Result<ModelSpec> ReadOlmo(const Config& config, double rope_theta) {
  WT_ASSIGN_OR_RETURN(ModelSpec model,
                      ReadLlamaDimensions(config, {.epsilon = 1e-5, .rope_theta = rope_theta}));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "OLMo"));
  model.qk_norm = model.post_norm = true;
  model.qk_norm_over = QkNormSpan::kAllHeads;
  model.pre_norm = false;
  return model;
}

Result<ModelSpec> ReadOlmo3(const Config& config, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadOlmo(config, 5e5));
  WT_RETURN_IF_ERROR(ReadWindow(config, 4096, 4, seq_len, model));
  return model;
}

// Phi3Config: Llama's operators.
Result<ModelSpec> ReadPhi3(const Config& config, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, {.epsilon = 1e-5, .rotary_share = 1}));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Phi-3"));
  WT_RETURN_IF_ERROR(ReadWindow(config, std::nullopt, 0, seq_len, model));
  return model;
}

// Starcoder2Config: Llama's keys for GPT-2's layer norms, biases and MLPs.
Result<ModelSpec> ReadStarcoder2(const Config& config, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadSizes(config, {.kv_heads = 2, .ties_embeddings = true}));
  WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "hidden_act"));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("norm_epsilon", 1e-5, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(const bool has_bias, config.Flag("use_bias", true));
  if (!has_bias)
    return config.NotModelled("use_bias", "is false, expected true: norms have biases without it, too");
  WT_RETURN_IF_ERROR(ReadWindow(config, std::nullopt, 0, seq_len, model));
  return model;
}

// SmolLM3Config: a Llama in which every fourth layer has no positions, which changes no shape.
Result<ModelSpec> ReadSmolLm3(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model,
                      ReadLlama(config, {.kv_heads = 4, .rope_theta = 2e6, .ties_embeddings = true}));
  WT_ASSIGN_OR_RETURN(const bool has_window, config.Flag("use_sliding_window", false));
  if (has_window)
    return config.NotModelled("use_sliding_window", "is true, expected false: all layers see all tokens");
  return model;
}

// SeedOssConfig: a Llama with biases of queries, keys and values.
Result<ModelSpec> ReadSeedOss(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, {.kv_heads = 8, .head_dim = 128}));
  WT_ASSIGN_OR_RETURN(model.qkv_bias, config.Flag("attention_bias", true));
  for (const char* key : {"attention_out_bias", "mlp_bias"}) {
    WT_ASSIGN_OR_RETURN(const bool bias, config.Flag(key, false));
    if (bias)
      return config.NotModelled(key, "is true, expected false: queries, keys and values alone have biases");
  }
  return model;
}

// Ernie4_5Config: a Llama whose biases are all there, or none.
Result<ModelSpec> ReadErnie(const Config& config) {
  constexpr LlamaDefaults kDefaults{
      .kv_heads = 2, .head_dim = 128, .epsilon = 1e-5, .rope_theta = 500'000, .ties_embeddings = true};
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, kDefaults));
  WT_ASSIGN_OR_RETURN(model.bias, config.Flag("use_bias", false));
  model.qkv_bias = model.bias;
  return model;
}

// ArceeConfig: a Llama whose MLP has no gate.
Result<ModelSpec> ReadArcee(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadSizes(config, {}));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Arcee"));
  model.norm = NormKind::kRmsNorm;
  model.bias = model.qkv_bias = false;
  model.activation = ActivationKind::kSquaredRelu;
  if (config.Get("hidden_act") != nullptr) {
    WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "hidden_act"));
  }
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("rms_norm_eps", 1e-5, FromToBelow(0, 1)));
  return model;
}

// GlmConfig, Glm4Config: half of a head is rotated; queries, keys and values have biases.
Result<ModelSpec> ReadGlm(const Config& config, bool has_post_norms) {
  constexpr LlamaDefaults kDefaults{
      .kv_heads = 2, .head_dim = 128, .epsilon = 1.5625e-7, .rotary_share = 0.5};
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, kDefaults));
  WT_ASSIGN_OR_RETURN(model.qkv_bias, config.Flag("attention_bias", true));
  model.post_norm = has_post_norms;
  return model;
}

// OPTConfig: GPT-2's operators.
Result<ModelSpec> ReadOpt(const Config& config) {
  ModelSpec model;
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("num_hidden_layers"));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size(config.Spelling("hidden_size", "d_model")));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("num_attention_heads"));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("ffn_dim"));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("max_position_embeddings"));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", true));
  model.activation = ActivationKind::kRelu;
  if (config.Get("activation_function") != nullptr) {
    WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "activation_function"));
  }
  for (const char* key : {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"}) {
    WT_ASSIGN_OR_RETURN(const bool is_usual, config.Flag(key, true));
    if (!is_usual) return config.NotModelled(key, "is false, expected true: blocks are GPT-2's");
  }
  WT_ASSIGN_OR_RETURN(const int64_t embedded, config.Size("word_embed_proj_dim", model.hidden));
  if (embedded != model.hidden)
    return config.NotModelled("word_embed_proj_dim",
                              "is {}, expected hidden_size ({}): embeddings are not projected", embedded,
                              model.hidden);
  return model;
}

// Mistral3Config has MistralConfig as a part.
Result<ModelSpec> ReadMistral3(const Config& config, std::optional<int64_t> seq_len) {
  const YamlNode* type = config.Get("model_type");
  if (type != nullptr && type->text != "mistral" && type->text != "mistral3")
    return config.NotModelled("model_type", "is '{}', expected mistral as mistral3's text_config",
                              type->text);
  return ReadMistral(config, {.kv_heads = 8}, 4096, seq_len);
}

// The values of model_type. `is_of_text`: another name for the text model alone. `has_part`: the
// configuration of a model of text and images has the text model's as a part. `differs`: what its layers
// compute otherwise than here, with the same shapes.
struct ModelType {
  std::string_view name;
  Result<ModelSpec> (*read)(const Config& config, std::optional<int64_t> seq_len);
  std::string_view differs = {};
  bool is_of_text = false, has_part = false;
};
constexpr std::string_view kOfGemma = "norms add one to their weights, and embeddings are scaled";
constexpr std::string_view kOfLlama4 = "some layers have no positions, and routers score tokens otherwise";
constexpr std::string_view kOfDeepseek = "routers score tokens otherwise";
constexpr std::string_view kOfT5 = "scores are not scaled, and the input of a tied head is";
constexpr std::string_view kOfGranite = "embeddings, attention, residuals and logits are scaled";
constexpr std::string_view kOfOneNorm = "groups of heads of a Mamba-2 layer have one norm together";
constexpr std::string_view kOfQwen3Next = "norms add one to their weights";
constexpr std::string_view kOfGlm = "rotary positions turn other pairs of columns";
using SeqLen = std::optional<int64_t>;
constexpr ModelType kModelTypes[] = {
    {"arcee", [](const Config& c, SeqLen) { return ReadArcee(c); }},
    {"bamba", [](const Config& c, SeqLen) { return ReadBamba(c); }, kOfOneNorm},
    {"bart", [](const Config& c, SeqLen) { return ReadBart(c, /*has_pre_norm=*/false); },
     "positions begin with the third embedding"},
    {"bert", [](const Config& c, SeqLen) { return ReadBert(c); },
     "token types, the pooler and the transformation before the head are left out"},
    {"cohere", [](const Config& c, SeqLen) { return ReadCohere(c); }, "logits are scaled"},
    {"ernie4_5", [](const Config& c, SeqLen) { return ReadErnie(c); }, kOfGlm},
    {"falcon", [](const Config& c, SeqLen) { return ReadFalcon(c); }, "norms have biases"},
    {"gemma", [](const Config& c, SeqLen) { return ReadGemma(c); }, kOfGemma},
    {.name = "gemma3", .read = ReadGemma3, .differs = kOfGemma, .has_part = true},
    {.name = "gemma3_text", .read = ReadGemma3, .differs = kOfGemma, .is_of_text = true},
    {"glm", [](const Config& c, SeqLen) { return ReadGlm(c, false); }, kOfGlm},
    {"glm4", [](const Config& c, SeqLen) { return ReadGlm(c, true); }, kOfGlm},
    {"glm4_moe", [](const Config& c, SeqLen) { return ReadGlm4Moe(c); }, kOfDeepseek},
    {"gpt2", [](const Config& c, SeqLen) { return ReadGpt2(c); }},
    {"gpt_neox", [](const Config& c, SeqLen) { return ReadGptNeox(c); }},
    {"gpt_oss", ReadGptOss, "attention has sinks"},
    {"granite", [](const Config& c, SeqLen) { return ReadLlama(c); }, kOfGranite},
    {"granitemoehybrid", [](const Config& c, SeqLen) { return ReadGraniteHybrid(c); }, kOfGranite},
    {"llama", [](const Config& c, SeqLen) { return ReadLlama(c); }},
    {.name = "llama4", .read = ReadLlama4, .differs = kOfLlama4, .has_part = true},
    {.name = "llama4_text", .read = ReadLlama4, .differs = kOfLlama4, .is_of_text = true},
    {"mamba2", [](const Config& c, SeqLen) { return ReadMamba2(c); }, kOfOneNorm},
    {"mbart", [](const Config& c, SeqLen) { return ReadBart(c, /*has_pre_norm=*/true); },
     "embeddings have a norm, and positions begin with the third embedding"},
    // 4096: where the configuration says nothing.
    {"mistral",
     [](const Config& c, SeqLen seq_len) { return ReadMistral(c, {.kv_heads = 8}, 4096, seq_len); }},
    {.name = "mistral3", .read = ReadMistral3, .has_part = true},
    {"mixtral", ReadMixtral},
    {"mt5", [](const Config& c, SeqLen) { return ReadT5(c, /*is_multilingual=*/true); }, kOfT5},
    {"nemotron_h", [](const Config& c, SeqLen) { return ReadNemotronH(c); }, kOfDeepseek},
    {"olmo2", [](const Config& c, SeqLen) { return ReadOlmo(c, 1e4); }},
    {"olmo3", ReadOlmo3},
    {"olmoe", [](const Config& c, SeqLen) { return ReadOlmoe(c); }, "experts' weights do not add up to 1"},
    {"opt", [](const Config& c, SeqLen) { return ReadOpt(c); }, "positions begin with the third embedding"},
    {"phi", [](const Config& c, SeqLen) { return ReadPhi(c); }, "the head has a bias"},
    {"phi3", ReadPhi3},
    {"qwen2", ReadQwen2},
    {"qwen3", [](const Config& c,
                 SeqLen seq_len) { return ReadQwen3(c, {.kv_heads = 32, .head_dim = 128}, seq_len); }},
    {.name = "qwen3_5",
     .read = [](const Config& c, SeqLen) { return ReadQwen3Point5(c); },
     .differs = kOfQwen3Next,
     .has_part = true},
    {.name = "qwen3_5_moe",
     .read = [](const Config& c, SeqLen) { return ReadQwen3Point5Moe(c); },
     .differs = kOfQwen3Next,
     .has_part = true},
    {.name = "qwen3_5_moe_text",
     .read = [](const Config& c, SeqLen) { return ReadQwen3Point5Moe(c); },
     .differs = kOfQwen3Next,
     .is_of_text = true},
    {.name = "qwen3_5_text",
     .read = [](const Config& c, SeqLen) { return ReadQwen3Point5(c); },
     .differs = kOfQwen3Next,
     .is_of_text = true},
    {"qwen3_moe", ReadQwen3Moe},
    {"qwen3_next", [](const Config& c, SeqLen) { return ReadQwen3Next(c); }, kOfQwen3Next},
    {"roberta", [](const Config& c, SeqLen) { return ReadRoberta(c); },
     "token types, the pooler and the transformation before the head are left out"},
    {"seed_oss", [](const Config& c, SeqLen) { return ReadSeedOss(c); }},
    {"smollm3", [](const Config& c, SeqLen) { return ReadSmolLm3(c); }, "some layers have no positions"},
    {"starcoder2", ReadStarcoder2},
    {"t5", [](const Config& c, SeqLen) { return ReadT5(c, /*is_multilingual=*/false); }, kOfT5},
    {"deepseek_v2", [](const Config& c, SeqLen) { return ReadDeepseek(c); }, kOfDeepseek},
    {"deepseek_v3", [](const Config& c, SeqLen) { return ReadDeepseek(c); }, kOfDeepseek},
    {"kimi_k2", [](const Config& c, SeqLen) { return ReadDeepseek(c); }, kOfDeepseek},
};

std::string NamesOfModelTypes() {
  std::vector<std::string_view> names;
  for (const ModelType& type : kModelTypes)
    if (!type.is_of_text) names.push_back(type.name);
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

}  // namespace
}  // namespace hugging_face

using hugging_face::Config;
using hugging_face::kModelTypes;
using hugging_face::ModelType;
using hugging_face::NamesOfModelTypes;

std::string_view WhatDiffersInHuggingFace(std::string_view model_type) {
  for (const ModelType& type : kModelTypes)
    if (type.name == model_type) return type.differs;
  return {};
}

Result<ModelSpec> ReadHuggingFaceConfig(const std::string& path, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(std::string text, ReadFile(path, "a Hugging Face config.json"));
  WT_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(text, path));
  if (!root.is_block())
    return InvalidInput("{}: the file is {}, expected a JSON object", At(path, root.place), Found(root));
  const Config config(path, root);
  const YamlNode* name = config.Get("model_type");
  if (name == nullptr) return config.Wrong("model_type", "is missing, expected {}", NamesOfModelTypes());
  for (const ModelType& type : kModelTypes) {
    if (name->text != type.name) continue;
    const YamlNode* part = type.has_part ? config.Get("text_config") : nullptr;
    return type.read(part != nullptr && part->is_block() ? Config(path, *part) : config, seq_len);
  }
  return config.NotModelled("model_type", "is '{}', expected {}", name->text, NamesOfModelTypes());
}

}  // namespace windtunnel
