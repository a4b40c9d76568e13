#include "scenarios/importers/huggingface.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "scenarios/characters.h"
#include "scenarios/hugging_face.h"
#include "scenarios/importers/cluster_size.h"
#include "scenarios/importers/huggingface_models.h"
#include "scenarios/importers/huggingface_settings.h"
#include "scenarios/importers/huggingface_sharding.h"
#include "scenarios/importers/named_model.h"
#include "scenarios/importers/rest.h"
#include "scenarios/importers/shell_script.h"
#include "scenarios/other_names.h"
#include "scenarios/presets.h"

namespace windtunnel {
namespace {

constexpr char kDefault[] = "the Trainer's default", kTrl[] = "TRL's default since 0.20";

// What changes nothing in a step's time or memory here, or has the only value that is modelled. '*' stands
// for any end.
constexpr std::string_view kWithoutEffect =
    "account adam_* adapter add_special_tokens append_concat_token assistant_only_loss audio_* "
    "auto_find_batch_size auto_resume_from_checkpoints average_tokens_across_devices "
    "bf16_full_eval bits bnb_4bit_* "
    "cache_dir chat_* checkpointing_steps completion_only_loss compute_environment config config_file "
    "constraint conversation_* "
    "cosine_* cpus_per_task "
    "data_* dataloader_* dataset* ddp_backend ddp_broadcast_buffers ddp_timeout debug deepspeed_hostfile "
    "deepspeed_moe_layer_cls_names "
    "deepspeed_multinode_launcher distributed_type do_* downcast_bf16 "
    "early_stopping* enable_cpu_affinity error eval* exclusive "
    "finetuning_type fp16 fp16_backend fp16_full_eval fp16_opt_level fsdp_backward_prefetch "
    "fsdp_cpu_ram_efficient_loading fsdp_forward_prefetch fsdp_limit_all_gathers fsdp_min_num_params "
    "fsdp_reshard_after_forward fsdp_sharding_strategy fsdp_state_dict_type fsdp_sync_module_states "
    "fsdp_transformer_layer_cls_to_wrap fsdp_use_orig_params fsdp_xla* full_determinism "
    "gpu_ids gradient_checkpointing_kwargs.* greater_is_better gres group_by_length "
    "half_precision_backend hf_use_auth_token hub* "
    "image* include_* is_falcon_derived_model is_llama_derived_model is_mistral_derived_model "
    "is_qwen_derived_model "
    "job_name "
    "lazy_preprocess load_best_model_at_end local_rank log_* logger logging_* lora_alpha lora_dropout "
    "lora_fan_in_fan_out lora_model_dir lora_on_cpu lora_target* lora_task_type low_cpu_mem_usage lr* "
    "machine_rank main_process_* main_training_function master_* max_restarts max_samples max_steps "
    "max_train_steps mem "
    "metric_for_best_model min_lr* mixed_precision mm_* mode model_max_length model_revision model_type "
    "monitor_interval multi_gpu "
    "neftune_noise_alpha no_cuda no_python node_rank ntasks num_cpu_threads_per_process num_epochs "
    "num_train_epochs "
    "num_warmup_steps num_workers "
    "optim_args output output_dir overwrite_cache overwrite_output_dir "
    "packing_strategy pad_to_multiple_of pad_to_sequence_len parallelism_config* partition "
    "per_device_eval_batch_size per_gpu_eval_batch_size plot_loss prediction_loss_only preprocessing_* "
    "processor_type project "
    "push_to_hub* "
    "qos quant_type quantization_bit quantization_method quantization_type "
    "rdzv_* remove_unused_columns report_to resume_from_checkpoint role* run_name "
    "same_network save* seed shuffle* skip_* special_tokens* splits standalone streaming strict swanlab* "
    "template* tensorboard* tf32 time token* torch_empty_cache_steps tpu_* train_data* train_file "
    "train_on_inputs "
    "trust_remote_code type "
    "use_cpu use_deepspeed use_fast_tokenizer use_fsdp use_reentrant "
    "val_* validation_* version video_* vision_tower* "
    "wandb* warmup* with_tracking "
    "xformers_attention "
    "zero3_init_flag zero3_save_16bit_model";
static_assert(ArePatterns(kWithoutEffect));

// The first name that is given of several for one thing; empty if none is.
std::string_view FirstOf(std::initializer_list<std::string_view> names, Settings& settings) {
  for (const std::string_view name : names)
    if (settings.Has(name)) return name;
  return "";
}

// Whether a program's name, "train_dpo.py" or "trl grpo", has a method of preferences or rewards among its
// words.
bool HasMethodOfPreferences(const std::string& program) {
  constexpr std::string_view kMethods =
      " bco cpo dpo grpo ipo kto nash orpo ppo reward rlhf rloo rm simpo xpo ";
  std::string words = LowerCase(program);
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, ' ');
  const std::vector<std::string> all = SplitWords(words);
  return std::any_of(all.begin(), all.end(), [&](const std::string& word) {
    return kMethods.find(" " + word + " ") != std::string_view::npos;
  });
}

// The parts of a micro-batch for which Liger's fused_linear_cross_entropy_forward() computes the head and the
// loss: of as many tokens as make the logits about as large as the inputs, to a power of two. Here parts are
// equal, so there may be fewer. 8,192 tokens of Llama 3 8B (vocab 128,256, hidden 4,096): 32 parts.
int64_t LigersParts(int64_t tokens, int64_t hidden, int64_t vocab) {
  constexpr int64_t kMost = 4096;  // cross_entropy_chunks'
  const auto divide = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto rows = static_cast<uint64_t>(divide(tokens, divide(vocab, hidden)));
  int64_t parts = std::min(divide(tokens, static_cast<int64_t>(std::bit_ceil(rows))), kMost);
  while (tokens % parts != 0) --parts;
  return parts;
}

class Importer {
 public:
  Importer(Settings& flags, std::string program, const ReadNamedFile& read, Draft& draft)
      : flags_(flags), program_(std::move(program)), read_(read), draft_(draft) {}

