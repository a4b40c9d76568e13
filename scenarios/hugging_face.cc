#include "scenarios/hugging_face.h"

#include <initializer_list>
#include <optional>

#include "base/read_file.h"
#include "scenarios/rules.h"
#include "scenarios/scalars.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

// Values of one config.json (JSON is YAML). A null counts as missing, as in transformers.
class Config {
 public:
  Config(const std::string& path, const YamlNode& root) : path_(path), root_(root) {}

  // A size, or `fallback` where the key is missing; without a fallback it must be there.
  Result<int64_t> Size(std::string_view key, std::optional<int64_t> fallback = std::nullopt,
                       const Bounds& bounds = kSize) const {
    const YamlNode* node = Get(key);
    if (node == nullptr && fallback) return *fallback;
    if (node == nullptr)
      return InvalidInput("{}: {} is missing, expected a whole number", At(path_, root_.place), key);
    Reading<int64_t> value = ReadInteger(*node);
    std::string expected = value ? bounds.Violation(static_cast<double>(*value)) : value.error();
    if (expected.empty()) return *value;
    return InvalidInput("{}: {} is {}, expected {}", At(path_, node->place), key, Found(*node), expected);
  }

  Result<bool> Flag(std::string_view key, bool fallback) const {
    const YamlNode* node = Get(key);
    if (node == nullptr) return fallback;
    Reading<bool> value = ReadBoolean(*node);
    if (value) return *value;
    return InvalidInput("{}: {} is {}, expected {}", At(path_, node->place), key, Found(*node),
                        value.error());
  }

  // The activation that `words` map to; `fallback` where the key is missing.
  struct Choice {
    std::string_view word;
    ActivationKind kind;
  };
  Result<ActivationKind> Activation(std::string_view key, ActivationKind fallback,
                                    std::initializer_list<Choice> choices) const {
    const YamlNode* node = Get(key);
    if (node == nullptr) return fallback;
    for (const Choice& choice : choices) {
      if (node->text == choice.word) return choice.kind;
    }
    return Unsupported("{}: {} is {}, expected {} or another spelling of it", At(path_, node->place), key,
                       Found(*node), choices.begin()->word);
  }

  // A size, or nothing where the key is null; `fallback` where it is missing.
  Result<std::optional<int64_t>> SizeOrNull(std::string_view key, std::optional<int64_t> fallback) const {
    const YamlNode* node = root_.Find(key);
    if (node == nullptr) return fallback;
    if (node->is_null()) return std::optional<int64_t>();
    WT_ASSIGN_OR_RETURN(const int64_t value, Size(key));
    return std::optional<int64_t>(value);
  }

  const YamlNode* Get(std::string_view key) const {
    const YamlNode* node = root_.Find(key);
    return node == nullptr || node->is_null() ? nullptr : node;
  }

 private:
  const std::string& path_;
  const YamlNode& root_;
};

// transformers' GPT2Config: names and defaults.
Result<ModelSpec> ReadGpt2(const Config& config) {
  ModelSpec model;
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("n_layer"));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("n_embd"));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("n_head"));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("n_inner", 4 * model.hidden));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("n_positions"));
  WT_ASSIGN_OR_RETURN(model.activation, config.Activation("activation_function", ActivationKind::kGelu,
                                                          {{"gelu_new", ActivationKind::kGelu},
                                                           {"gelu", ActivationKind::kGelu},
                                                           {"gelu_pytorch_tanh", ActivationKind::kGelu},
                                                           {"relu", ActivationKind::kRelu}}));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", true));
  WT_ASSIGN_OR_RETURN(const bool has_cross_attention, config.Flag("add_cross_attention", false));
  if (has_cross_attention)
    return Unsupported("add_cross_attention is true, expected false: there is no encoder");
  return model;
}

// transformers' LlamaConfig: names and defaults.
Result<ModelSpec> ReadLlama(const Config& config) {
  ModelSpec model;
  model.norm = NormKind::kRmsNorm;
  model.position = PositionKind::kRope;
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("num_hidden_layers"));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("hidden_size"));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("num_attention_heads"));
  WT_ASSIGN_OR_RETURN(model.kv_heads, config.Size("num_key_value_heads", model.heads));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("intermediate_size"));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("max_position_embeddings"));
  WT_ASSIGN_OR_RETURN(model.activation, config.Activation("hidden_act", ActivationKind::kSwiglu,
                                                          {{"silu", ActivationKind::kSwiglu},
                                                           {"swish", ActivationKind::kSwiglu}}));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", false));
  WT_ASSIGN_OR_RETURN(model.bias, config.Flag("attention_bias", false));
  WT_ASSIGN_OR_RETURN(bool mlp_bias, config.Flag("mlp_bias", false));
  WT_ASSIGN_OR_RETURN(int64_t head_dim, config.Size("head_dim", model.hidden / model.heads));
  if (mlp_bias != model.bias) return Unsupported("attention_bias and mlp_bias differ, expected the same");
  if (const YamlNode* share = config.Get("partial_rotary_factor");
      share && share->text != "1.0" && share->text != "1")
    return Unsupported("partial_rotary_factor is {}, expected 1.0: all of a head is rotated", share->text);
  if (model.hidden % model.heads != 0)
    return InvalidInput("hidden_size is {}, expected a multiple of num_attention_heads ({})", model.hidden,
                        model.heads);
  if (head_dim * model.heads != model.hidden) {
    return Unsupported("head_dim is {}, expected hidden_size / num_attention_heads = {}", head_dim,
                       model.hidden / model.heads);
  }
  return model;
}

