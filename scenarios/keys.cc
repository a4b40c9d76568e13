#include "scenarios/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "scenarios/describe.h"
#include "scenarios/suggest.h"

namespace windtunnel {
namespace {

// The visitor of describe.h that only lists names.
class KeyLister {
 public:
  KeyLister(std::string prefix, std::vector<std::string>& keys) : prefix_(std::move(prefix)), keys_(keys) {}

  template <typename... Anything>
  void Integer(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Number(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Flag(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void FlagOrInteger(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Path(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Integers(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Flags(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Paths(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void WordOrPath(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void WordOrNumber(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Words(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Wrap(std::string_view key, Anything&&...) {
    Add(key);
  }
  void Text(std::string_view key, std::string&, const TextRule&, std::string_view) { Add(key); }
  void InputOnly(std::string_view key, std::string_view) { Add(key); }
  template <typename E>
  void Word(std::string_view key, E&, std::initializer_list<E>, std::string_view) {
    Add(key);
  }
  template <typename E>
  void Word(std::string_view key, E&, std::string_view) {
    Add(key);
  }

  template <typename T>
  void Block(std::string_view key, T& spec, std::string_view) {
    AddBlock(key, spec);
  }
  template <typename T>
  void OptionalBlock(std::string_view key, std::optional<T>&, std::string_view) {
    T spec;
    AddBlock(key, spec);
  }
  template <typename T>
  void Blocks(std::string_view key, std::vector<T>&, std::string_view) {
    T spec;
    AddBlock(key, spec);
  }
  template <typename T>
  void TextOrBlock(std::string_view key, std::string_view, std::string&, const TextRule&, T& spec,
                   std::string_view) {
    AddBlock(key, spec);
  }
  void Require(std::string_view) {}
  bool Covers(bool) const { return true; }

 private:
  void Add(std::string_view key) { keys_.push_back(prefix_ + std::string(key)); }
  template <typename T>
  void AddBlock(std::string_view key, T& spec) {
    Add(key);
    KeyLister inner(prefix_ + std::string(key) + ".", keys_);
    Describe(inner, spec);
  }

  std::string prefix_;
  std::vector<std::string>& keys_;
};

}  // namespace

std::vector<std::string> ScenarioKeys() {
  std::vector<std::string> keys;
  Scenario scenario;
  KeyLister lister("", keys);
  Describe(lister, scenario);
  return keys;
}

namespace {

// A key as users of PyTorch, Megatron and DeepSpeed type it. `name`: their name, with a block
// ("batch.tokens") if it counts only there. `key`: the key here. `value`: the value of `key` that the name
// stands for, if any. `note`: how to convert their value to the one here.
struct Alias {
  std::string_view name, key, value = {}, note = {};
};
constexpr Alias kAliases[] = {
    {"batch.tokens", "batch.micro", "", "in sequences of model.seq_len tokens"},
    {"global_batch_size", "batch.accumulate", "", "the global batch / (batch.micro x parallel.data.size)"},
    {"global_batch", "batch.accumulate", "", "the global batch / (batch.micro x parallel.data.size)"},
    {"train_batch_size", "batch.accumulate", "", "the global batch / (batch.micro x parallel.data.size)"},
    {"gbs", "batch.accumulate", "", "the global batch / (batch.micro x parallel.data.size)"},
    {"mbs", "batch.micro"},
    {"local_batch_size", "batch.micro"},
    {"model.name", "model.preset"},
    {"model_name", "model.preset"},
    {"flavor", "model.preset"},
    {"model.type", "model.preset"},
    {"optimizer.name", "optimizer.kind"},
    {"optimizer.type", "optimizer.kind"},
    {"padded_vocab_size", "model.vocab"},
    {"swiglu", "model.activation", "swiglu"},
    {"hidden_act", "model.activation"},
    {"activation_function", "model.activation"},
    {"normalization", "model.norm"},
    {"rope", "model.position", "rope"},
    {"rotary", "model.position", "rope"},
    {"position_embedding_type", "model.position"},
    {"rotary_base", "model.rope_theta"},
    {"disable_bias_linear", "model.bias", "false"},
    {"add_bias_linear", "model.bias"},
    {"untie_embeddings_and_output_weights", "model.tie_embeddings", "false"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"attn_implementation", "model.attention"},
    {"use_flash_attn", "model.attention", "flash"},
    {"hidden_dropout", "model.dropout"},
    {"attention_dropout", "model.dropout"},
    {"bf16", "precision.param", "bf16"},
    {"fp16", "precision.param", "fp16"},
    {"fp8", "precision.compute", "fp8"},
    {"compile", "framework", "pytorch_compile"},
    {"torch_compile", "framework", "pytorch_compile"},
    {"deepspeed", "framework", "deepspeed"},
    {"activation_checkpoint", "recompute"},
    {"selective_ac_option", "recompute", "selective_op"},
    {"recompute_method", "recompute"},
    {"fsdp", "parallel.data.kind", "fsdp"},
    {"fully_shard", "parallel.data.kind", "fsdp"},
    {"zero", "parallel.data.kind", "", "zero1, zero2, or fsdp for its third stage"},
    {"zero_optimization", "parallel.data.kind", "", "zero1, zero2, or fsdp for its third stage"},
    {"use_distributed_optimizer", "parallel.data.kind", "zero1"},
    {"overlap_grad_reduce", "parallel.data.overlap"},
    {"overlap_comm", "parallel.data.overlap"},
    {"overlap_param_gather", "parallel.data.overlap_param_gather"},
    {"data_parallel_shard_degree", "parallel.data.size"},
    {"data_parallel_replicate_degree", "parallel.data.size", "",
     "all replicas and shards; parallel.data.shard_size says how many share a copy"},
    {"tensor_parallel_degree", "parallel.tensor.size"},
    {"pipeline_parallel_degree", "parallel.pipeline.size"},
    {"context_parallel_degree", "parallel.context.size"},
    {"expert_parallel_degree", "parallel.expert.size"},
    {"num_layers_per_virtual_pipeline_stage", "parallel.pipeline.virtual_stages", "",
     "the layers / (parallel.pipeline.size x that)"},
    {"virtual_pipeline_model_parallel_size", "parallel.pipeline.virtual_stages"},
    {"pipeline_parallel_schedule", "parallel.pipeline.schedule"},
    {"offload_optimizer", "parallel.data.offload", "optimizer"},
    {"offload_param", "parallel.data.offload", "param"},
    {"learning_rate", "optimizer.lr"},
    {"optimizer.schedule", "lr_scheduler"},
    {"optimizer.scheduler", "lr_scheduler"},
    {"scheduler", "lr_scheduler"},
    {"lr_decay_style", "lr_scheduler.decay"},
    {"lr_scheduler_type", "lr_scheduler.decay"},
    {"decay_type", "lr_scheduler.decay"},
    {"lr_decay_iters", "lr_scheduler.total_steps"},
    {"lr_warmup_iters", "lr_scheduler.warmup_steps"},
    {"min_lr", "lr_scheduler.min_lr_factor", "", "that rate over optimizer.lr"},
    {"max_grad_norm", "optimizer.clip_norm"},
    {"clip_grad", "optimizer.clip_norm"},
    {"max_norm", "optimizer.clip_norm"},
    {"gradient_clipping", "optimizer.clip_norm"},
    {"betas", "optimizer.beta1"},
    {"batch_size", "batch.micro"},
    {"batch.size", "batch.micro"},
    {"micro_batch", "batch.micro"},
    {"microbatch_size", "batch.micro"},
    {"micro_batch_size", "batch.micro"},
    {"train_micro_batch_size_per_gpu", "batch.micro"},
    {"per_device_train_batch_size", "batch.micro"},
    {"grad_accum", "batch.accumulate"},
    {"gradient_accumulation_steps", "batch.accumulate"},
    {"micro_batches", "batch.accumulate"},
    {"n_microbatches", "batch.accumulate"},
    {"num_microbatches", "batch.accumulate"},
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"hidden_size", "model.hidden"},
    {"d_model", "model.hidden"},
    {"dim", "model.hidden"},
    {"n_embd", "model.hidden"},
    {"num_heads", "model.heads"},
    {"num_attention_heads", "model.heads"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"num_query_groups", "model.kv_heads"},
    {"n_kv_heads", "model.kv_heads"},
    {"kv_channels", "model.head_dim"},
    {"add_qkv_bias", "model.qkv_bias"},
    {"qk_layernorm", "model.qk_norm"},
    {"post_layernorm", "model.post_norm"},
    {"sandwich_norm", "model.post_norm"},
    {"intermediate_size", "model.ffn"},
    {"ffn_hidden_size", "model.ffn"},
    {"vocab_size", "model.vocab"},
    {"seq_length", "model.seq_len"},
    {"sequence_length", "model.seq_len"},
    {"max_position_embeddings", "model.seq_len"},
    {"block_size", "model.seq_len"},
    {"n_ctx", "model.seq_len"},
    {"num_experts", "model.experts.count"},
    {"moe_router_topk", "model.experts.top_k"},
    {"moe_shared_expert_intermediate_size", "model.experts.shared_ffn"},
    {"shared_expert_intermediate_size", "model.experts.shared_ffn"},
    {"n_routed_experts", "model.experts.count"},
    {"q_lora_rank", "model.latent_attention.q_rank"},
    {"kv_lora_rank", "model.latent_attention.kv_rank"},
    {"qk_rope_head_dim", "model.latent_attention.rope_dim"},
    {"qk_pos_emb_head_dim", "model.latent_attention.rope_dim"},
    {"v_head_dim", "model.latent_attention.value_dim"},
    {"multi_latent_attention", "model.latent_attention"},
    {"mla", "model.latent_attention"},
    {"window_size", "model.sliding_window.tokens"},
    {"attention_window", "model.sliding_window.tokens"},
    {"sliding_window_pattern", "model.sliding_window.full_every"},
    {"window_attn_skip_freq", "model.sliding_window.full_every"},
    {"mtp_num_layers", "model.mtp.layers"},
    {"num_nextn_predict_layers", "model.mtp.layers"},
    {"mtp_loss_scaling_factor", "model.mtp.loss_weight"},
    {"num_local_experts", "model.experts.count"},
    {"n_group", "model.experts.groups"},
    {"moe_router_num_groups", "model.experts.groups"},
    {"topk_group", "model.experts.top_k_groups"},
    {"moe_router_group_topk", "model.experts.top_k_groups"},
    {"num_experts_per_tok", "model.experts.top_k"},
    {"first_k_dense_replace", "model.experts.first_dense"},
    {"moe_layer_freq", "model.experts.every"},
    {"interleave_moe_layer_step", "model.experts.every"},
    {"decoder_sparse_step", "model.experts.every"},
    {"intermediate_size_mlp", "model.experts.dense_ffn"},
    {"dtype", "precision.param"},
    {"amp", "precision.compute"},
    {"autocast", "precision.compute"},
    {"mixed_precision", "precision.param"},
    {"mp_policy", "precision.param"},
    {"recompute_granularity", "recompute"},
    {"checkpoint_activations", "recompute"},
    {"activation_checkpointing", "recompute"},
    {"gradient_checkpointing", "recompute"},
    {"loss_fn", "cross_entropy"},
    {"cross_entropy_loss_fusion", "cross_entropy"},
    {"cross_entropy_fusion_impl", "cross_entropy"},
    {"fused_linear_cross_entropy", "cross_entropy"},
    {"dp", "parallel.data.size"},
    {"data_parallel_size", "parallel.data.size"},
    {"tp", "parallel.tensor.size"},
    {"tensor_parallel_size", "parallel.tensor.size"},
    {"tensor_model_parallel_size", "parallel.tensor.size"},
    {"sequence_parallel", "parallel.tensor.sequence"},
    {"tp_comm_overlap", "parallel.tensor.overlap"},
    {"async_tensor_parallel", "parallel.tensor.overlap"},
    {"pp", "parallel.pipeline.size"},
    {"pipeline_parallel_size", "parallel.pipeline.size"},
    {"pipeline_model_parallel_size", "parallel.pipeline.size"},
    {"cp", "parallel.context.size"},
    {"context_parallel_size", "parallel.context.size"},
    {"ep", "parallel.expert.size"},
    {"expert_parallel_size", "parallel.expert.size"},
    {"expert_model_parallel_size", "parallel.expert.size"},
    {"etp", "parallel.expert.tensor"},
    {"expert_tensor_parallel_size", "parallel.expert.tensor"},
    {"moe_token_dispatcher_type", "parallel.expert.dispatcher"},
    {"moe_flex_dispatcher_backend", "parallel.expert.dispatcher"},
    {"overlap_moe_expert_parallel_comm", "parallel.expert.overlap"},
    {"moe_a2a_overlap", "parallel.expert.overlap"},
    {"delay_wgrad_compute", "parallel.expert.delay_wgrad"},
    {"strategy", "parallel.data.kind"},
    {"zero_stage", "parallel.data.kind"},
    {"sharding_strategy", "parallel.data.sharding"},
    {"backward_prefetch", "parallel.data.prefetch"},
    {"auto_wrap_policy", "parallel.data.wrap"},
    {"cpu_offload", "parallel.data.offload"},
    {"offload_policy", "parallel.data.offload"},
    {"no_sync", "parallel.data.sync"},
    {"world_size", "cluster.devices_per_node"},
    {"gpus", "cluster.devices_per_node"},
    {"gpus_per_node", "cluster.devices_per_node"},
    {"nproc_per_node", "cluster.devices_per_node"},
    {"num_nodes", "cluster.nodes"},
    {"nnodes", "cluster.nodes"},
    {"max_steps", "run.steps"},
    {"num_steps", "run.steps"},
    {"train_iters", "run.steps"},
    {"warmup_steps", "run.warmup"},
};

// A key called `name`: one below the block at `path`, or else one anywhere.
std::string SameName(const std::string& path, const std::string& name) {
  std::string elsewhere;
  for (const std::string& key : ScenarioKeys()) {
    if (key != name && !key.ends_with("." + name)) continue;
    if (key.starts_with(JoinPath(path, ""))) return key;
    if (elsewhere.empty()) elsewhere = key;
  }
  return elsewhere;
}

}  // namespace

KeySuggestion SuggestKey(const std::string& path, const std::string& unknown,
                         const std::vector<std::string>& known) {
  const auto of_key = [](std::string key) { return KeySuggestion{key, fmt::format("'{}'", key)}; };
  const std::string nearest = Nearest(unknown, known);
  if (EditDistance(unknown, nearest) <= 1) return of_key(JoinPath(path, nearest));
  for (const Alias& alias : kAliases) {
    if (alias.name != unknown && alias.name != JoinPath(path, unknown)) continue;
    KeySuggestion meant = of_key(std::string(alias.key));
    if (!alias.value.empty()) meant.words = fmt::format("'{}: {}'", alias.key, alias.value);
    if (!alias.note.empty()) meant.words += fmt::format(" ({})", alias.note);
    return meant;
  }
  if (std::string same = SameName(path, unknown); !same.empty()) return of_key(same);
  const std::string meant = MeantWord(unknown, known);
  return meant.empty() ? KeySuggestion() : of_key(JoinPath(path, meant));
}

std::string_view MainKeyOf(std::string_view block, bool is_number) {
  struct MainKeys {
    std::string_view block, number, word;
  };
  constexpr MainKeys kMainKeys[] = {{"model", "", "preset"},
                                    {"model.sliding_window", "tokens", ""},
                                    {"model.experts", "count", ""},
                                    {"model.mtp", "layers", ""},
                                    {"batch", "micro", ""},
                                    {"precision", "", "param"},
                                    {"optimizer", "", "kind"},
                                    {"parallel.data", "size", "kind"},
                                    {"parallel.tensor", "size", ""},
                                    {"parallel.pipeline", "size", "schedule"},
                                    {"parallel.context", "size", "kind"},
                                    {"parallel.expert", "size", "dispatcher"},
                                    {"cluster", "devices_per_node", "device"},
                                    {"cluster.network.inter_node", "", "kind"},
                                    {"run", "steps", "backend"}};
  const auto* found = std::find_if(std::begin(kMainKeys), std::end(kMainKeys),
                                   [&](const MainKeys& main) { return main.block == block; });
  if (found == std::end(kMainKeys)) return {};
  return is_number ? found->number : found->word;
}

std::string JoinPath(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

}  // namespace windtunnel
