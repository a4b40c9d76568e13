#include "scenarios/importers/deepspeed.h"

#include <cmath>
#include <string>

#include "scenarios/characters.h"
#include "scenarios/importers/cluster_size.h"
#include "scenarios/importers/rest.h"

namespace windtunnel {
namespace {

constexpr char kDefault[] = "DeepSpeed's default";

// What changes nothing in a step's time or memory here, or has the only value that is modelled. '*' stands
// for any end.
constexpr std::string_view kWithoutEffect =
    "activation_checkpointing.contiguous_memory_optimization activation_checkpointing.number_checkpoints "
    "activation_checkpointing.profile activation_checkpointing.synchronize_checkpoint_boundary aio* amp* "
    "bf16.* checkpoint* comms_logger* csv_monitor* curriculum_learning* dump_state flops_profiler* fp16.* "
    "gradient_predivide_factor "
    "load_universal_checkpoint "
    "optimizer.params.bias_correction optimizer.params.freeze_step "
    "prescale_gradients "
    "scheduler* sparse_attention.* steps_per_print "
    "tensorboard* "
    "use_node_local_storage "
    "wall_clock_breakdown wandb* "
    "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_optimization.allgather_bucket_size "
    "zero_optimization.cpu_offload* zero_optimization.gather_16bit_weights_on_model_save "
    "zero_optimization.ignore_unused_parameters zero_optimization.offload_* zero_optimization.overlap_comm "
    "zero_optimization.reduce_bucket_size zero_optimization.reduce_scatter zero_optimization.stage3_* "
    "zero_optimization.zero_hpz_partition_size";  // of stage 3
static_assert(ArePatterns(kWithoutEffect));

class Importer {
 public:
  Importer(Settings& config, Draft& draft) : config_(config), draft_(draft) {}

  Status Import() {
    if (!draft_.HasBelow("model"))
      config_.Fail(
          "the model is not said, expected --set model.preset=NAME or --set model.config=CONFIG.json");
    stage_ = config_.Integer("zero_optimization.stage").value_or(0);
    if (stage_ < 0 || stage_ > 3) config_.Refuse("zero_optimization.stage", "0 to 3");
    Precision();
    Optimizer();
    Parallel();
    Recomputation();
    draft_.Set("framework", "pytorch", "as for Hugging Face's models; Megatron-DeepSpeed's: deepspeed");
    NoteRest(config_, kWithoutEffect, draft_);
    return config_.status();
  }

 private:
  // What Hugging Face's trainer fills in.
  bool IsAuto(std::string_view name) {
    const Setting* setting = config_.Find(name);
    return setting != nullptr && setting->values.size() == 1 && setting->values[0] == "auto";
  }
  std::optional<int64_t> Integer(std::string_view name) {
    return IsAuto(name) ? std::nullopt : config_.Integer(name);
  }
  std::optional<double> Number(std::string_view name) {
    return IsAuto(name) ? std::nullopt : config_.Number(name);
  }
  bool Flag(std::string_view name, bool missing = false) {
    return IsAuto(name) ? missing : config_.Flag(name, missing);
  }
  // Where the value of a setting comes from that has a default.
  std::string Remark(std::string_view name) {
    return IsAuto(name) ? kDefault : config_.ShownOr(name, kDefault);
  }
  void Copy(std::string_view key, std::string_view name) {
    if (const auto value = Number(name)) draft_.Set(key, *value, name);
  }

  void Precision() {
    const bool bf16 = Flag("bf16.enabled") || Flag("bfloat16.enabled"), fp16 = Flag("fp16.enabled");
    // The trainer's own flag decides where the file says "auto".
    if (!bf16 && !fp16 && !draft_.HasBelow("precision.param") && IsAuto("bf16.enabled"))
      draft_.Set("precision.param", "bf16", "bf16.enabled is auto");
    else if (bf16 || fp16)
      draft_.Set("precision.param", bf16 ? "bf16" : "fp16",
                 config_.Shown(!bf16                  ? "fp16.enabled"
                               : Flag("bf16.enabled") ? "bf16.enabled"
                                                      : "bfloat16.enabled"));
    const std::string* param = draft_.Find("precision.param");
    if (param == nullptr || *param == "fp32") return;
    if (const auto type = config_.Text("communication_data_type"))  // else the loader's, which is DeepSpeed's
      draft_.SetText("precision.reduce", *type, "communication_data_type");
    if (fp16) LossScale();
  }

