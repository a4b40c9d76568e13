#include "scenarios/importers/megatron.h"

#include <algorithm>
#include <string>
#include <vector>

#include "scenarios/importers/cluster_size.h"
#include "scenarios/importers/megatron_flags.h"
#include "scenarios/importers/megatron_layout.h"
#include "scenarios/importers/rest.h"
#include "scenarios/layer_pattern.h"

namespace windtunnel {
namespace {

// What changes nothing in a step's time or memory here, or has the only value that is modelled. '*' stands
// for any end.
constexpr std::string_view kWithoutEffect =
    "DDP_impl "
    "account adlr_autoresume* align_grad_reduce align_param_gather apply_layernorm_1p apply_rope_fusion "
    "async_save attention_mask_in_dataloader attention_softmax_in_fp32 "
    "bash beta_* "
    "calculate_per_token_loss check_for_nan_in_loss_and_grad check_weight_hash_across_dp_replicas_interval "
    "ckpt_* container_* cpus_per_task cuda_graph_warmup_steps "
    "data_* dataloader_type ddp_* decoupled_* decrease_batch_size_if_needed deepspeed_* deterministic_mode "
    "disable_gloo_process_groups dist_ckpt* dist_url distributed_backend distributed_timeout_minutes "
    "empty_unused_memory_level enable_experimental end_weight_decay eod_mask_loss error eval_* exclusive "
    "exit_* export "
    "finetune fp8_amax_* fp8_interval fp8_margin "
    "global_batch_size gres "
    "hidden_dropout "
    "inference_* init_method_std inspect* "
    "job_name "
    "kill_on_bad_exit "
    "load* local_ranks_filter log_* lr_* "
    "manual_gc* master_* max_absolute_position_embeddings max_restarts mem merge_file min_lr mock_data "
    "moe_aux_loss_coeff moe_grouped_gemm moe_input_jitter_eps moe_pad_expert_input_to_capacity "
    "moe_per_layer_logging moe_permute_fusion moe_router_* moe_token_drop_policy moe_use_legacy_grouped_gemm "
    "moe_z_loss_coeff mpi mscale* "
    "nccl_* no_bias_* no_check_for_nan_in_loss_and_grad no_create_attention_mask_in_dataloader "
    "no_gradient_accumulation_fusion no_initialization no_load_* no_masked_softmax_fusion no_mmap_bin_files "
    "no_persist_layer_norm no_pipeline_parallel no_position_embedding no_rope_fusion no_save_* "
    "no_weight_decay_cond_type node_rank "
    "ntasks num_workers "
    "original_max_position_embeddings output overlap_grad_reduce overlap_p2p_communication "
    "overlap_param_gather "
    "override_* "
    "partition profile* "
    "rampup_batch_size rdzv_* record_memory_history redirects reset_position_ids "
    "reuse_grad_buf_for_mxfp8_param_ag rope_* rotary_scaling_factor "
    "save* seed sequence_parallel short_seq_prob split standalone start_weight_decay "
    "te_rng_tracker tee tensorboard* test_* tiktoken_* time timing_* tokenizer_* train_* transformer_impl "
    "untie_embeddings_and_output_weights use_checkpoint_* use_cpu_initialization use_distributed_optimizer "
    "use_mcore_models use_rope_scaling "
    "valid_* vocab_* "
    "wandb* weight_decay_incr_style";
static_assert(ArePatterns(kWithoutEffect));

class Importer : MegatronFlags {
 public:
  Importer(LaunchCommand& command, Draft& draft) : MegatronFlags(command, draft), command_(command) {}

  Status Import() {
    WT_RETURN_IF_ERROR(RefuseOtherModels());
    ImportMegatronModel(command_, draft_);
    Framework();
    ImportMegatronTraining(command_, draft_);
    Parallel();
    for (const std::string& flags : command_.left_out)
      draft_.Note(fmt::format("Left out, since it is not known what they are or whether they are given: {}.",
                              WithUnknownShown(flags)));
    for (const char* type : {"main_params_dtype", "main_grads_dtype"})
      if (const Setting* setting = flags_.Peek(type);
          setting != nullptr && setting->values == std::vector<std::string>{"fp32"})
        flags_.Ignore({type});  // as they always are
    NoteRest(flags_, kWithoutEffect, draft_);
    return WithWhatIsLeftOut(flags_.status());
  }

