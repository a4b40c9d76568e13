// Hugging Face's models with Mamba-2 layers, instead of attention or beside it. What changes no shape is not
// modelled: limits of step sizes, a residual stream in fp32.
#include <algorithm>
#include <iterator>
#include <string>

#include "scenarios/hugging_face_models.h"
#include "scenarios/layer_pattern.h"
#include "scenarios/rules.h"
#include "scenarios/scalars.h"

namespace windtunnel::hugging_face {
namespace {

struct MambaKeys {
  std::string_view heads, head_dim, state, groups, conv, chunk;
};
constexpr MambaKeys kOfNemotron = {"mamba_num_heads", "mamba_head_dim", "ssm_state_size",
                                   "n_groups",        "conv_kernel",    "chunk_size"};
constexpr MambaKeys kOfBamba = {"mamba_n_heads",  "mamba_d_head", "mamba_d_state",
                                "mamba_n_groups", "mamba_d_conv", "mamba_chunk_size"};
constexpr MambaKeys kOfMamba2 = {"num_heads", "head_dim",    "state_size",
                                 "n_groups",  "conv_kernel", "chunk_size"};

// `defaults`: what the configuration leaves out. Its heads' width may be "auto", too.
Result<MambaSpec> ReadMamba(const Config& config, const MambaKeys& keys, const MambaSpec& defaults) {
  constexpr Bounds kOfHeads = From(1, 1024);  // as a scenario's (scenarios/describe_model.h)
  MambaSpec mamba;
  WT_ASSIGN_OR_RETURN(mamba.heads, config.Size(keys.heads, defaults.heads));
  mamba.head_dim = defaults.head_dim;
  const YamlNode* head_dim = config.Get(keys.head_dim);
  if (head_dim != nullptr && head_dim->text != "auto") {
    WT_ASSIGN_OR_RETURN(mamba.head_dim, config.Size(keys.head_dim));
  }
  if (const std::string expected = kOfHeads.Violation(static_cast<double>(mamba.head_dim)); !expected.empty())
    return config.Wrong(keys.head_dim, "is {}, expected {}", mamba.head_dim, expected);
  WT_ASSIGN_OR_RETURN(mamba.state, config.Size(keys.state, defaults.state, kOfHeads));
  WT_ASSIGN_OR_RETURN(mamba.groups, config.Size(keys.groups, defaults.groups));
  WT_ASSIGN_OR_RETURN(mamba.conv, config.Size(keys.conv, defaults.conv, From(1, 16)));
  WT_ASSIGN_OR_RETURN(mamba.chunk, config.Size(keys.chunk, defaults.chunk, From(1, 65536)));
  return mamba;
}

Status ExpectFlag(const Config& config, std::string_view key, bool expected, std::string_view why) {
  WT_ASSIGN_OR_RETURN(const bool found, config.Flag(key, expected));
  if (found != expected) return config.NotModelled(key, "is {}, expected {}: {}", found, expected, why);
  return Ok();
}

// The convolution of a layer has a bias, and its projections have none.
Status ExpectUsualBiases(const Config& config, std::string_view of_conv, std::string_view of_projections) {
  WT_RETURN_IF_ERROR(ExpectFlag(config, of_conv, true, "convolutions have biases"));
  return ExpectFlag(config, of_projections, false, "Mamba-2's projections have no biases");
}

// Of what the convolution returns.
Status ExpectSilu(const Config& config, std::string_view key) {
  const YamlNode* activation = config.Get(key);
  if (activation == nullptr || activation->text == "silu" || activation->text == "swish") return Ok();
  return config.NotModelled(key, "is {}, expected silu, Mamba-2's activation", Found(*activation));
}

// Checks that the inner width of the layers is `expand` times the model's, as transformers does.
Status ExpectInner(const Config& config, const MambaKeys& keys, std::string_view expand, int64_t hidden,
                   const MambaSpec& mamba) {
  WT_ASSIGN_OR_RETURN(const int64_t factor, config.Size(expand, 2));
  if (mamba.inner() == factor * hidden) return Ok();
  return config.Wrong(keys.heads, "is {} and {} {}, expected {} ({}) x hidden_size ({}) as their product",
                      mamba.heads, keys.head_dim, mamba.head_dim, expand, factor, hidden);
}

// A letter for each entry of a list of the layers' kinds, with the names of any version of transformers.
Result<std::string> LettersOf(const Config& config, std::string_view key) {
  struct Kind {
    std::string_view name;
    char letter;
  };
  constexpr Kind kKinds[] = {{"mamba", 'M'},          {"attention", '*'}, {"linear_attention", 'M'},
                             {"full_attention", '*'}, {"mlp", '-'},       {"moe", 'E'}};
  const YamlNode& list = *config.Get(key);
  if (!list.is_list()) return config.Wrong(key, "is {}, expected a list of the layers' kinds", Found(list));
  std::string letters;
  for (const YamlNode& item : list.items) {
    const Kind* const kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                          [&](const Kind& one) { return one.name == item.text; });
    if (kind == std::end(kKinds))
      return config.NotModelled(key, "has {}, expected mamba, attention, mlp or moe", Found(item));
    letters += kind->letter;
  }
  return letters;
}

// The letters of Nemotron-H's layers. Here an MLP, or experts, are part of the layer of the mixer before
// them.
Result<std::string> ReadPattern(const Config& config) {
  const std::string_view key = config.Spelling("hybrid_override_pattern", "layers_block_type");
  const YamlNode* node = config.Get(key);
  if (node == nullptr) return config.Wrong(key, "is missing, expected the kinds of the layers");
  std::string letters = node->text;
  if (key == "layers_block_type") {
    WT_ASSIGN_OR_RETURN(letters, LettersOf(config, key));
  }
  const size_t other = letters.find_first_not_of("M*-E");
  if (letters.empty() || other != std::string::npos)
    return config.NotModelled(key, "is {}, expected letters M, *, - and E", Found(*node));
  if (letters.find('M') == std::string::npos)
    return config.NotModelled(key, "is {}, expected a layer with Mamba-2", Found(*node));
  WT_ASSIGN_OR_RETURN(const int64_t layers,
                      config.Size("num_hidden_layers", static_cast<int64_t>(letters.size())));
  if (layers != static_cast<int64_t>(letters.size()))
    return config.Wrong("num_hidden_layers", "is {}, expected the number of layers in {} ({})", layers, key,
                        letters.size());
  return letters;
}

// NemotronHConfig's experts, one shared expert beside them.
Status ReadNemotronExperts(const Config& config, ModelSpec& model) {
  const int64_t dense_ffn = model.ffn;
  WT_ASSIGN_OR_RETURN(model.experts, ReadExperts(config, "n_routed_experts", 8, 2));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("moe_intermediate_size", 7688));
  WT_ASSIGN_OR_RETURN(model.experts->shared_ffn, config.Size("moe_shared_expert_intermediate_size", 7688));
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> shared,
                      config.SizeOrNull("n_shared_experts", 1, From(0, 65536)));
  if (shared.value_or(1) != 1)
    return config.NotModelled("n_shared_experts",
                              "is {}, expected 1, as wide as moe_shared_expert_intermediate_size says",
                              *shared);
  WT_RETURN_IF_ERROR(ReadExpertGroups(config, *model.experts));
  WT_RETURN_IF_ERROR(ExpectFlag(config, "norm_topk_prob", true, "the chosen experts' weights add up to 1"));
  WT_ASSIGN_OR_RETURN(const std::optional<int64_t> latent,
                      config.SizeOrNull("moe_latent_size", std::nullopt, kWidth));
  model.experts->latent = latent.value_or(0);
  if (model.MixesExperts()) model.experts->dense_ffn = dense_ffn;
  return Ok();
}