  void LossScale() {
    const double scale = Number("fp16.loss_scale").value_or(0);
    if (scale != 0) return draft_.Set("precision.loss_scale", scale, "fp16.loss_scale");
    draft_.Set("precision.loss_scale", "dynamic", Remark("fp16.loss_scale"));
    const int64_t power = Integer("fp16.initial_scale_power").value_or(16);
    if (power < 0 || power > 60) return config_.Refuse("fp16.initial_scale_power", "0 to 60");
    draft_.Set("precision.init_scale", std::ldexp(1.0, static_cast<int>(power)),
               Remark("fp16.initial_scale_power"));
    draft_.Set("precision.growth_interval", Integer("fp16.loss_scale_window").value_or(1000),
               Remark("fp16.loss_scale_window"));
  }

  void Optimizer() {
    std::string kind = config_.Has("optimizer.type") ? config_.Word("optimizer.type") : "adamw";
    // DeepSpeed's Adam decouples the weight decay, unless adam_w_mode is false.
    if (kind == "adam" && Flag("optimizer.params.adam_w_mode", true)) kind = "adamw";
    if (kind == "adam" || kind == "adamw" || kind == "sgd" || kind == "muon")
      draft_.Set("optimizer.kind", std::string_view(kind), config_.ShownOr("optimizer.type", "not said"));
    else config_.Refuse("optimizer.type", "Adam, AdamW, SGD or Muon");
    Copy("optimizer.lr", "optimizer.params.lr");
    Copy("optimizer.eps", "optimizer.params.eps");
    Copy("optimizer.weight_decay", "optimizer.params.weight_decay");
    // torch_adam: PyTorch's instead, whose AdamW has the default that is the scenario's, too.
    const bool is_torchs = Flag("optimizer.params.torch_adam", false);
    const bool is_deepspeeds = config_.Has("optimizer.type") && kind.starts_with("adam") && !is_torchs;
    if (is_deepspeeds && !config_.Has("optimizer.params.weight_decay"))
      draft_.Set("optimizer.weight_decay", 0.0, "the default of DeepSpeed's Adam");
    if (kind == "sgd") Copy("optimizer.momentum", "optimizer.params.momentum");
    if (!IsAuto("optimizer.params.betas")) {
      const std::vector<std::string> betas = config_.List("optimizer.params.betas");
      for (size_t i = 0; i < betas.size() && i < 2 && kind != "sgd"; ++i)
        draft_.Set(i == 0 ? "optimizer.beta1" : "optimizer.beta2", std::string_view(Printable(betas[i])),
                   "optimizer.params.betas");
    }
    Copy("optimizer.clip_norm", "gradient_clipping");
  }

  void Parallel() {
    const int64_t tensor = Integer("tensor_parallel.autotp_size").value_or(1);
    if (tensor > 1) draft_.Set("parallel.tensor.size", tensor, "tensor_parallel.autotp_size");
    const std::optional<int64_t> world = SetCluster(config_, draft_);
    const auto degree = [&](std::string_view key) { return draft_.FindInteger(key).value_or(1); };
    if (!world) return;
    const std::optional<int64_t> data =
        DataRanks(*world, degree("parallel.tensor.size"), degree("parallel.pipeline.size"),
                  degree("parallel.context.size"), config_);
    if (!data) return;
    constexpr const char* kKinds[] = {"ddp", "zero1", "zero2", "zero3"};
    if (stage_ < 0 || stage_ > 3) return;
    draft_.Set("parallel.data.kind", kKinds[stage_], config_.ShownOr("zero_optimization.stage", kDefault));
    draft_.Set("parallel.data.size", *data, "the ranks that are left");
    if (stage_ > 0) Zero();
    Batch(*data);
  }

  void Zero() {
    draft_.Set("parallel.data.overlap", Flag("zero_optimization.overlap_comm", stage_ == 3),
               Remark("zero_optimization.overlap_comm"));
    const std::string* reduce =
        draft_.Find(draft_.Has("precision.reduce") ? "precision.reduce" : "precision.param");
    const double element = reduce == nullptr || *reduce == "fp32" ? 4 : 2;
    const double bucket = Number("zero_optimization.reduce_bucket_size").value_or(5e8);
    if (bucket > 0)
      draft_.Set("parallel.data.bucket_cap_mb", bucket * element / (1 << 20),
                 Remark("zero_optimization.reduce_bucket_size"));
    if (stage_ == 3) Zero3();
    Offload();
  }