 private:
  // What is missing may stand under a condition.
  Status WithWhatIsLeftOut(Status status) const {
    if (status || command_.left_out.empty()) return status;
    Error error = status.error();
    for (const std::string& flags : command_.left_out)
      error.others.push_back(
          fmt::format("{}: left out, since a condition or a variable is not known here: {} (--define "
                      "NAME=VALUE gives it)",
                      flags_.source(), WithUnknownShown(flags)));
    return tl::unexpected(error);
  }

  // Training scripts and flags of models that scenarios cannot express.
  Status RefuseOtherModels() {
    for (const char* program : {"vlm", "vision", "retro", "_ict", "biencoder", "multimodal"})
      if (program_.find(program) != std::string::npos)
        return Unsupported("{}: models of {} cannot be expressed; GPT's, BERT's, T5's and Mamba-2's can",
                           flags_.source(), program_);
    constexpr char kHeterogeneous[] = "heterogeneous_layers_config_path";
    if (flags_.Has(kHeterogeneous))
      return Unsupported("{}: {}: such models cannot be expressed", flags_.source(),
                         flags_.Shown(kHeterogeneous));
    for (const char* flag : {"encoder_pipeline_model_parallel_size", "encoder_tensor_model_parallel_size"})
      if (flags_.Integer(flag).value_or(0) > 0)
        return Unsupported("{}: {}: an encoder with ranks of its own cannot be expressed", flags_.source(),
                           flags_.Shown(flag));
    return Ok();
  }

  void Framework() {
    const bool is_deepspeed = flags_.Flag("deepspeed");
    if (is_deepspeed || flags_.Has("deepspeed_config")) {
      flags_.Ignore({"deepspeed_config"});
      draft_.Set("framework", "deepspeed", flags_.Shown(is_deepspeed ? "deepspeed" : "deepspeed_config"));
      draft_.Note("--deepspeed_config is not read: ZeRO's stage is that of --zero-stage.");
    }
    // Flags that were given up in 2022.
    for (const char* old : {"checkpoint_activations", "ddp_impl"})
      if (flags_.Has(old)) draft_.Set("framework", "megatron", flags_.Shown(old) + ", a flag of 2021");
    draft_.Set("framework", "megatron_core");
  }

  void Parallel() {
    const std::optional<int64_t> world = SetCluster(flags_, draft_);
    if (tensor_ > 1) {
      Integer("parallel.tensor.size", "tensor_model_parallel_size");
      Sets("parallel.tensor.sequence", "sequence_parallel", "true");
      Sets("parallel.tensor.overlap", "tp_comm_overlap", "true");
    } else {
      flags_.Ignore({"sequence_parallel", "tp_comm_overlap"});
    }
    if (pipeline_ > 1) Pipeline();
    else flags_.Ignore({kCountsEmbedding, kCountsLoss});
    if (context_ > 1) Context();
    if (flags_.Integer("num_experts").value_or(0) > 0) Experts();
    const std::optional<int64_t> data =
        world ? DataRanks(*world, tensor_, pipeline_, context_, flags_) : std::nullopt;
    if (data) Data(*data);
  }

  void Experts() {
    const std::string dispatcher = flags_.Text("moe_token_dispatcher_type").value_or("allgather");
    const bool enables_deepep = flags_.Flag("moe_enable_deepep");
    const bool deepep = dispatcher == "flex" || enables_deepep;
    flags_.Ignore({"moe_flex_dispatcher_backend"});
    Integer("parallel.expert.size", "expert_model_parallel_size");
    Integer("parallel.expert.tensor", "expert_tensor_parallel_size");
    if (deepep)
      draft_.Set("parallel.expert.dispatcher", "deepep",
                 flags_.Shown(dispatcher == "flex" ? "moe_token_dispatcher_type" : "moe_enable_deepep"));
    if (dispatcher == "allgather" && flags_.Integer("expert_model_parallel_size").value_or(1) > 1)
      draft_.Note(
          "Tokens are exchanged by all-to-alls here: gathering all of them (Megatron's default, "
          "--moe-token-dispatcher-type allgather) is not modelled.");
    Sets("parallel.expert.overlap", "overlap_moe_expert_parallel_comm", "true");
    Sets("parallel.expert.delay_wgrad", "delay_wgrad_compute", "true");
  }

