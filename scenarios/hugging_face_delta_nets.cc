// Hugging Face's models with gated delta networks in most layers: Qwen3-Next and Qwen3.5. What changes no
// shape is not modelled: norms add one to their weights. Nor are their multi-token prediction modules, which
// transformers leaves out.
#include <string>
#include <vector>

#include "scenarios/hugging_face_models.h"
#include "scenarios/layer_pattern.h"
#include "scenarios/rules.h"
#include "scenarios/scalars.h"

namespace windtunnel::hugging_face {
namespace {

Result<DeltaNetSpec> ReadDeltaNet(const Config& config) {
  constexpr Bounds kOfHeads = From(1, 1024);  // as a scenario's (scenarios/describe_model.h)
  DeltaNetSpec net;
  WT_ASSIGN_OR_RETURN(net.key_heads, config.Size("linear_num_key_heads", net.key_heads));
  WT_ASSIGN_OR_RETURN(net.value_heads, config.Size("linear_num_value_heads", net.value_heads));
  WT_ASSIGN_OR_RETURN(net.key_dim, config.Size("linear_key_head_dim", net.key_dim, kOfHeads));
  WT_ASSIGN_OR_RETURN(net.value_dim, config.Size("linear_value_head_dim", net.value_dim, kOfHeads));
  WT_ASSIGN_OR_RETURN(net.conv, config.Size("linear_conv_kernel_dim", net.conv, From(1, 16)));
  return net;
}

// A letter for each layer: G, or * for those with attention.
Result<std::string> ReadMixers(const Config& config, int64_t layers) {
  const YamlNode* types = config.Get("layer_types");
  std::string mixers(static_cast<size_t>(layers), 'G');
  if (types == nullptr) {
    WT_ASSIGN_OR_RETURN(const int64_t every, config.Size("full_attention_interval", 4));
    for (int64_t layer = every - 1; layer < layers; layer += every) mixers[static_cast<size_t>(layer)] = '*';
    return mixers;
  }
  if (!types->is_list() || static_cast<int64_t>(types->items.size()) != layers)
    return config.Wrong("layer_types", "is {}, expected a list of num_hidden_layers ({}) entries",
                        Found(*types), layers);
  for (size_t i = 0; i < mixers.size(); ++i) {
    const YamlNode& item = types->items[i];
    if (item.text == "full_attention") mixers[i] = '*';
    else if (item.text != "linear_attention")
      return config.NotModelled("layer_types", "has {}, expected linear_attention or full_attention",
                                Found(item));
  }
  return mixers;
}

// Whether each layer has experts: every decoder_sparse_step-th, but none of mlp_only_layers.
Result<std::vector<bool>> ReadLayersWithExperts(const Config& config, int64_t layers) {
  WT_ASSIGN_OR_RETURN(const int64_t every, config.Size("decoder_sparse_step", 1));
  std::vector<bool> have(static_cast<size_t>(layers));
  for (int64_t layer = 0; layer < layers; ++layer)
    have[static_cast<size_t>(layer)] = (layer + 1) % every == 0;
  const YamlNode* without = config.Get("mlp_only_layers");
  if (without == nullptr) return have;
  if (!without->is_list())
    return config.Wrong("mlp_only_layers", "is {}, expected a list of layers", Found(*without));
  for (const YamlNode& item : without->items) {
    const Reading<int64_t> layer = ReadInteger(item);
    if (!layer || *layer < 0 || *layer >= layers)
      return config.Wrong("mlp_only_layers", "has {}, expected layers from 0 to {}", Found(item), layers - 1);
    have[static_cast<size_t>(*layer)] = false;
  }
  return have;
}

Status ReadGatedExperts(const Config& config, const ExpertsSpec& defaults, ModelSpec& model) {
  WT_ASSIGN_OR_RETURN(model.experts, ReadExperts(config, "num_experts", defaults.count, defaults.top_k));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("moe_intermediate_size", 512));
  WT_ASSIGN_OR_RETURN(model.experts->shared_ffn, config.Size("shared_expert_intermediate_size", 512));
  model.experts->shared_gate = true;
  WT_ASSIGN_OR_RETURN(const bool normalizes, config.Flag("norm_topk_prob", true));
  if (normalizes) return Ok();
  return config.NotModelled("norm_topk_prob",
                            "is false, expected true: the chosen experts' weights add up to 1");
}

// `experts`: the defaults of their number and of a token's; null if layers have MLPs.
Result<ModelSpec> ReadDeltaNetModel(const Config& config, const LlamaDefaults& defaults,
                                    const ExpertsSpec* experts) {
  WT_ASSIGN_OR_RETURN(ModelSpec model, ReadLlamaDimensions(config, defaults));
  WT_RETURN_IF_ERROR(ExpectNoBias(config, "such a model"));
  model.qk_norm = true;
  WT_ASSIGN_OR_RETURN(model.attention_gate, config.Flag("attn_output_gate", true));
  if (model.layers > 1000)
    return config.Wrong("num_hidden_layers", "is {}, expected at most 1000", model.layers);
  WT_ASSIGN_OR_RETURN(model.delta_net, ReadDeltaNet(config));
  WT_ASSIGN_OR_RETURN(const std::string mixers, ReadMixers(config, model.layers));
  if (mixers.find('G') == std::string::npos)
    return config.NotModelled("layer_types", "has no linear_attention, expected one at least");
  std::vector<bool> have(mixers.size());
  const int64_t dense_ffn = model.ffn;
  if (experts != nullptr) {
    WT_ASSIGN_OR_RETURN(have, ReadLayersWithExperts(config, model.layers));
    WT_RETURN_IF_ERROR(ReadGatedExperts(config, *experts, model));
  }
  std::string letters;
  for (size_t i = 0; i < mixers.size(); ++i) letters.append({mixers[i], have[i] ? 'E' : '-'});
  model.delta_net->pattern = ShortestPattern(letters);
  if (experts != nullptr && model.MixesExperts()) model.experts->dense_ffn = dense_ffn;
  return model;
}

}  // namespace

Result<ModelSpec> ReadQwen3Next(const Config& config) {
  const ExpertsSpec experts{.count = 512, .top_k = 10};
  return ReadDeltaNetModel(config, {.kv_heads = 2, .head_dim = 256, .ffn = 5632, .rotary_share = 0.25},
                           &experts);
}

Result<ModelSpec> ReadQwen3Point5(const Config& config) {
  return ReadDeltaNetModel(config, {.kv_heads = 4, .head_dim = 256, .rotary_share = 0.25}, nullptr);
}

Result<ModelSpec> ReadQwen3Point5Moe(const Config& config) {
  const ExpertsSpec experts{.count = 256, .top_k = 8};
  return ReadDeltaNetModel(config, {.kv_heads = 2, .head_dim = 256, .ffn = 512, .rotary_share = 0.25},
                           &experts);
}

}  // namespace windtunnel::hugging_face