// Attention looks at all tokens before, which is the same where the window is no shorter than the sequences.
Status CheckWindow(const Config& config, std::optional<int64_t> fallback, int64_t seq_len) {
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> window, config.SizeOrNull("sliding_window", fallback));
  if (!window || *window >= seq_len) return Ok();
  return Unsupported(
      "sliding_window is {}, expected null or at least seq_len ({}): attention within a window is not "
      "supported (a shorter model.seq_len is)",
      *window, seq_len);
}

// transformers' MistralConfig and MixtralConfig: Llama's names; no biases, eight heads of keys unless said otherwise.
Result<ModelSpec> ReadMistral(const Config& config, std::optional<int64_t> window,
                              std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlama(config));
  WT_ASSIGN_OR_RETURN(model.kv_heads, config.Size("num_key_value_heads", 8));
  if (model.bias) return Unsupported("attention_bias is true, expected false: Mistral has no biases");
  WT_RETURN_IF_ERROR(CheckWindow(config, window, seq_len.value_or(model.seq_len)));
  return model;
}

Result<ModelSpec> ReadMixtral(const Config& config, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadMistral(config, std::nullopt, seq_len));
  ExpertsSpec experts;
  WT_ASSIGN_OR_RETURN(const int64_t count, config.Size("num_local_experts", 8, From(2, 65536)));
  WT_ASSIGN_OR_RETURN(const int64_t top_k, config.Size("num_experts_per_tok", 2, From(1, 65536)));
  if (top_k == 1)
    return Unsupported(
        "num_experts_per_tok is 1, expected at least 2: Mixtral weighs an only expert by 1, Windtunnel by "
        "its share of all");
  if (top_k > count)
    return InvalidInput("num_experts_per_tok is {}, expected at most num_local_experts ({})", top_k, count);
  experts.count = static_cast<int>(count);
  experts.top_k = static_cast<int>(top_k);
  experts.capacity_factor = 0;  // no token is dropped
  model.experts = experts;
  return model;
}

Result<ModelSpec> ReadModel(const std::string& type, const Config& config, std::optional<int64_t> seq_len) {
  constexpr int64_t kMistralWindow = 4096;  // where the configuration says nothing
  if (type == "gpt2") return ReadGpt2(config);
  if (type == "llama") return ReadLlama(config);
  if (type == "mistral") return ReadMistral(config, kMistralWindow, seq_len);
  if (type == "mixtral") return ReadMixtral(config, seq_len);
  if (type == "qwen2")
    return Unsupported(
        "model_type is 'qwen2', whose queries, keys and values have biases while no other layer has: "
        "model.bias is of all layers; expected gpt2, llama, mistral or mixtral");
  return Unsupported("model_type is '{}', expected gpt2, llama, mistral or mixtral", type);
}

}  // namespace

Result<ModelSpec> ReadHuggingFaceConfig(const std::string& path, std::optional<int64_t> seq_len) {
  WT_ASSIGN_OR_RETURN(std::string text, ReadFile(path, "a Hugging Face config.json"));
  WT_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(text, path));
  if (!root.is_block()) {
    return InvalidInput("{}: the file is {}, expected a JSON object", At(path, root.place), Found(root));
  }
  Config config(path, root);
  const YamlNode* type = config.Get("model_type");
  if (type == nullptr)
    return InvalidInput("{}: model_type is missing, expected gpt2, llama, mistral or mixtral",
                        At(path, root.place));
  Result<ModelSpec> model = ReadModel(type->text, config, seq_len);
  // What concerns several keys has no place of its own.
  bool has_place = model.has_value() || model.error().message.starts_with(path);
  if (!has_place) {
    const bool is_of_type = model.error().message.starts_with("model_type");
    model.error().message =
        fmt::format("{}: {}", At(path, is_of_type ? type->place : root.place), model.error().message);
  }
  return model;
}

}  // namespace windtunnel