  void Pipeline() {
    Integer("parallel.pipeline.size", "pipeline_model_parallel_size");
    if (flags_.Has("pipeline_model_parallel_layout")) return Layout();
    int64_t stages = 1;
    std::string remark;
    if (const auto layers = flags_.Integer("num_layers_per_virtual_pipeline_stage"); layers && *layers > 0) {
      stages = VirtualStages(*layers);
      remark = flags_.Shown("num_layers_per_virtual_pipeline_stage");
    } else if (const auto virtual_stages = flags_.Integer("num_virtual_stages_per_pipeline_rank")) {
      stages = *virtual_stages;
      remark = flags_.Shown("num_virtual_stages_per_pipeline_rank");
    }
    if (hybrid_ && !hybrid_->stages.empty()) {
      stages = VirtualStagesOf(*hybrid_);
      remark = hybrid_->remark;
    }
    if (stages > 1) {
      draft_.Set("parallel.pipeline.schedule", "interleaved", remark);
      draft_.Set("parallel.pipeline.virtual_stages", stages, remark);
    }
    if (hybrid_ && !hybrid_->is_pure) BalanceHybrid(*hybrid_, stages);
    else if (counted_ends() > 0 && !has_uneven_ends()) BalanceWithEnds();
    else Balance(stages);
  }

  // What Megatron may count as a layer of the first and of the last stage.
  static constexpr char kCountsEmbedding[] = "account_for_embedding_in_pipeline_split";
  static constexpr char kCountsLoss[] = "account_for_loss_in_pipeline_split";
  bool counts_embedding() { return flags_.Flag(kCountsEmbedding); }
  bool counts_loss() { return flags_.Flag(kCountsLoss); }
  int64_t counted_ends() { return (counts_embedding() ? 1 : 0) + (counts_loss() ? 1 : 0); }
  bool has_uneven_ends() {
    return flags_.Has("decoder_first_pipeline_num_layers") || flags_.Has("decoder_last_pipeline_num_layers");
  }

  // Equal stages, of which the first has the embedding and the last the loss in the place of a layer.
  void BalanceWithEnds() {
    const int64_t virtual_stages = draft_.FindInteger("parallel.pipeline.virtual_stages").value_or(1);
    const int64_t stages = Product({pipeline_, std::max<int64_t>(virtual_stages, 1)});
    const char* flag = counts_loss() ? kCountsLoss : kCountsEmbedding;
    if (draft_.Has("parallel.pipeline.balance") || layers_ < 1 || layers_ > kMostLayers) return;
    const int64_t all = layers_ + counted_ends();
    if (all % stages != 0)
      return flags_.Fail(
          "{}: {} layers, with what it counts, are no multiple of {} stages, expected other --num-layers",
          flags_.Shown(flag), all, stages);
    std::string list;
    for (int64_t stage = 0; stage < stages; ++stage) {
      const bool is_first = stage == 0, is_last = stage == stages - 1;
      const int64_t ends = (is_first && counts_embedding() ? 1 : 0) + (is_last && counts_loss() ? 1 : 0);
      list += fmt::format("{}{}", is_first ? "" : ", ", all / stages - ends);
    }
    draft_.Set("parallel.pipeline.balance", std::string_view("[" + list + "]"), flags_.Shown(flag));
  }

  // Each pipeline rank has as many of the stages that | separates.
  int64_t VirtualStagesOf(const HybridLayers& hybrid) {
    const int64_t stages = static_cast<int64_t>(hybrid.stages.size());
    if (stages % pipeline_ != 0)
      flags_.Fail("{} has {} stages, expected a multiple of {} pipeline ranks", hybrid.remark, stages,
                  pipeline_);
    return stages / pipeline_;
  }

