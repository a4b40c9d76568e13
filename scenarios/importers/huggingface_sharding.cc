#include "scenarios/importers/huggingface_sharding.h"

#include <optional>
#include <set>
#include <string_view>

#include "base/text.h"
#include "scenarios/importers/cluster_size.h"
#include "scenarios/importers/configuration.h"
#include "scenarios/importers/deepspeed.h"
#include "scenarios/importers/huggingface_settings.h"
#include "scenarios/importers/shell_script.h"
#include "scenarios/presets.h"

namespace windtunnel {
namespace {

constexpr char kAccelerates[] = "accelerate's default";

class ShardingImporter {
 public:
  ShardingImporter(Settings& flags, const HuggingFaceMode& mode, const ReadNamedFile& read, Draft& draft)
      : flags_(flags), mode_(mode), read_(read), draft_(draft) {}

  Status Import() {
    ReadFsdp();
    const bool is_deepspeed = IsDeepSpeed();
    if (!is_deepspeed) Precision();
    const std::optional<int64_t> world = SetCluster(flags_, draft_);
    Tensor();
    Context();
    const auto degree = [&](std::string_view key) { return draft_.FindInteger(key).value_or(1); };
    const int64_t tensor = degree("parallel.tensor.size"), context = degree("parallel.context.size");
    std::optional<int64_t> data;
    if (world) data = DataRanks(*world, tensor, degree("parallel.pipeline.size"), context, flags_);
    if (is_deepspeed) return DeepSpeed();
    if (!data) return Ok();
    if (is_sharded_) Fsdp(*data, context);
    else if (*data > 1) Ddp();
    draft_.Set("parallel.data.size", *data, "the ranks that are left");
    return Ok();
  }

 private:
  std::string Word(std::string_view name) { return flags_.Word(name); }
  bool Flag(std::string_view name, bool missing = false) { return IsTrue(flags_, name, missing); }

  // The words of --fsdp ("full_shard auto_wrap").
  void ReadFsdp() {
    for (const std::string& value : flags_.List("fsdp"))
      for (const std::string& given : SplitWords(value)) {
        const std::string word = LowerCase(given);
        if (word != "false" && word != "none") fsdp_.insert(word == "true" ? "full_shard" : word);
      }
    is_sharded_ = !fsdp_.empty() || Word("distributed_type") == "fsdp" || Flag("use_fsdp") ||
                  flags_.Has("fsdp_version");
    if (fsdp_.contains("no_shard") || Strategy() == "no_shard") is_sharded_ = false;
  }

  bool IsDeepSpeed() {
    return flags_.Has("deepspeed") || flags_.Has("deepspeed_config_file") ||
           Word("distributed_type") == "deepspeed" || Flag("use_deepspeed") || flags_.Has("zero_stage");
  }

  // FULL_SHARD, "full_shard" or 1.
  std::string Strategy() {
    for (const char* name : {"hybrid_shard_zero2", "hybrid_shard", "shard_grad_op", "full_shard"})
      if (fsdp_.contains(name)) return name;
    constexpr const char* kByNumber[] = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                         "hybrid_shard_zero2"};
    std::string word = Word("fsdp_sharding_strategy");
    // Its name since accelerate 1.8; with FSDP 2 a truth.
    if (const std::string newer = Word("fsdp_reshard_after_forward");
        word.empty() && newer != "true" && newer != "false")
      word = newer;
    if (word.size() == 1 && word[0] >= '1' && word[0] <= '5') return kByNumber[word[0] - '1'];
    if (word == "_hybrid_shard_zero2") word.erase(0, 1);
    return word.empty() ? "full_shard" : word;
  }