  void Zero3() {
    struct Limit {
      const char *key, *name;
    };
    for (const Limit& limit : {Limit{"prefetch_bucket_size", "stage3_prefetch_bucket_size"},
                               Limit{"param_persistence_threshold", "stage3_param_persistence_threshold"},
                               Limit{"max_live_parameters", "stage3_max_live_parameters"},
                               Limit{"max_reuse_distance", "stage3_max_reuse_distance"}}) {
      const std::string name = std::string("zero_optimization.") + limit.name;
      if (const auto value = Integer(name))
        draft_.Set(std::string("parallel.data.zero3.") + limit.key, *value, limit.name);
    }
    if (const auto shards = Integer("zero_optimization.mics_shard_size"); shards && *shards > 0)
      draft_.Set("parallel.data.shard_size", *shards, "mics_shard_size");
    if (const auto shards = Integer("zero_optimization.zero_hpz_partition_size"); shards && *shards > 1)
      draft_.Note(
          fmt::format("ZeRO++'s second shard within a node (zero_hpz_partition_size) is not modelled; "
                      "parallel.data: {{kind: "
                      "fsdp, reshard_after_forward: {}}} is nearest.",
                      *shards));
  }

  void Offload() {
    const auto device = [&](const char* what) {
      return config_.Text(std::string("zero_optimization.") + what + ".device").value_or("none");
    };
    const std::string param = device("offload_param");
    std::string optimizer = device("offload_optimizer");
    // Its name before 2021.
    if (stage_ < 3 && config_.Flag("zero_optimization.cpu_offload")) optimizer = "cpu";
    if (optimizer == "nvme" || param == "nvme")
      draft_.Note("Offload to disks (nvme) is not modelled; the host's memory is taken instead.");
    if (param != "none" && stage_ == 3) draft_.Set("parallel.data.offload", "param", "offload_param.device");
    else if (optimizer != "none")
      draft_.Set("parallel.data.offload", "optimizer", "offload_optimizer.device");
  }

  // Whether a model is recomputed is up to its code, which the file does not say.
  void Recomputation() {
    if (Flag("activation_checkpointing.cpu_checkpointing"))
      draft_.Note(
          "activation_checkpointing.cpu_checkpointing is of models that call DeepSpeed's checkpointing; for "
          "these give --set recompute=full --set activation_offload=true.");
  }

  void Batch(int64_t data) {
    const std::optional<int64_t> micro = Integer("train_micro_batch_size_per_gpu");
    const std::optional<int64_t> accumulate = Integer("gradient_accumulation_steps");
    const std::optional<int64_t> global = Integer("train_batch_size");
    if (micro) draft_.Set("batch.micro", *micro, "train_micro_batch_size_per_gpu");
    if (accumulate) draft_.Set("batch.accumulate", *accumulate, "gradient_accumulation_steps");
    const auto given = [&](std::string_view key) { return draft_.FindInteger(key).value_or(0); };
    // DeepSpeed asserts it of what its file says; --set may say otherwise.
    const bool has_both =
        micro && given("batch.micro") == *micro && accumulate && given("batch.accumulate") == *accumulate;
    const int64_t product = Product({data, micro.value_or(1), accumulate.value_or(1)});
    if (global && has_both && *global != product)
      return config_.Refuse("train_batch_size",
                            fmt::format("{} ({} data ranks x micro-batches of {} x {} of them accumulated)",
                                        product, data, *micro, *accumulate));
    // One of the two follows from the other and the whole.
    const bool lacks_micro = !draft_.Has("batch.micro");
    const int64_t known = lacks_micro ? given("batch.accumulate") : given("batch.micro");
    if (global && (lacks_micro || !draft_.Has("batch.accumulate"))) {
      const int64_t others = Product({std::max<int64_t>(known, 1), data});
      if (*global <= 0 || *global % others != 0)
        return config_.Refuse("train_batch_size", fmt::format("a multiple of {}", others));
      draft_.Set(lacks_micro ? "batch.micro" : "batch.accumulate", *global / others, "train_batch_size");
    }
    if (!draft_.Has("batch.micro"))
      config_.Fail("the micro-batch is not said (or auto), expected --set batch.micro=N");
  }

  Settings& config_;
  Draft& draft_;
  int64_t stage_ = 0;
};

}  // namespace

Status ImportDeepSpeed(Settings& config, Draft& draft) { return Importer(config, draft).Import(); }

}  // namespace windtunnel