// The layers' mixers, and what is behind all of them. Without Mamba-2 among them the model is a transformer.
void SetMixers(std::string_view mixers, bool has_experts, const MambaSpec& mamba, ModelSpec& model) {
  if (mixers.find('M') == std::string_view::npos) return;
  model.mamba = mamba;
  model.mamba->pattern.clear();
  for (const char mixer : mixers) {
    model.mamba->pattern += mixer;
    model.mamba->pattern += has_experts ? 'E' : '-';
  }
}

// A letter for each layer: '*' for those that a list has the indices of. Without a list 'M' for all.
Result<std::string> ReadAttentionIndices(const Config& config, int64_t layers) {
  constexpr char kKey[] = "attn_layer_indices";
  const YamlNode* indices = config.Get(kKey);
  if (indices == nullptr) return "M";
  if (!indices->is_list()) return config.Wrong(kKey, "is {}, expected a list of layers", Found(*indices));
  std::string mixers(static_cast<size_t>(layers), 'M');
  for (const YamlNode& item : indices->items) {
    const Reading<int64_t> layer = ReadInteger(item);
    if (!layer || *layer < 0 || *layer >= layers)
      return config.Wrong(kKey, "has {}, expected layers from 0 to {}", Found(item), layers - 1);
    mixers[static_cast<size_t>(*layer)] = '*';
  }
  return mixers;
}