  // Megatron's stages have the letters that | separates, or equally many. One that begins with an MLP, whose
  // mixer another stage has, cannot be expressed.
  void BalanceHybrid(const HybridLayers& hybrid, int64_t virtual_stages) {
    std::vector<std::string> stages = hybrid.stages;
    const size_t count = static_cast<size_t>(Product({pipeline_, std::max<int64_t>(virtual_stages, 1)}));
    const size_t letters = hybrid.letters.size();
    if (stages.empty() && letters > 0 && letters % count == 0)
      for (size_t i = 0; i < count; ++i)
        stages.push_back(hybrid.letters.substr(i * letters / count, letters / count));
    bool fits = !stages.empty() && !stages[0].empty();
    for (size_t i = 1; i < stages.size() && fits; ++i)
      fits = !stages[i].empty() && (IsMixer(stages[i][0]) || !IsMixer(stages[i - 1].back()));
    if (!fits)
      return draft_.Note(
          "Layers are divided over stages as Windtunnel does it: one of Megatron's stages begins with the MLP "
          "behind a mixer (M or *) of the stage before it.");
    std::string list;
    for (const std::string& stage : stages)
      list += (list.empty() ? "" : ", ") + std::to_string(LayersInPattern(stage));
    draft_.Set("parallel.pipeline.balance", std::string_view("[" + list + "]"),
               "mixers with what is behind them, of " + hybrid.remark);
  }

  // How many stages of `layers` each a pipeline rank has.
  int64_t VirtualStages(int64_t layers) {
    const int64_t all = layers_ + counted_ends();
    if (!has_uneven_ends() && all % Product({pipeline_, layers}) != 0)
      flags_.Refuse(
          "num_layers_per_virtual_pipeline_stage",
          fmt::format("a number whose product with {} pipeline ranks divides {} layers", pipeline_, all));
    return all / pipeline_ / layers;
  }

  // "Et*3|(tt|)*29L"
  void Layout() {
    constexpr char kLayout[] = "pipeline_model_parallel_layout";
    const std::string text = flags_.Text(kLayout).value_or("");
    const std::optional<std::vector<LayoutStage>> stages = ReadMegatronLayout(text);
    if (!stages || stages->size() % static_cast<size_t>(std::max<int64_t>(pipeline_, 1)) != 0 ||
        !stages->front().has_embedding || !stages->back().has_loss)
      return flags_.Refuse(kLayout,
                           fmt::format("stages for {} pipeline ranks, as in 'Et*3|(tt|)*29L'", pipeline_));
    const std::string remark = flags_.Shown(kLayout);
    if (const int64_t of_a_rank = static_cast<int64_t>(stages->size()) / pipeline_; of_a_rank > 1) {
      draft_.Set("parallel.pipeline.schedule", "interleaved", remark);
      draft_.Set("parallel.pipeline.virtual_stages", of_a_rank, remark);
    }
    const bool is_set = draft_.Has("parallel.pipeline.balance");
    const LayoutStage& last = stages->back();
    std::string list;
    for (const LayoutStage& stage : *stages) {
      list += (list.empty() ? "" : ", ") + std::to_string(stage.layers);
      if (stage.predictions == 0 || &stage == &last) continue;
      const bool is_before_heads = &stage == &last - 1 && last.layers == 0 && last.predictions == 0;
      if (!is_before_heads && !is_set)
        return flags_.Fail(
            "{} has multi-token prediction (m) neither with the loss nor in the stage before it, which "
            "cannot "
            "be expressed; expected another division with --set parallel.pipeline.balance=[…]",
            remark);
      if (is_before_heads && !draft_.Has("parallel.pipeline.mtp"))
        draft_.Set("parallel.pipeline.mtp", "before_last", remark);
    }
    if (is_set) return;
    draft_.Set("parallel.pipeline.balance", std::string_view("[" + list + "]"), remark);
  }

  // The layers of each stage, where the first and the last have a number of their own.
  void Balance(int64_t virtual_stages) {
    const std::optional<int64_t> first = flags_.Integer("decoder_first_pipeline_num_layers");
    const std::optional<int64_t> last = flags_.Integer("decoder_last_pipeline_num_layers");
    if (!first && !last) return;
    const int64_t inner = pipeline_ - (first ? 1 : 0) - (last ? 1 : 0);
    const int64_t left = layers_ - first.value_or(0) - last.value_or(0);
    if (virtual_stages > 1 || left < 0 || (inner == 0 ? left != 0 : left % inner != 0 || left == 0)) {
      draft_.Note(fmt::format("Layers are divided over stages as Windtunnel does it: {} and {} are left out.",
                              flags_.Shown("decoder_first_pipeline_num_layers"),
                              flags_.Shown("decoder_last_pipeline_num_layers")));
      return;
    }
    std::string list;
    for (int64_t stage = 0; stage < pipeline_; ++stage) {
      const bool is_first = stage == 0 && first, is_last = stage == pipeline_ - 1 && last;
      list += fmt::format("{}{}", stage > 0 ? ", " : "", is_first ? *first : is_last ? *last : left / inner);
    }
    const std::string of_first = first ? flags_.Shown("decoder_first_pipeline_num_layers") : "";
    const std::string of_last = last ? flags_.Shown("decoder_last_pipeline_num_layers") : "";
    draft_.Set("parallel.pipeline.balance", std::string_view("[" + list + "]"),
               of_first + (first && last ? ", " : "") + of_last);
  }

