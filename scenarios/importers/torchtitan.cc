#include "scenarios/importers/torchtitan.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "base/text.h"
#include "scenarios/importers/cluster_size.h"
#include "scenarios/importers/named_model.h"
#include "scenarios/importers/rest.h"

namespace windtunnel {
namespace {

constexpr char kDefault[] = "torchtitan's default";
constexpr int64_t kMostLayers = 10'000;

// Models of torchtitan that have presets.
struct Flavor {
  std::string_view name, flavor, preset;
};
constexpr Flavor kFlavors[] = {
    {"llama3", "8B", "llama3-8b"},
    {"llama3", "70B", "llama3-70b"},
    {"llama3", "405B", "llama3-405b"},
    {"llama3_simple_fsdp", "8B", "llama3-8b"},
    {"llama2", "7B", "llama2-7b"},
    {"llama2", "13B", "llama2-13b"},
    {"llama2", "70B", "llama2-70b"},
    {"llama4", "17bx16e", "llama4-scout"},
    {"llama4", "17bx128e", "llama4-maverick"},
    {"deepseek_v3", "16B", "deepseek-v2-lite"},
    {"deepseek_v3", "671B", "deepseek-v3"},
    {"qwen3", "0.6B", "qwen3-0.6b"},
    {"qwen3", "8B", "qwen3-8b"},
    {"qwen3", "32B", "qwen3-32b"},
    {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
    {"qwen3", "235B-A22B", "qwen3-235b-a22b"},
    {"gpt_oss", "20b", "gpt-oss-20b"},
    {"gpt_oss", "120b", "gpt-oss-120b"},
};

// What changes nothing in a step's time or memory here, or has the only value that is modelled. '*' stands
// for any end.
constexpr std::string_view kWithoutEffect =
    "activation_checkpoint.* "
    "checkpoint.* "
    "comm.* "
    "compile.* "
    "debug.* "
    "experimental.context_parallel_rotate_method experimental.custom_* "
    "experimental.enable_async_tensor_parallel experimental.pipeline_parallel_* "
    "fault_tolerance.* "
    "float8.* "
    "job.* "
    "lr_scheduler.* "
    "memory_estimation.* "
    "metrics.* "
    "model.hf_assets_path model.norm_type model.print_after_conversion model.tokenizer_path "
    "optimizer.beta1 optimizer.eps "
    "parallelism.context_parallel_rotate_method parallelism.disable_loss_parallel "
    "parallelism.enable_async_tensor_parallel parallelism.expert_tensor_parallel_degree "
    "parallelism.fsdp_reshard_after_forward parallelism.pipeline_parallel_* "
    "profiling.* "
    "quantize.* "
    "training.data_parallel_* training.dataset* training.deterministic training.enable_cpu_offload "
    "training.gc_* training.seed training.steps training.tensor_parallel_degree training.warmup_steps "
    "validation.*";
static_assert(ArePatterns(kWithoutEffect));

class Importer {
 public:
  Importer(Settings& config, Draft& draft) : config_(config), draft_(draft) {}

  Status Import() {
    tensor_ = Effective("parallel.tensor.size", "tensor_parallel_degree");
    pipeline_ = Effective("parallel.pipeline.size", "pipeline_parallel_degree");
    context_ = Effective("parallel.context.size", "context_parallel_degree");
    const bool compiles_any = config_.Flag("compile.enable") || config_.Flag("training.compile");
    const std::vector<std::string> components = config_.List("compile.components");
    const auto compiles = [&](std::string_view what) {
      return compiles_any && (components.empty() ||
                              std::find(components.begin(), components.end(), what) != components.end());
    };
    Model();
    const std::optional<int64_t> world = SetCluster(config_, draft_);
    if (world) Parallel(*world);
    Precision();
    Optimizer();
    Recomputation();
    if (compiles("loss")) draft_.Set("cross_entropy", "fused", "the loss is compiled");
    draft_.Set("framework", compiles("model") ? "pytorch_compile" : "pytorch",
               compiles("model") ? config_.ShownOr("compile.enable", "training.compile")
               : !compiles_any   ? "not compiled"
                                 : "compile.components without model");
    NoteRest(config_, kWithoutEffect, draft_);
    return config_.status();
  }

 private:
  // A key of [parallelism], which older versions had in [experimental] and [training].
  std::string Name(std::string_view key) {
    for (const char* block : {"parallelism.", "experimental.", "training."})
      if (config_.Has(block + std::string(key))) return block + std::string(key);
    return "parallelism." + std::string(key);
  }
  int64_t Degree(std::string_view key) {
    return std::max<int64_t>(config_.Integer(Name(key)).value_or(1), 1);
  }
  // What --set says, else the configuration.
  int64_t Effective(std::string_view key, std::string_view degree) {
    const int64_t given = Degree(degree);
    return draft_.FindInteger(key).value_or(given);
  }
  std::string Text(std::string_view name, std::string_view missing) {
    return config_.Has(name) ? config_.Text(name).value_or(std::string(missing)) : std::string(missing);
  }

  void Number(std::string_view key, std::string_view name, double missing) {
    draft_.Set(key, config_.Number(name).value_or(missing), config_.ShownOr(name, kDefault));
  }

  void Model() {
    const std::string name = Text("model.name", ""), flavor = Text("model.flavor", "");
    if (const auto tokens = config_.Integer("training.seq_len"))
      draft_.Set("model.seq_len", *tokens, "training.seq_len");
    else draft_.Set("model.seq_len", int64_t{2048}, kDefault);
    if (draft_.Has("model.preset") || draft_.Has("model.config") || draft_.Has("model.layers")) return;
    for (const Flavor& known : kFlavors)
      if (known.name == name && known.flavor == flavor)
        return draft_.Set("model.preset", known.preset,
                          fmt::format("model.name {}, model.flavor {}", name, flavor));
    config_.Fail(
        "model.name {}, model.flavor {} has no preset, expected --set model.preset=NAME or --set "
        "model.config=CONFIG.json",
        name.empty() ? "(none)" : name, flavor.empty() ? "(none)" : flavor);
  }

  void Parallel(int64_t world) {
    if (tensor_ > 1) {
      draft_.Set("parallel.tensor.size", tensor_, Name("tensor_parallel_degree"));
      draft_.Set("parallel.tensor.sequence", "true", kDefault);
      if (config_.Flag(Name("enable_async_tensor_parallel")))
        draft_.Set("parallel.tensor.overlap", "true", Name("enable_async_tensor_parallel"));
    }
    if (context_ > 1) {
      draft_.Set("parallel.context.size", context_, Name("context_parallel_degree"));
      const std::string method = Text(Name("context_parallel_rotate_method"), "allgather");
      draft_.Set("parallel.context.kind", method == "alltoall" ? "ring" : "all_gather",
                 config_.ShownOr(Name("context_parallel_rotate_method"), kDefault));
    }
    if (pipeline_ > 1) Pipeline();
    if (const int64_t experts = Degree("expert_parallel_degree"); experts > 1) {
      draft_.Set("parallel.expert.size", experts, Name("expert_parallel_degree"));
      draft_.Set("parallel.expert.tensor", Degree("expert_tensor_parallel_degree"),
                 config_.ShownOr(Name("expert_tensor_parallel_degree"), kDefault));
    }
    if (const auto data = DataRanks(world, tensor_, pipeline_, context_, config_)) Data(*data);
  }

  void Data(int64_t data) {
    const int64_t replicas = Degree("data_parallel_replicate_degree");
    int64_t shards = config_.Integer(Name("data_parallel_shard_degree")).value_or(-1);
    if (shards < 0) shards = data / replicas;
    if (Product({replicas, shards}) != data)
      return config_.Fail(
          "{} data ranks cannot be {} replicas of {} shards; expected another --set cluster.nodes=N", data,
          replicas, shards);
    const bool is_sharded = Product({shards, context_}) > 1;
    const std::string remark = config_.ShownOr(Name("data_parallel_shard_degree"), kDefault);
    if (is_sharded) {
      draft_.Set("parallel.data.kind", "fsdp", remark);
      if (replicas > 1) {
        draft_.Set("parallel.data.sharding", "hybrid_shard", Name("data_parallel_replicate_degree"));
        draft_.Set("parallel.data.shard_size", Product({shards, context_}), remark);
      }
      Resharding();
      if (config_.Flag("training.enable_cpu_offload"))
        draft_.Set("parallel.data.offload", "param", "training.enable_cpu_offload");
    } else if (replicas > 1) {
      draft_.Set("parallel.data.kind", "ddp", Name("data_parallel_replicate_degree"));
    }
    is_sharded_ = is_sharded;
    draft_.Set("parallel.data.size", data, "the ranks that are left");
    Batch(data);
  }

  void Resharding() {
    const std::string policy = Text(Name("fsdp_reshard_after_forward"), "default");
    if (policy == "default" && pipeline_ == 1) return;
    draft_.Set("parallel.data.reshard_after_forward", policy == "always",
               config_.ShownOr(Name("fsdp_reshard_after_forward"), kDefault));
  }

  void Pipeline() {
    draft_.Set("parallel.pipeline.size", pipeline_, Name("pipeline_parallel_degree"));
    struct Schedule {
      std::string_view name, word;
      int64_t least_stages, most_stages;  // of a rank; the least is the default
    };
    constexpr Schedule kSchedules[] = {{"GPipe", "gpipe", 1, 1},
                                       {"1F1B", "1f1b", 1, 1},
                                       {"Interleaved1F1B", "interleaved", 2, INT64_MAX},
                                       {"LoopedBFS", "looped_bfs", 2, INT64_MAX},
                                       {"ZBVZeroBubble", "zb_v", 2, 2},
                                       {"DualPipeV", "dualpipe_v", 2, 2}};
    const std::string given = Text(Name("pipeline_parallel_schedule"), "1F1B");
    const auto* found =
        std::find_if(std::begin(kSchedules), std::end(kSchedules),
                     [&](const Schedule& schedule) { return LowerCase(schedule.name) == LowerCase(given); });
    if (found == std::end(kSchedules))
      return config_.Refuse(Name("pipeline_parallel_schedule"),
                            "GPipe, 1F1B, Interleaved1F1B, LoopedBFS, ZBVZeroBubble or DualPipeV");
    draft_.Set("parallel.pipeline.schedule", found->word,
               config_.ShownOr(Name("pipeline_parallel_schedule"), kDefault));
    const std::optional<ModelSpec> model = NamedModel(draft_);
    const bool has_own_split = config_.Has(Name("pipeline_parallel_split_points")) ||
                               config_.Has(Name("module_fqns_per_model_part"));
    // Until 2025 layers were divided by another rule.
    const bool is_known = model && model->layers > 0 && model->layers <= kMostLayers && !has_own_split &&
                          !config_.Has("experimental.pipeline_parallel_degree");
    if (is_known) VirtualStages(model->layers, found->least_stages, found->most_stages);
    if (found->least_stages > 1)
      draft_.Set("parallel.pipeline.virtual_stages", found->least_stages, kDefault);
    if (is_known) Balance(model->layers);
    const bool says_layers = config_.Has(Name("pipeline_parallel_layers_per_stage"));
    if (has_own_split || (says_layers && !is_known))
      draft_.Note(
          "Layers are divided over the stages by Windtunnel; pipeline_parallel_layers_per_stage, split "
          "points "
          "and modules by name are left out.");
  }

  // The embedding and the head count as layers of the first and the last stage.
  int64_t FirstLess() {
    return config_.Integer(Name("pipeline_parallel_first_stage_less_layers")).value_or(1);
  }
  int64_t LastLess() { return config_.Integer(Name("pipeline_parallel_last_stage_less_layers")).value_or(1); }

  void VirtualStages(int64_t layers, int64_t least, int64_t most) {
    constexpr char kKey[] = "parallel.pipeline.virtual_stages";
    const std::string name = Name("pipeline_parallel_layers_per_stage");
    const std::optional<int64_t> of_a_stage = config_.Integer(name);
    if (!of_a_stage || draft_.Has(kKey)) return;
    if (*of_a_stage < 1) return config_.Refuse(name, "at least 1");
    const int64_t first = FirstLess(), last = LastLess();
    const int64_t stages = (layers + first + last + *of_a_stage - 1) / *of_a_stage;
    const int64_t of_a_rank = stages / pipeline_;
    const char* expected = most == 1 ? "1 stage" : most == 2 ? "2 stages" : "2 or more stages";
    if (stages % pipeline_ != 0 || of_a_rank < least || of_a_rank > most)
      return config_.Refuse(
          name,
          fmt::format("a number that makes {} for each of {} pipeline ranks, not {} in all ({} layers, {} "
                      "less in the first stage and {} in the last); or --set {}=N",
                      expected, pipeline_, stages, layers, first, last, kKey));
    if (of_a_rank > 1) draft_.Set(kKey, of_a_rank, name);
  }

  // As generate_llm_fqn_per_model_part() does it: equally many in each stage, and one more in the first ones if
  // that does not work out.
  void Balance(int64_t layers) {
    const std::string* schedule = draft_.Find("parallel.pipeline.schedule");
    const bool is_file = schedule != nullptr && schedule->ends_with(".csv");  // which says the stages
    const int64_t first = FirstLess(), last = LastLess();
    const int64_t stages =
        Product({pipeline_, draft_.FindInteger("parallel.pipeline.virtual_stages").value_or(1)});
    if (is_file || draft_.Has("parallel.pipeline.balance") || stages < 2) return;
    const int64_t all = layers + first + last, each = all / stages, more = all % stages;
    if (first < 0 || last < 0 || each < std::max<int64_t>({first, last, 1}))
      return config_.Fail(
          "{} stages of {} layers, of which the first has {} less and the last {}: torchtitan refuses them, "
          "expected fewer stages, or --set parallel.pipeline.balance=[…]",
          stages, layers, first, last);
    std::string list;
    for (int64_t stage = 0; stage < stages; ++stage) {
      const int64_t less = stage == 0 ? first : stage == stages - 1 ? last : 0;
      list += fmt::format("{}{}", stage > 0 ? ", " : "", each + (stage < more ? 1 : 0) - less);
    }
    draft_.Set("parallel.pipeline.balance", std::string_view("[" + list + "]"),
               config_.ShownOr(Name("pipeline_parallel_first_stage_less_layers"),
                               config_.ShownOr(Name("pipeline_parallel_last_stage_less_layers"), kDefault)));
  }

  void Batch(int64_t data) {
    const std::string local_name =
        config_.Has("training.batch_size") ? "training.batch_size" : "training.local_batch_size";
    const int64_t given = config_.Integer(local_name).value_or(8);
    const int64_t local = pipeline_ == 1 ? draft_.FindInteger("batch.micro").value_or(given) : given;
    const int64_t global = config_.Integer("training.global_batch_size").value_or(-1);
    const std::string remark = config_.ShownOr(local_name, kDefault);
    if (local <= 0) return config_.Refuse(local_name, "at least 1");
    int64_t accumulate = 1;
    if (global > 0) {
      const int64_t of_all = Product({local, data});
      if (global % of_all != 0)
        return config_.Refuse("training.global_batch_size", fmt::format("a multiple of {}", of_all));
      accumulate = global / of_all;
    }
    int64_t micro = local;
    std::string micro_remark = remark;
    if (pipeline_ > 1) {
      micro = config_.Integer(Name("pipeline_parallel_microbatch_size")).value_or(1);
      micro_remark = config_.ShownOr(Name("pipeline_parallel_microbatch_size"), kDefault);
      if (const auto count = config_.Integer(Name("pipeline_parallel_microbatches")); count && *count > 0) {
        micro = local / *count;
        micro_remark = Name("pipeline_parallel_microbatches");
      } else if (config_.Has("experimental.pipeline_parallel_degree")) {  // until 2025: as many as stages
        micro =
            local / Product({pipeline_, draft_.FindInteger("parallel.pipeline.virtual_stages").value_or(1)});
        micro_remark = "torchtitan's default until 2025";
      }
      if (micro <= 0 || local % micro != 0)
        return config_.Refuse(Name("pipeline_parallel_microbatch_size"),
                              fmt::format("a divisor of {}", local));
      // Each local batch fills and drains the pipeline, which a scenario's step does once.
      if (accumulate > 1 && !draft_.Has("batch.accumulate"))
        draft_.Note(fmt::format(
            "The step is of one local batch. torchtitan drains the pipeline after each of the {} of a global "
            "batch: its step takes {} times as long, but for the optimizer, which runs once.",
            accumulate, accumulate));
      draft_.Set("batch.accumulate", local / micro, remark + " / micro-batch");
    }
    draft_.Set("batch.micro", micro, micro_remark);
    draft_.Set("batch.accumulate", accumulate, global > 0 ? "training.global_batch_size" : remark);
  }

  // Parameters are in training.dtype, mostly fp32, and FSDP gathers them in bf16; without FSDP kernels run
  // under autocast.
  void Precision() {
    const std::string param = TypeOf("training.mixed_precision_param", "bfloat16");
    const std::string reduce = TypeOf("training.mixed_precision_reduce", "float32");
    const std::string remark = config_.ShownOr("training.mixed_precision_param", kDefault);
    const std::string kept = TypeOf("training.dtype", "float32");
    if (kept != "fp32" && (kept != "bf16" || param != "bf16"))
      return config_.Refuse("training.dtype",
                            "float32, or bfloat16 with training.mixed_precision_param bfloat16");
    if (kept == "bf16") {
      draft_.Set("precision.param", "bf16", "training.dtype");
      draft_.Set("precision.optimizer", "bf16", "training.dtype");
    }
    if (is_sharded_) {
      draft_.SetText("precision.param", param, remark);
      draft_.SetText("precision.reduce", reduce,
                     config_.ShownOr("training.mixed_precision_reduce", kDefault));
    } else if (param != "fp32" && kept != "bf16") {
      draft_.Set("precision.param", "fp32", kDefault);
      draft_.SetText("precision.compute", param, remark);
    }
    Float8();
  }

  std::string TypeOf(std::string_view name, std::string_view missing) {
    const std::string type = Text(name, missing);
    return type == "bfloat16" ? "bf16" : type == "float32" ? "fp32" : type;
  }

  void Float8() {
    const std::vector<std::string> converters = config_.List("model.converters");
    const auto converts = [&](std::string_view name) {
      return std::find(converters.begin(), converters.end(), name) != converters.end();
    };
    const bool converts_float8 = converts("float8") || converts("quantize.linear.float8");
    const bool enabled = config_.Flag("float8.enable_float8_linear") || converts_float8;
    const std::string block = config_.Has("quantize.linear.float8.recipe_name") ||
                                      config_.Has("quantize.linear.float8.enable_fsdp_float8_all_gather")
                                  ? "quantize.linear.float8."
                                  : "float8.";
    const std::string recipe = Text(block + "recipe_name", "tensorwise");
    const bool gathers = config_.Flag(block + "enable_fsdp_float8_all_gather");
    if (!enabled) return;
    draft_.Set("precision.compute", "fp8",
               converts_float8 ? "model.converters" : "float8.enable_float8_linear");
    if (recipe != "tensorwise" && recipe != "rowwise")
      return config_.Refuse(block + "recipe_name", "tensorwise or rowwise");
    draft_.Set("precision.fp8_recipe", std::string_view(recipe),
               config_.ShownOr(block + "recipe_name", kDefault));
    if (gathers && is_sharded_)
      draft_.Set("precision.fp8_param_gather", "true", block + "enable_fsdp_float8_all_gather");
  }

  void Optimizer() {
    const std::string name = Text("optimizer.name", "AdamW");
    if (name != "Adam" && name != "AdamW") return config_.Refuse("optimizer.name", "Adam or AdamW");
    draft_.Set("optimizer.kind", name == "Adam" ? "adam" : "adamw",
               config_.ShownOr("optimizer.name", kDefault));
    Number("optimizer.lr", "optimizer.lr", 8e-4);
    Number("optimizer.beta2", "optimizer.beta2", 0.95);
    Number("optimizer.weight_decay", "optimizer.weight_decay", 0.1);
    if (Text("optimizer.implementation", "fused") == "fused")
      draft_.Set("optimizer.fused", "true", config_.ShownOr("optimizer.implementation", kDefault));
    if (StepsInBackward()) {
      draft_.Set("optimizer.in_backward", "true", "optimizer.early_step_in_backward");
      (void)config_.Number("training.max_norm");
      draft_.Set("optimizer.clip_norm", "0", "no gradient is left to clip");
    }
    Number("optimizer.clip_norm", "training.max_norm", 1.0);
  }

  // REQUIRES: the ranks and the batch are in the draft.
  bool StepsInBackward() {
    if (!config_.Flag("optimizer.early_step_in_backward")) return false;
    const std::string* kind = draft_.Find("parallel.data.kind");
    const bool is_possible = tensor_ * pipeline_ == 1 && !draft_.Has("parallel.expert.size") &&
                             !draft_.Has("parallel.data.offload") && (kind == nullptr || *kind != "ddp") &&
                             draft_.FindInteger("batch.accumulate").value_or(1) == 1;
    if (!is_possible)
      draft_.Note(
          "optimizer.early_step_in_backward is not modelled with tensor, pipeline or expert ranks, DDP, "
          "accumulation or offload: memory is an upper bound.");
    return is_possible;
  }

  void Recomputation() {
    const std::string mode = Text("activation_checkpoint.mode", "selective");
    const std::string remark = config_.ShownOr("activation_checkpoint.mode", kDefault);
    const std::string option = Text("activation_checkpoint.selective_ac_option", "op");
    if (mode == "none") return;
    if (mode == "full") return draft_.Set("recompute", "full", remark);
    if (mode != "selective") return config_.Refuse("activation_checkpoint.mode", "none, selective or full");
    if (option == "op") return draft_.Set("recompute", "selective_op", remark);
    draft_.Set("recompute", "full", remark);
    if (const auto every = config_.Integer("activation_checkpoint.selective_ac_option"); every && *every > 1)
      draft_.Set("recompute_every", *every, "activation_checkpoint.selective_ac_option");
  }

  Settings& config_;
  Draft& draft_;
  int64_t tensor_ = 1, pipeline_ = 1, context_ = 1;
  bool is_sharded_ = false;
};

}  // namespace

Status ImportTorchtitan(Settings& config, Draft& draft) { return Importer(config, draft).Import(); }

}  // namespace windtunnel