// BambaConfig's and GraniteMoeHybridConfig's.
Result<MambaSpec> ReadBambasMamba(const Config& config, int64_t hidden) {
  WT_RETURN_IF_ERROR(ExpectUsualBiases(config, "mamba_conv_bias", "mamba_proj_bias"));
  constexpr int64_t kHeads = 128;
  WT_ASSIGN_OR_RETURN(const int64_t heads, config.Size(kOfBamba.heads, kHeads));
  WT_ASSIGN_OR_RETURN(const int64_t expand, config.Size("mamba_expand", 2));
  const MambaSpec defaults{.state = 256, .head_dim = expand * hidden / heads, .heads = kHeads};
  WT_ASSIGN_OR_RETURN(const MambaSpec mamba, ReadMamba(config, kOfBamba, defaults));
  WT_RETURN_IF_ERROR(ExpectInner(config, kOfBamba, "mamba_expand", hidden, mamba));
  return mamba;
}

}  // namespace

// NemotronHConfig: a layer is a mixer, an MLP or experts, and attention has no positions.
Result<ModelSpec> ReadNemotronH(const Config& config) {
  ModelSpec model;
  WT_ASSIGN_OR_RETURN(const std::string pattern, ReadPattern(config));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("hidden_size"));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("num_attention_heads"));
  WT_ASSIGN_OR_RETURN(model.kv_heads, config.Size("num_key_value_heads", 8));
  WT_ASSIGN_OR_RETURN(model.head_dim, config.Size(config.Spelling("head_dim", "attention_head_dim"), 128));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("intermediate_size"));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("max_position_embeddings", 4096));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_epsilon", 1e-5, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", false));
  model.layers = LayersInPattern(pattern);
  model.activation = ActivationKind::kSquaredRelu;
  if (config.Get("mlp_hidden_act") != nullptr) {
    WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "mlp_hidden_act"));
  }
  model.norm = NormKind::kRmsNorm;
  model.position = PositionKind::kNone;
  model.bias = model.qkv_bias = false;
  for (const char* key : {"attention_bias", "mlp_bias", "use_bias"})
    WT_RETURN_IF_ERROR(ExpectFlag(config, key, false, "Nemotron-H has no biases"));
  WT_RETURN_IF_ERROR(ExpectUsualBiases(config, "use_conv_bias", "mamba_proj_bias"));
  WT_RETURN_IF_ERROR(ExpectSilu(config, "mamba_hidden_act"));
  if (const YamlNode* window = config.Get("sliding_window"))
    return config.NotModelled("sliding_window", "is {}, expected null: attention sees all tokens",
                              Found(*window));
  WT_ASSIGN_OR_RETURN(model.mamba, ReadMamba(config, kOfNemotron, {.heads = 128, .groups = 8, .chunk = 128}));
  model.mamba->pattern = pattern;
  if (pattern.find('E') != std::string::npos) WT_RETURN_IF_ERROR(ReadNemotronExperts(config, model));
  return model;
}