  Status Import() {
    RefuseOtherSteps();
    Model();
    Sequence();
    Attention();
    Batch();
    Adapters();
    Optimizer();
    Recomputation();
    Cluster();
    const auto is_compiler = [&](const char* name) {
      const std::string backend = Word(name);
      return !backend.empty() && backend != "eager" && backend != "aot_eager" && backend != "no";
    };
    const bool is_off = flags_.Has("torch_compile") && !Flag("torch_compile");
    const bool compiles =
        !is_off && (Flag("torch_compile") || is_compiler("torch_compile_backend") ||
                    flags_.Has("torch_compile_mode") || Word("dynamo_backend") == "inductor");
    draft_.Set(
        "framework", compiles ? "pytorch_compile" : "pytorch",
        compiles ? std::string("the Trainer's or accelerate's torch.compile") : std::string("not compiled"));
    const HuggingFaceMode mode = Mode();
    const Status sharded = ImportHuggingFaceSharding(flags_, mode, read_, draft_);
    WT_RETURN_IF_ERROR(flags_.status());
    WT_RETURN_IF_ERROR(sharded);
    NarrowMoments();
    Liger();
    NoteRest(flags_, kWithoutEffect, draft_);
    return Ok();
  }

 private:
  std::string Word(std::string_view name) { return flags_.Word(name); }
  bool Flag(std::string_view name, bool missing = false) { return IsTrue(flags_, name, missing); }
  void Copy(std::string_view key, std::string_view name) {
    if (const auto value = flags_.Number(name)) draft_.Set(key, *value, flags_.Shown(name));
  }
  // Steps that are not of one language model on its tokens.
  void RefuseOtherSteps() {
    const std::string stage = Word("stage");
    if (!stage.empty() && stage != "sft" && stage != "pt")
      flags_.Refuse("stage", "sft or pt: steps with several models are not modelled");
    if (HasMethodOfPreferences(program_))
      flags_.Fail("{} is of preference or reinforcement learning, whose steps are not modelled", program_);
    for (const char* name :
         {"beta", "max_prompt_length", "rl", "reward_model", "reward_funcs", "num_generations"})
      if (flags_.Has(name))
        flags_.Fail("{} is of preference or reinforcement learning, whose steps are not modelled",
                    flags_.Shown(name));
    if (flags_.Has("vision_tower"))
      flags_.Fail("{}: vision towers beside a language model are not modelled", flags_.Shown("vision_tower"));
  }