  void Context() {
    Integer("parallel.context.size", "context_parallel_size");
    const std::string kind = flags_.Text("cp_comm_type").value_or("p2p");
    const std::string remark = flags_.ShownOr("cp_comm_type", kDefault);
    if (kind == "p2p") draft_.Set("parallel.context.kind", "ring", remark);
    else if (kind == "all_gather") draft_.Set("parallel.context.kind", "all_gather", remark);
    else if (kind == "a2a") draft_.Set("parallel.context.kind", "ulysses", remark);
    else flags_.Refuse("cp_comm_type", "p2p, all_gather or a2a, since combinations are not modelled");
  }

  void Data(int64_t data) {
    const std::string own = KindOfOwnFsdp();
    const bool torch = flags_.Flag("use_torch_fsdp2"), fsdp = torch || own == "fsdp";
    const bool shards_optimizer = flags_.Flag("use_distributed_optimizer");
    const bool zero1 = own.empty() ? shards_optimizer : own == "zero1";
    const int64_t stage = flags_.Integer("zero_stage").value_or(0);  // Megatron-DeepSpeed
    const char* kind = fsdp                  ? "fsdp"
                       : !own.empty()        ? own.c_str()
                       : zero1 || stage == 1 ? "zero1"
                       : stage == 2          ? "zero2"
                       : stage == 3          ? "zero3"
                                             : "ddp";
    const bool alone = data == 1 && context_ == 1 && !fsdp;
    if (!alone)
      draft_.Set("parallel.data.kind", kind,
                 !own.empty() ? flags_.ShownOr("data_parallel_sharding_strategy", kDefault)
                 : torch      ? flags_.Shown("use_torch_fsdp2")
                 : zero1      ? flags_.Shown("use_distributed_optimizer")
                              : flags_.ShownOr("zero_stage", kDefault));
    draft_.Set("parallel.data.size", data, "the ranks that are left");
    const bool overlaps = flags_.Flag("overlap_grad_reduce"), gathers = flags_.Flag("overlap_param_gather");
    const std::optional<int64_t> instances = flags_.Integer("num_distributed_optimizer_instances");
    if (!alone && !fsdp) {
      const bool is_deepspeeds = stage > 0 && !zero1;  // with the defaults of its file, which is not read
      draft_.Set("parallel.data.overlap", is_deepspeeds ? stage == 3 : overlaps,
                 is_deepspeeds ? std::string("DeepSpeed's default")
                 : overlaps    ? flags_.Shown("overlap_grad_reduce")
                               : std::string("no --overlap-grad-reduce"));
      if (zero1 && gathers)
        draft_.Set("parallel.data.overlap_param_gather", "true", flags_.Shown("overlap_param_gather"));
      if (zero1 && instances && *instances > 1)
        draft_.Set("parallel.data.shard_size", Product({data, context_}) / *instances,
                   flags_.Shown("num_distributed_optimizer_instances"));
      Bucket(overlaps);
    }
    if (own == "fsdp" && instances && *instances > 1) {
      const char* flag = "num_distributed_optimizer_instances";
      draft_.Set("parallel.data.sharding", "hybrid_shard", flags_.Shown(flag));
      draft_.Set("parallel.data.shard_size", Product({data, context_}) / *instances, flags_.Shown(flag));
    }
    Offload();
    Batch(data);
  }