// BambaConfig: a Llama, most of whose layers have Mamba-2. Half of a head is rotated.
Result<ModelSpec> ReadBamba(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model,
                      ReadLlamaDimensions(config, {.kv_heads = 8, .epsilon = 1e-5, .rotary_share = 0.5}));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Bamba"));
  if (config.Get("attn_rotary_emb") != nullptr) {
    const int64_t head_dim = model.head_dim > 0 ? model.head_dim : model.hidden / model.heads;
    WT_ASSIGN_OR_RETURN(const int64_t rotated,
                        config.Size("attn_rotary_emb", std::nullopt, From(1, head_dim)));
    model.rope_dim = rotated < head_dim ? rotated : 0;
  }
  WT_ASSIGN_OR_RETURN(const MambaSpec mamba, ReadBambasMamba(config, model.hidden));
  WT_ASSIGN_OR_RETURN(const int64_t layers, config.Size("num_hidden_layers", std::nullopt, From(1, 65536)));
  WT_ASSIGN_OR_RETURN(const std::string mixers, ReadAttentionIndices(config, layers));
  SetMixers(mixers, /*has_experts=*/false, mamba, model);
  return model;
}

// GraniteMoeHybridConfig: Granite, some of whose layers have Mamba-2. All layers have an MLP, alone or as an
// expert that every token goes to.
Result<ModelSpec> ReadGraniteHybrid(const Config& config) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "Granite"));
  const YamlNode* positions = config.Get("position_embedding_type");
  const bool has_none = positions == nullptr || positions->text == "nope";
  if (!has_none && positions->text != "rope")
    return config.NotModelled("position_embedding_type", "is {}, expected rope or nope", Found(*positions));
  if (has_none) model.position = PositionKind::kNone;
  WT_ASSIGN_OR_RETURN(const int64_t shared_ffn, config.Size("shared_intermediate_size", 1024));
  WT_ASSIGN_OR_RETURN(const int64_t experts, config.Size("num_local_experts", 8, From(0, 65536)));
  if (experts > 0) {
    WT_ASSIGN_OR_RETURN(model.experts, ReadExperts(config, "num_local_experts", 8, 2));
    model.experts->shared_ffn = shared_ffn;
  } else {
    model.ffn = shared_ffn;
  }
  std::string mixers = "M";
  if (config.Get("layer_types") != nullptr) {
    WT_ASSIGN_OR_RETURN(mixers, LettersOf(config, "layer_types"));
    if (!std::all_of(mixers.begin(), mixers.end(), IsMixer) ||
        static_cast<int64_t>(mixers.size()) != model.layers)
      return config.Wrong("layer_types", "has {} entries, expected mamba or attention for each of {} layers",
                          mixers.size(), model.layers);
  }
  if (mixers.find('M') == std::string::npos) return model;
  WT_ASSIGN_OR_RETURN(const MambaSpec mamba, ReadBambasMamba(config, model.hidden));
  SetMixers(mixers, experts > 0, mamba, model);
  return model;
}

// Mamba2Config: nothing but Mamba-2. It says no length: what state-spaces/mamba2-* were trained with.
Result<ModelSpec> ReadMamba2(const Config& config) {
  ModelSpec model;
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("num_hidden_layers"));
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("hidden_size"));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("max_position_embeddings", 2048));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_epsilon", 1e-5, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", false));
  WT_RETURN_IF_ERROR(ExpectUsualBiases(config, "use_conv_bias", "use_bias"));
  WT_RETURN_IF_ERROR(ExpectFlag(config, "rms_norm", true, "what a layer scans has a norm"));
  WT_RETURN_IF_ERROR(ExpectSilu(config, "hidden_act"));
  model.norm = NormKind::kRmsNorm;
  model.position = PositionKind::kNone;
  model.bias = model.qkv_bias = false;
  WT_ASSIGN_OR_RETURN(model.mamba, ReadMamba(config, kOfMamba2, {.heads = 128, .groups = 8}));
  WT_RETURN_IF_ERROR(ExpectInner(config, kOfMamba2, "expand", model.hidden, *model.mamba));
  model.heads = model.mamba->heads;  // no layer has attention
  model.head_dim = model.mamba->head_dim;
  return model;
}

}  // namespace windtunnel::hugging_face