  // TRL's trainer of supervised fine-tuning has defaults of its own (SFTConfig, since 0.20).
  bool IsTrl() const {
    return program_ == "trl" || program_.starts_with("trl ") || program_.starts_with("trl.") ||
           program_.ends_with("sft.py");
  }
  // transformers' examples with a loop of their own around accelerate.
  bool HasTrainer() const { return program_.find("no_trainer") == std::string::npos; }
  const char* Default() const { return HasTrainer() ? kDefault : "the script's default"; }
  bool IsLlamaFactory() { return flags_.Has("finetuning_type") || flags_.Has("cutoff_len"); }
  bool IsAxolotl() {
    return flags_.Has("sequence_len") || flags_.Shown("model_name_or_path") == "base_model";
  }

  void Model() {
    if (draft_.Has("model.preset") || draft_.Has("model.config") || draft_.Has("model.layers"))
      return flags_.Ignore({"model_name_or_path", "config_name"});
    // A model that begins from scratch has only a configuration.
    const char* named = flags_.Has("model_name_or_path") ? "model_name_or_path" : "config_name";
    const std::optional<std::string> name = flags_.Text(named);
    const std::string shown = flags_.Shown(named);
    constexpr char kExpected[] = "expected --set model.preset=NAME or --set model.config=CONFIG.json";
    if (!name) return flags_.Fail("the model is not said, {}", kExpected);
    const std::string preset = PresetOnTheHub(*name);
    if (const Result<NamedFile> file = read_(*name + "/config.json")) {
      draft_.SetText("model.config", file->path, shown);
      if (const auto config = ReadHuggingFaceConfig(file->path)) known_ = *config;
    } else if (preset.empty()) {
      return flags_.Fail("{} is '{}', which has no preset, {} (the model's, from the hub)", shown, *name,
                         kExpected);
    } else {
      draft_.Set("model.preset", std::string_view(preset), fmt::format("{} {}", shown, *name));
      known_ = ModelPreset(preset);
      const bool has_dropout = known_->encoder || preset.starts_with("gpt2-") || preset.starts_with("bert-");
      if (has_dropout) draft_.Set("model.dropout", 0.1, "of the model's config.json");
    }
  }

  // Defaults: those of transformers' run_summarization.py and run_translation.py.
  void SourceAndTarget() {
    const auto set = [&](const char* key, const char* flag, int64_t missing) {
      const std::optional<int64_t> tokens = flags_.Integer(flag);
      draft_.Set(key, tokens.value_or(missing), tokens ? flags_.Shown(flag) : kDefault);
    };
    set("model.encoder.seq_len", "max_source_length", 1024);
    set("model.seq_len", "max_target_length", 128);
    draft_.Note(
        "Sources and targets are taken to be full; without padding to the longest, real ones are shorter.");
  }

  void Sequence() {
    if (known_ && known_->encoder) return SourceAndTarget();
    const std::string_view name = FirstOf(
        {"block_size", "max_seq_length", "max_length", "cutoff_len", "sequence_len", "model_max_length"},
        flags_);
    if (!name.empty()) {
      if (const auto tokens = flags_.Integer(name)) draft_.Set("model.seq_len", *tokens, flags_.Shown(name));
    } else if (flags_.Has("source_max_len") && flags_.Has("target_max_len")) {  // qlora.py
      draft_.Set("model.seq_len",
                 flags_.Integer("source_max_len").value_or(0) + flags_.Integer("target_max_len").value_or(0),
                 "--source_max_len and --target_max_len");
    } else if (IsTrl()) {
      draft_.Set("model.seq_len", int64_t{1024}, kTrl);
    } else if (!draft_.Has("model.seq_len")) {
      flags_.Fail("the tokens of a sequence are not said, expected --set model.seq_len=N");
    }
    if (!Flag("packing") && name != "block_size")
      draft_.Note("Sequences are taken to be full; where samples are not packed, real ones are shorter.");
  }