  void Precision() {
    const std::string_view type = mode_.mixed;
    const std::string& remark = mode_.mixed_remark;
    const bool is_quantized = draft_.Has("model.lora.quantize");
    if (type.empty()) {
      if (!mode_.loads_16_bits) {
        draft_.Set("precision.param", "fp32", "neither bf16 nor fp16");
        if (Flag("tf32")) draft_.Set("precision.compute", "tf32", flags_.Shown("tf32"));
        return;
      }
      draft_.Set("precision.param", "bf16", "loaded in 16 bits");
      draft_.Set("precision.optimizer", mode_.has_adapters ? "fp32" : "bf16", "no masters");
      return;
    }
    if (is_sharded_ && !(mode_.has_adapters && mode_.loads_16_bits)) {  // accelerate keeps the shards in fp32
      draft_.Set("precision.param", type, remark);
      draft_.Set("precision.reduce", type, "accelerate's policy");
    } else if (!mode_.loads_16_bits) {
      draft_.Set("precision.param", "fp32", "autocast keeps parameters in fp32");
      draft_.Set("precision.compute", type, remark);
    } else {
      draft_.Set("precision.param", type, remark);
      // peft casts adapters to fp32.
      draft_.Set(
          "precision.optimizer", mode_.has_adapters ? "fp32" : "bf16",
          mode_.has_adapters ? "adapters are in fp32" : "parameters are loaded in 16 bits, without masters");
    }
    if (type == "fp16" && !is_quantized)
      draft_.Set("precision.loss_scale", "dynamic", "PyTorch's GradScaler");
  }

  void Tensor() {
    if (const auto size = flags_.Integer("tp_size"); size && *size > 1)
      draft_.Set("parallel.tensor.size", *size, flags_.Shown("tp_size"));
  }

  void Context() {
    if (const auto size = flags_.Integer("sp_size"); size && *size > 1) {
      draft_.Set("parallel.context.size", *size, flags_.Shown("sp_size"));
      draft_.Set("parallel.context.kind", "ulysses", "DeepSpeed's sequence parallelism");
    }
    if (const auto size = flags_.Integer("cp_size"); size && *size > 1) {
      draft_.Set("parallel.context.size", *size, flags_.Shown("cp_size"));
      draft_.Set("parallel.context.kind", Word("cp_comm_strategy") == "alltoall" ? "ring" : "all_gather",
                 flags_.ShownOr("cp_comm_strategy", kAccelerates));
    }
  }

  void Ddp() {
    draft_.Set("parallel.data.kind", "ddp", "several ranks, neither FSDP nor DeepSpeed");
    if (const auto cap = flags_.Number("ddp_bucket_cap_mb"))
      draft_.Set("parallel.data.bucket_cap_mb", *cap, flags_.Shown("ddp_bucket_cap_mb"));
    // The Trainer looks for unused parameters unless activations are recomputed, and always with adapters
    // (peft's model is none of transformers').
    const bool by_default = mode_.finds_unused.value_or(mode_.has_adapters || !mode_.is_recomputed);
    const bool finds = Flag("ddp_find_unused_parameters", by_default);
    if (finds)
      draft_.Set("parallel.data.find_unused_parameters", "true",
                 flags_.ShownOr("ddp_find_unused_parameters", "the Trainer's default"));
  }

  void Fsdp(int64_t data, int64_t context) {
    int64_t version = flags_.Integer("fsdp_version").value_or(1);
    std::string remark = flags_.ShownOr("fsdp_version", kAccelerates);
    const bool takes_second = mode_.has_adapters && version == 1;
    if (takes_second) {
      version = 2;
      remark = "FSDP 1 has no adapters here";
      draft_.Note(
          "FSDP 1 with adapters is not modelled: FSDP 2 is taken, whose shards are of single parameters.");
    }
    draft_.Set("parallel.data.kind", "fsdp", flags_.ShownOr("fsdp", "FSDP"));
    draft_.Set("parallel.data.version", version, std::string_view(remark));
    const int64_t replicas = flags_.Integer("dp_replicate_size").value_or(1);
    if (const auto shards = flags_.Integer("dp_shard_size"); shards && Product({*shards, replicas}) != data)
      flags_.Fail("{} data ranks cannot be {} replicas of {} shards; expected another --set cluster.nodes=N",
                  data, replicas, *shards);
    if (replicas > 1) {
      if (data % replicas != 0)
        return flags_.Refuse("dp_replicate_size", fmt::format("a divisor of the {} data ranks", data));
      draft_.Set("parallel.data.sharding", "hybrid_shard", flags_.Shown("dp_replicate_size"));
      draft_.Set("parallel.data.shard_size", Product({data / replicas, context}),
                 flags_.Shown("dp_replicate_size"));
    } else if (version == 2) {
      Sharding2(takes_second);
    } else {
      Sharding1();
    }
    Wrapping(version);
    if (fsdp_.contains("offload") || Flag("fsdp_offload_params"))
      draft_.Set("parallel.data.offload", "param",
                 flags_.ShownOr("fsdp_offload_params", flags_.Shown("fsdp")));
  }