  // The data parallelism that shards what Megatron's own FSDP does; empty without that.
  std::string KindOfOwnFsdp() {
    constexpr char kStrategy[] = "data_parallel_sharding_strategy";
    const bool is_newer = flags_.Flag("use_megatron_fsdp"), is_older = flags_.Flag("use_custom_fsdp");
    if (!is_newer && !is_older) {
      flags_.Ignore({kStrategy});
      return "";
    }
    const std::string strategy = flags_.Text(kStrategy).value_or("no_shard");
    const std::string kind = strategy == "no_shard"             ? "ddp"
                             : strategy == "optim"              ? "zero1"
                             : strategy == "optim_grads"        ? "zero2"
                             : strategy == "optim_grads_params" ? "fsdp"
                                                                : "";
    if (kind.empty()) flags_.Refuse(kStrategy, "no_shard, optim, optim_grads or optim_grads_params");
    else
      draft_.Note(fmt::format(
          "Megatron's own FSDP ({}) is not modelled: {} shards the same, with other buffers and prefetching.",
          flags_.Shown(is_newer ? "use_megatron_fsdp" : "use_custom_fsdp"), kind));
    return kind;
  }

  // --optimizer-offload-fraction says nothing without --optimizer-cpu-offload.
  void Offload() {
    if (!flags_.Flag("optimizer_cpu_offload")) return flags_.Ignore({"optimizer_offload_fraction"});
    const double fraction = flags_.Number("optimizer_offload_fraction").value_or(1);
    if (fraction == 0) return;
    if (fraction != 1)
      draft_.Note(fmt::format(
          "All of the optimizer's states are on the host here: a share of them ({}) is not modelled.",
          flags_.Shown("optimizer_offload_fraction")));
    draft_.Set("parallel.data.offload", "optimizer", flags_.Shown("optimizer_cpu_offload"));
  }

  // --ddp-bucket-size counts parameters, whose gradients are reduced in fp32 or 16 bits. Without overlap all
  // gradients are one bucket.
  void Bucket(bool overlaps) {
    constexpr char kKey[] = "parallel.data.bucket_cap_mb", kNumber[] = "ddp_num_buckets";
    const std::optional<int64_t> elements = flags_.Integer("ddp_bucket_size");
    if (flags_.Holds(kNumber) && overlaps && !draft_.Has(kKey)) {
      const int64_t buckets = flags_.Integer(kNumber).value_or(1);
      draft_.Note(fmt::format(
          "{} {} is left out, since a rank's parameters are not counted here: --set {}=N gives the MiB of a "
          "bucket's gradients.",
          flags_.Shown(kNumber), buckets, kKey));
    }
    if (!elements || *elements <= 0) return;
    const std::string* reduce = draft_.Find("precision.reduce");
    const double bytes = static_cast<double>(*elements) * (reduce == nullptr || *reduce == "fp32" ? 4 : 2);
    draft_.Set(kKey, bytes / (1 << 20), flags_.Shown("ddp_bucket_size"));
  }

  void Batch(int64_t data) {
    Required("batch.micro", "micro_batch_size");
    const int64_t micro = Effective("batch.micro", "micro_batch_size", 0);
    const std::optional<int64_t> global = flags_.Integer("global_batch_size");
    if (!global || micro <= 0) return;
    const int64_t of_all = Product({micro, data});
    if (*global % of_all != 0 || *global <= 0)
      return flags_.Refuse(
          "global_batch_size",
          fmt::format("a multiple of {} ({} data ranks x micro-batches of {})", of_all, data, micro));
    draft_.Set("batch.accumulate", *global / of_all,
               flags_.Shown("global_batch_size") + " / (micro-batch x data)");
    if (flags_.Has("rampup_batch_size")) draft_.Note("The step is one after the batch's ramp-up.");
  }

  static constexpr int64_t kMostLayers = 10'000;
  LaunchCommand& command_;
  // Before the model's keys are set: what --set says.
  const std::optional<HybridLayers> hybrid_ = hybrid_layers();
  const int64_t layers_ = hybrid_ && !hybrid_->is_pure ? static_cast<int64_t>(hybrid_->letters.size())
                                                       : Effective("model.layers", "num_layers", 0),
                tensor_ = tensor_ranks(), pipeline_ = stages(), context_ = context_ranks();
};

}  // namespace

Status ImportMegatron(LaunchCommand& command, Draft& draft) { return Importer(command, draft).Import(); }

}  // namespace windtunnel