  void Attention() {
    const std::string kind =
        flags_.Has("attn_implementation") ? Word("attn_implementation") : Word("flash_attn");
    const bool is_eager = kind == "eager" || kind == "disabled" || kind == "off";
    std::string remark = flags_.ShownOr("flash_attn", "the default (sdpa)");
    // Kernels that never store the scores, as the default has.
    for (const char* name : {"use_flash_attn", "use_flash_attention", "use_flash_attention_2",
                             "flash_attention", "sdp_attention", "sdpa_attention"})
      if (flags_.Has(name) && Word(name) != "false") remark = flags_.Shown(name);
    remark = flags_.ShownOr("attn_implementation", remark);
    if (known_ && known_->position == PositionKind::kRelative)
      return draft_.Set("model.attention", "eager", "T5's, which adds biases to scores");
    const bool asks_eager = Flag("eager_attention");
    if (asks_eager) remark = flags_.Shown("eager_attention");
    draft_.Set("model.attention", is_eager || asks_eager ? "eager" : "flash", remark);
  }

  void Batch() {
    if (const auto micro = flags_.Integer("per_device_train_batch_size"))
      draft_.Set("batch.micro", *micro, flags_.Shown("per_device_train_batch_size"));
    else if (!flags_.Has("per_device_train_batch_size"))
      draft_.Set("batch.micro", int64_t{IsAxolotl() ? 1 : 8}, IsAxolotl() ? "Axolotl's default" : Default());
    if (Word("gradient_accumulation_steps") == "auto") return;
    if (const auto accumulate = flags_.Integer("gradient_accumulation_steps"))
      draft_.Set("batch.accumulate", *accumulate, flags_.Shown("gradient_accumulation_steps"));
  }

  bool HasAdapters() {
    const std::string method = flags_.Has("finetuning_type") ? Word("finetuning_type") : Word("adapter");
    if (method == "lora" || method == "qlora") return true;
    if (method == "freeze")
      flags_.Refuse(flags_.Has("finetuning_type") ? "finetuning_type" : "adapter", "full or lora");
    // FastChat's and LLaMA-Factory's scripts for full training have none of these.
    return Flag("use_peft") || (flags_.Has("lora_r") && !flags_.Has("use_peft") && method.empty());
  }
  bool IsIn4Bits() {
    return Flag("load_in_4bit") || Flag("q_lora") || Word("adapter") == "qlora" ||
           Word("quantization_bit") == "4" || Word("bits") == "4";
  }

  void Adapters() {
    has_adapters_ = HasAdapters();
    if (!has_adapters_) {
      flags_.Ignore({"lora_r"});
      if (draft_.HasBelow("model.lora")) has_adapters_ = true;
      return;
    }
    const bool is_llama_factory = flags_.Has("finetuning_type");
    int64_t rank = is_llama_factory ? 8 : 16;
    if (const auto value = flags_.Integer("lora_r")) rank = *value;
    const std::string whose = is_llama_factory ? "LLaMA-Factory's default" : "TRL's default";
    const auto remark = [&](std::string_view name) { return flags_.ShownOr(name, whose); };
    draft_.Set("model.lora.rank", rank, remark("lora_r"));
    draft_.Set("model.lora.alpha",
               flags_.Number("lora_alpha").value_or(is_llama_factory ? 2 * static_cast<double>(rank) : 32),
               remark("lora_alpha"));
    const bool drops = !is_llama_factory && !IsAxolotl();
    draft_.Set("model.lora.dropout", flags_.Number("lora_dropout").value_or(drops ? 0.05 : 0),
               flags_.ShownOr("lora_dropout", IsAxolotl() ? "Axolotl's default" : whose));
    Targets(is_llama_factory);
    if (!IsIn4Bits()) return;
    // LLaMA-Factory and qlora.py quantize the scales, too.
    const bool is_double =
        Flag("use_bnb_nested_quant", is_llama_factory || flags_.Has("bits") || IsAxolotl());
    draft_.Set("model.lora.quantize", is_double ? "nf4_double" : "nf4",
               flags_.ShownOr("use_bnb_nested_quant", "weights in 4 bits"));
  }