  // FSDP 2, also for what was written for FSDP 1 (accelerate's to-fsdp2 translates it so).
  void Sharding2(bool was_first) {
    const std::string word = Word("fsdp_reshard_after_forward");
    const bool is_truth = word.empty() || word == "true" || word == "false";
    const std::string strategy = Strategy();
    const std::string remark = flags_.Shown(!is_truth || word == "false" ? "fsdp_reshard_after_forward"
                                            : flags_.Has("fsdp_sharding_strategy") ? "fsdp_sharding_strategy"
                                                                                   : "fsdp");
    const bool is_hybrid = strategy == "hybrid_shard" || strategy == "hybrid_shard_zero2";
    if (is_hybrid && (was_first || !is_truth))
      draft_.Set("parallel.data.sharding", "hybrid_shard", std::string_view(remark));
    const bool keeps = strategy == "shard_grad_op" || strategy == "hybrid_shard_zero2";
    if (word == "false" || (keeps && (was_first || !is_truth)))
      draft_.Set("parallel.data.reshard_after_forward", "false", std::string_view(remark));
  }

  void Sharding1() {
    const std::string strategy = Strategy();
    if (strategy != "full_shard" && strategy != "shard_grad_op" && strategy != "hybrid_shard" &&
        strategy != "hybrid_shard_zero2")
      return flags_.Refuse(
          flags_.Has("fsdp_sharding_strategy") ? "fsdp_sharding_strategy" : "fsdp_reshard_after_forward",
          "FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
    draft_.Set("parallel.data.sharding", std::string_view(strategy),
               fsdp_.contains(strategy)
                   ? flags_.Shown("fsdp")
                   : flags_.ShownOr("fsdp_sharding_strategy",
                                    flags_.ShownOr("fsdp_reshard_after_forward", kAccelerates)));
  }

  void Wrapping(int64_t version) {
    const std::string policy = Word("fsdp_auto_wrap_policy");
    const bool wraps_by_flag =
        fsdp_.empty() ? !policy.empty() : fsdp_.contains("auto_wrap") || !policy.empty();
    const bool has_least = !fsdp_.empty() && fsdp_.contains("auto_wrap") &&
                           flags_.Number("fsdp_min_num_params").value_or(0) > 0;  // the Trainer's rule
    if (policy == "size_based_wrap" || has_least) {
      const double least = flags_.Number("fsdp_min_num_params").value_or(1e8);
      draft_.Set("parallel.data.wrap", std::string_view(fmt::format("size:{:.0f}", least * 4)),
                 flags_.ShownOr("fsdp_min_num_params", kAccelerates));
    } else if (policy == "no_wrap" || !wraps_by_flag) {
      draft_.Set("parallel.data.wrap", "root",
                 policy.empty() ? "no auto_wrap" : flags_.Shown("fsdp_auto_wrap_policy"));
    } else {
      draft_.Set("parallel.data.wrap", "block",
                 policy.empty() ? flags_.Shown("fsdp") : flags_.Shown("fsdp_auto_wrap_policy"));
    }
    if (version == 2) return;
    const std::string prefetch = Word("fsdp_backward_prefetch");
    if (prefetch == "backward_pre" || prefetch == "1" || prefetch == "backward_post" || prefetch == "2")
      draft_.Set("parallel.data.prefetch",
                 prefetch == "backward_pre" || prefetch == "1" ? "backward_pre" : "backward_post",
                 flags_.Shown("fsdp_backward_prefetch"));
    else if (prefetch == "no_prefetch" || prefetch == "none" || prefetch.empty())
      draft_.Set("parallel.data.prefetch", "none", flags_.ShownOr("fsdp_backward_prefetch", kAccelerates));
    else flags_.Refuse("fsdp_backward_prefetch", "BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH");
    if (Flag("fsdp_forward_prefetch"))
      draft_.Set("parallel.data.forward_prefetch", int64_t{1}, flags_.Shown("fsdp_forward_prefetch"));
  }

  // The width of the model, from which the Trainer makes what a file leaves to it ("auto").
  std::optional<int64_t> Hidden() {
    if (const auto hidden = draft_.FindInteger("model.hidden")) return hidden;
    const std::string* preset = draft_.Find("model.preset");
    if (preset == nullptr || !IsModelPreset(*preset)) return std::nullopt;
    return ModelPreset(*preset).hidden;
  }

  void FillIn(Settings& config) {
    const auto fill = [&](const std::string& name, const std::string& value) {
      const Setting* setting = config.Find(name);
      if (setting != nullptr && setting->values == std::vector<std::string>{"auto"})
        config.Add({name, name, {value}});
    };
    fill("bf16.enabled", mode_.mixed == "bf16" ? "true" : "false");
    fill("fp16.enabled", mode_.mixed == "fp16" ? "true" : "false");
    // accelerate adds the block of its type if the file has none.
    if (!mode_.mixed.empty() && !config.Holds(mode_.mixed + ".enabled"))
      config.Add({mode_.mixed + ".enabled", mode_.mixed_remark, {"true"}});
    if (const auto hidden = Hidden(); hidden && *hidden > 0 && *hidden < 1'000'000) {
      fill("zero_optimization.reduce_bucket_size", fmt::format("{}", *hidden * *hidden));
      fill("zero_optimization.stage3_prefetch_bucket_size", fmt::format("{}", *hidden * *hidden * 9 / 10));
      fill("zero_optimization.stage3_param_persistence_threshold", fmt::format("{}", *hidden * 10));
    }
  }

  Status DeepSpeed() {
    if (!flags_.status()) return Ok();  // these mistakes come first
    Settings config(flags_.source());
    const char* named = flags_.Has("deepspeed") ? "deepspeed" : "deepspeed_config_file";
    if (flags_.Has(named) && Word(named) != "true") {
      const std::optional<std::string> path = flags_.Text(named);
      if (!path) return Ok();
      const Result<NamedFile> file = read_(*path);
      if (!file) {
        flags_.Fail("{} is '{}': {}", flags_.Shown(named), *path, file.error().message);
        return Ok();
      }
      WT_ASSIGN_OR_RETURN(config, ReadJsonSettings(file->text, *path));
    } else {
      AddAccelerates(config);
    }
    FillIn(config);
    return draft_.HasBelow("model") && draft_.Has("cluster.device") ? ImportDeepSpeed(config, draft_) : Ok();
  }

  // What accelerate's configuration says without a file of DeepSpeed's.
  void AddAccelerates(Settings& config) {
    struct Key {
      const char *name, *deepspeeds;
    };
    for (const Key& key : {Key{"zero_stage", "zero_optimization.stage"},
                           Key{"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
                           Key{"offload_param_device", "zero_optimization.offload_param.device"}})
      if (const Setting* setting = flags_.Find(key.name))
        config.Add({key.deepspeeds, setting->shown, setting->values});
    if (!flags_.Has("zero_stage")) config.Add({"zero_optimization.stage", kAccelerates, {"2"}});
  }

  Settings& flags_;
  const HuggingFaceMode& mode_;
  const ReadNamedFile& read_;
  Draft& draft_;
  std::set<std::string> fsdp_;
  bool is_sharded_ = false;
};

}  // namespace

Status ImportHuggingFaceSharding(Settings& flags, const HuggingFaceMode& mode, const ReadNamedFile& read,
                                 Draft& draft) {
  return ShardingImporter(flags, mode, read, draft).Import();
}

}  // namespace windtunnel
