// Precision, optimizer and recomputation of Megatron-LM's flags.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/characters.h"
#include "scenarios/importers/cluster_size.h"
#include "scenarios/importers/megatron_flags.h"
#include "scenarios/layer_pattern.h"

namespace windtunnel {
namespace {

class TrainingImporter : MegatronFlags {
 public:
  using MegatronFlags::MegatronFlags;

  void Import() {
    Precision();
    Optimizer();
    Recomputation();
    const bool fuses = flags_.Flag("cross_entropy_loss_fusion");
    if (fuses && flags_.Text("cross_entropy_fusion_impl").value_or("native") == "te")
      draft_.Set("cross_entropy", "fused", flags_.Shown("cross_entropy_fusion_impl"));
  }

 private:
  void Precision() {
    const bool bf16 = flags_.Flag("bf16"), fp16 = flags_.Flag("fp16");
    if (bf16 || fp16)
      draft_.Set("precision.param", bf16 ? "bf16" : "fp16", flags_.Shown(bf16 ? "bf16" : "fp16"));
    const bool reduces_in_fp32 = flags_.Flag("accumulate_allreduce_grads_in_fp32") || bf16;
    if (flags_.Flag("grad_reduce_in_bf16"))
      draft_.Set("precision.reduce", "bf16", flags_.Shown("grad_reduce_in_bf16"));
    else if (fp16 && !reduces_in_fp32)
      draft_.Set("precision.reduce", "fp16", "no --accumulate-allreduce-grads-in-fp32");
    if (fp16) LossScale();
    Fp8();
  }

  void LossScale() {
    if (flags_.Has("loss_scale")) return Number("precision.loss_scale", "loss_scale");
    draft_.Set("precision.loss_scale", "dynamic", kDefault);
    Number("precision.init_scale", "initial_loss_scale", 4294967296.0);
    Integer("precision.growth_interval", "loss_scale_window", 1000);
  }

  void Fp8() {
    if (flags_.Has("fp4_format")) {
      draft_.Set("precision.compute", "fp4", flags_.Shown("fp4_format"));
      draft_.Set("precision.fp8_recipe", "nvfp4", flags_.Shown("fp4_format"));
      return;
    }
    const char* format = flags_.Has("fp8_format")    ? "fp8_format"
                         : flags_.Flag("fp8_hybrid") ? "fp8_hybrid"
                                                     : "fp8_e4m3";
    if (!flags_.Has(format)) return;
    draft_.Set("precision.compute", "fp8", flags_.Shown(format));
    const std::string recipe = flags_.Text("fp8_recipe").value_or("delayed");
    const std::string remark = flags_.ShownOr("fp8_recipe", kDefault);
    if (recipe == "blockwise") draft_.Set("precision.fp8_recipe", "block", remark);
    else if (recipe == "delayed" || recipe == "tensorwise" || recipe == "mxfp8")
      draft_.Set("precision.fp8_recipe", std::string_view(recipe), remark);
    else flags_.Refuse("fp8_recipe", "delayed, tensorwise, blockwise or mxfp8");
    Sets("precision.fp8_param_gather", "fp8_param_gather", "true");
  }

  void Optimizer() {
    const std::string kind = flags_.Text("optimizer").value_or("adam");
    const std::string remark =
        flags_.Has("optimizer") ? flags_.Shown("optimizer") + " " + kind : std::string(kDefault);
    if (kind == "sgd") {
      draft_.Set("optimizer.kind", "sgd", remark);
      Number("optimizer.momentum", "sgd_momentum", 0.9);
    } else if (kind == "adam") {
      draft_.Set("optimizer.kind", "adamw", remark);
      Number("optimizer.beta1", "adam_beta1");
      Number("optimizer.beta2", "adam_beta2");
      Number("optimizer.eps", "adam_eps");
    } else if (kind == "muon" || kind == "dist_muon") {
      draft_.Set("optimizer.kind", "muon", remark);
      Number("optimizer.momentum", "muon_momentum", 0.9);
      Integer("optimizer.ns_steps", "muon_num_ns_steps");
      if (kind == "dist_muon")
        draft_.Note(
            "Every rank updates all matrices here: that data ranks share them (dist_muon) is not modelled.");
    } else {
      return flags_.Refuse("optimizer", "adam, sgd or muon");
    }
    Number("optimizer.lr", "lr");
    Number("optimizer.weight_decay", "weight_decay", 0.01);
    Number("optimizer.clip_norm", "clip_grad", 1.0);
    Moments();
  }

  void Moments() {
    const std::string first = flags_.Text("exp_avg_dtype").value_or("fp32");
    const std::string second = flags_.Text("exp_avg_sq_dtype").value_or("fp32");
    flags_.Ignore({"use_precision_aware_optimizer"});
    if (first == "bf16" && second == "bf16")
      draft_.Set("optimizer.moments", "bf16", flags_.Shown("exp_avg_dtype"));
    else if (first != "fp32" || second != "fp32")
      draft_.Note(fmt::format("Moments are in fp32 here; {} and {} are not modelled.", first, second));
  }

  void Recomputation() {
    if (Sets("recompute", "recompute_activations", "selective") ||
        Sets("recompute", "checkpoint_activations", "full"))
      return;
    const std::string granularity = flags_.Text("recompute_granularity").value_or("none");
    if (granularity == "none") return;
    if (granularity != "full" && granularity != "selective")
      return flags_.Refuse("recompute_granularity", "full or selective");
    draft_.Set("recompute", std::string_view(granularity), flags_.Shown("recompute_granularity"));
    if (granularity == "selective") return RecomputedModules();
    const std::string method = flags_.Text("recompute_method").value_or("uniform");
    int64_t number = flags_.Integer("recompute_num_layers").value_or(1);
    const std::optional<HybridLayers> hybrid = hybrid_layers();
    if (hybrid && (hybrid->Has('-') || hybrid->Has('E'))) {
      draft_.Note("A layer that is recomputed is a mixer with its MLP here; in Megatron these are two.");
      if (method == "block")
        number = LayersInPattern(std::string_view(hybrid->letters).substr(0, static_cast<size_t>(number)));
    }
    if (method == "block") draft_.Set("recompute_layers", number, flags_.Shown("recompute_num_layers"));
    else if (number > 1)
      draft_.Note(fmt::format(
          "Layers are recomputed one at a time here; uniformly {} at a time is not modelled.", number));
  }

  void RecomputedModules() {
    const std::vector<std::string> modules = flags_.List("recompute_modules");
    if (modules.empty()) return;
    std::string list;
    for (const std::string& module : modules) list += (list.empty() ? "" : ", ") + Printable(module);
    draft_.Set("recompute_modules", std::string_view("[" + list + "]"), flags_.Shown("recompute_modules"));
  }
};

}  // namespace

void ImportMegatronTraining(LaunchCommand& command, Draft& draft) {
  TrainingImporter(command, draft).Import();
}

}  // namespace windtunnel