  void Targets(bool is_llama_factory) {
    if (Flag("lora_target_linear"))
      return draft_.Set("model.lora.targets", "[]", flags_.Shown("lora_target_linear"));
    const std::string_view name = FirstOf({"lora_target_modules", "lora_target"}, flags_);
    if (name.empty())
      return is_llama_factory ? draft_.Set("model.lora.targets", "[]", "LLaMA-Factory's default")
                              : draft_.Set("model.lora.targets", "[q, v]", "peft's default");
    std::string list;
    for (std::string value : flags_.List(name)) {
      std::replace(value.begin(), value.end(), ',', ' ');
      for (const std::string& word : SplitWords(value)) {
        if (word == "all" || word == "all-linear")
          return draft_.Set("model.lora.targets", "[]", flags_.Shown(name));
        const size_t before = list.size();
        for (const LayerName& layer : kLayerNames)
          if (layer.theirs == word) list += (list.empty() ? "" : ", ") + std::string(layer.ours);
        if (list.size() == before)
          return flags_.Refuse(name, "linear layers of blocks (q_proj, …) or all-linear");
      }
    }
    draft_.Set("model.lora.targets", std::string_view("[" + list + "]"), flags_.Shown(name));
  }

  void Optimizer() {
    const std::string kind = flags_.Has("optim") ? Word("optim")
                             : HasTrainer()      ? "adamw_torch_fused"
                                                 : "adamw_torch";
    if (kind.starts_with("adamw") || kind.starts_with("paged_adamw")) {
      draft_.Set("optimizer.kind", "adamw", flags_.ShownOr("optim", Default()));
      if (kind == "adamw_torch_fused")
        draft_.Set("optimizer.fused", "true",
                   flags_.ShownOr("optim", "the Trainer's default since PyTorch 2.8"));
    } else if (kind == "sgd") {
      draft_.Set("optimizer.kind", "sgd", flags_.Shown("optim"));
    } else {
      return flags_.Refuse("optim", "one of adamw's kinds, or sgd");
    }
    Copy("optimizer.lr", "learning_rate");
    if (!flags_.Has("learning_rate"))
      draft_.Set("optimizer.lr", IsTrl() ? 2e-5 : 5e-5, IsTrl() ? kTrl : Default());
    draft_.Set("optimizer.weight_decay", flags_.Number("weight_decay").value_or(0),
               flags_.ShownOr("weight_decay", Default()));
    if (kind != "sgd")
      for (const auto& [key, name] :
           {std::pair("beta1", "adam_beta1"), {"beta2", "adam_beta2"}, {"eps", "adam_epsilon"}})
        Copy(fmt::format("optimizer.{}", key), name);
    if (!HasTrainer() && !flags_.Has("max_grad_norm")) return;  // no clipping
    if (Word("max_grad_norm") != "auto")
      draft_.Set("optimizer.clip_norm", std::max(flags_.Number("max_grad_norm").value_or(1.0), 0.0),
                 flags_.ShownOr("max_grad_norm", kDefault));
    else draft_.Set("optimizer.clip_norm", 1.0, kDefault);
  }

  // bitsandbytes' and torchao's optimizers of fewer bits, once it is known how parameters are sharded.
  void NarrowMoments() {
    const std::string kind = flags_.Has("optim") ? Word("optim") : "";
    const bool in_8_bits = kind.ends_with("8bit"), in_4_bits = kind.ends_with("4bit");
    const std::string* data = draft_.Find("parallel.data.kind");
    const bool shards_parameters =
        draft_.FindInteger("parallel.data.version").value_or(1) == 2 && data != nullptr && *data == "fsdp";
    const bool is_possible = data == nullptr || *data == "none" || *data == "ddp" || shards_parameters;
    if (in_8_bits && is_possible) {
      draft_.Set("optimizer.moments", "int8", flags_.Shown("optim"));
      if (kind != "adamw_torch_8bit")
        draft_.Note(
            "The Trainer has bitsandbytes keep the moments of embeddings in fp32, 6 bytes an element more "
            "than "
            "predicted.");
    } else if (in_8_bits || in_4_bits)
      draft_.Note(fmt::format("Moments in {} bits ({} {}) are not modelled{}: memory is an upper bound.",
                              in_8_bits ? 8 : 4, flags_.Shown("optim"), kind,
                              in_8_bits ? " with FSDP 1 or ZeRO" : ""));
    if (kind.starts_with("paged_"))
      draft_.Note(fmt::format("Paged moments ({} {}) count as the device's memory, which they may leave.",
                              flags_.Shown("optim"), kind));
  }

  // Once it is known how sequences are divided.
  void Liger() {
    const std::string_view name =
        FirstOf({"use_liger_kernel", "enable_liger_kernel", "liger_fused_linear_cross_entropy"}, flags_);
    if (name.empty() || !Flag(name)) return;
    const std::optional<ModelSpec> model = NamedModel(draft_);
    const std::string* framework = draft_.Find("framework");
    const bool has_loss = framework != nullptr && framework->starts_with("pytorch");
    const int64_t context = draft_.FindInteger("parallel.context.size").value_or(1);
    const int64_t tokens = Product(
        {draft_.FindInteger("batch.micro").value_or(0), draft_.FindInteger("model.seq_len").value_or(0)});
    constexpr int64_t kMost = 1'000'000'000'000;
    const auto is_size = [&](int64_t size) { return size > 0 && size <= kMost; };
    const bool is_known = model && is_size(model->hidden) && is_size(model->vocab) && is_size(tokens) &&
                          context > 0 && tokens % context == 0;
    if (!has_loss || !is_known || model->encoder || model->mtp || draft_.HasBelow("model.mtp"))
      return draft_.Note("Liger's kernels are not modelled.");
    draft_.Note("Of Liger's kernels, only its loss is modelled.");
    draft_.Set("cross_entropy", "fused", flags_.Shown(name));
    if (const int64_t parts = LigersParts(tokens / context, model->hidden, model->vocab); parts > 1)
      draft_.Set("cross_entropy_chunks", parts, flags_.Shown(name));
  }

  void Recomputation() {
    const std::string asked = Word("gradient_checkpointing");
    if (asked.starts_with("offload")) {  // Axolotl's
      draft_.Set("recompute", "full", flags_.Shown("gradient_checkpointing"));
      draft_.Set("activation_offload", "true", flags_.Shown("gradient_checkpointing"));
      return;
    }
    if (IsLlamaFactory()) {  // asks for this key alone
      if (!Flag("disable_gradient_checkpointing"))
        draft_.Set("recompute", "full",
                   asked == "true" ? flags_.Shown("gradient_checkpointing") : "LLaMA-Factory's default");
      return;
    }
    const bool asks_model = Flag("gradient_checkpointing"), asks_fsdp = Flag("fsdp_activation_checkpointing");
    if (asks_model || asks_fsdp)
      return draft_.Set(
          "recompute", "full",
          flags_.Shown(asks_model ? "gradient_checkpointing" : "fsdp_activation_checkpointing"));
    if (IsTrl() && asked.empty()) draft_.Set("recompute", "full", kTrl);
  }

  // accelerate counts all processes, torchrun those of a node.
  void Cluster() {
    if (draft_.Has("cluster.nodes") && draft_.Has("cluster.devices_per_node")) {
      flags_.Ignore({"num_machines", "num_processes"});
      return;
    }
    if (const auto machines = flags_.Integer("num_machines"))
      draft_.Set("cluster.nodes", *machines, flags_.Shown("num_machines"));
    const auto processes = flags_.Integer("num_processes");
    if (!processes) return;
    const int64_t nodes = draft_.FindInteger("cluster.nodes").value_or(1);
    draft_.Set("cluster.nodes", nodes, "accelerate's default");
    if (draft_.Has("cluster.devices_per_node")) return;
    if (nodes < 1 || *processes % nodes != 0 || *processes < nodes)
      return flags_.Refuse("num_processes", fmt::format("a multiple of the {} nodes", nodes));
    draft_.Set("cluster.devices_per_node", *processes / nodes, flags_.Shown("num_processes"));
  }

  HuggingFaceMode Mode() {
    HuggingFaceMode mode;
    mode.has_adapters = has_adapters_;
    mode.is_recomputed = draft_.Has("recompute");
    // The Trainer's own flags come before accelerate's.
    std::string accelerates = Word("mixed_precision");
    if (accelerates == "fp8") {
      accelerates = "bf16";
      draft_.Note(
          "Products in fp8 (mixed_precision) are taken in bf16 here; torchao's are --set "
          "precision.compute=fp8 --set precision.fp8_recipe=rowwise.");
    }
    const bool fp16 = Flag("fp16") || Flag("float16");
    const bool trains_in_bf16 = IsTrl() && !flags_.Has("bf16") && !fp16;
    const bool bf16 = Flag("bf16") || Flag("pure_bf16") || trains_in_bf16;
    mode.mixed = bf16                                             ? "bf16"
                 : fp16                                           ? "fp16"
                 : accelerates == "bf16" || accelerates == "fp16" ? accelerates
                                                                  : "";
    mode.mixed_remark = flags_.Shown(bf16   ? (Flag("bf16") ? "bf16" : "pure_bf16")
                                     : fp16 ? (Flag("fp16") ? "fp16" : "float16")
                                            : "mixed_precision");
    if (trains_in_bf16) mode.mixed_remark = kTrl;
    if (!HasTrainer() || IsAxolotl() || (IsLlamaFactory() && has_adapters_)) mode.finds_unused = false;
    mode.loads_16_bits = Loads16Bits(!mode.mixed.empty());
    return mode;
  }

  // Whether parameters are loaded in 16 bits.
  bool Loads16Bits(bool is_mixed) {
    const std::string dtype = Word("dtype");
    if (dtype == "auto" || dtype == "null") return true;
    if (!dtype.empty())
      return dtype.ends_with("bfloat16") || dtype.ends_with("float16") || dtype == "bf16" || dtype == "fp16";
    if (Flag("pure_bf16") || Flag("bfloat16")) return true;
    const bool is_quantized = draft_.Has("model.lora.quantize");
    return is_quantized || (is_mixed && (IsAxolotl() || (IsLlamaFactory() && has_adapters_)));
  }

  Settings& flags_;
  std::string program_;
  const ReadNamedFile& read_;
  Draft& draft_;
  std::optional<ModelSpec> known_;  // the model that is named, or that its configuration describes
  bool has_adapters_ = false;
};

}  // namespace

bool IsHuggingFace(const Settings& settings) {
  if (settings.Holds("num_layers")) return false;  // Megatron's
  for (const char* name :
       {"per_device_train_batch_size", "model_name_or_path", "base_model", "compute_environment",
        "distributed_type", "fsdp_config.fsdp_version", "config_file", "config_name"})
    if (settings.Holds(name)) return true;
  return false;
}

Status ImportHuggingFace(const Settings& given, const std::string& program, const ReadNamedFile& read,
                         Draft& draft) {
  Settings all = AllOfHuggingFace(given, read);
  return Importer(all, program, read, draft).Import();
}

}  // namespace windtunnel
