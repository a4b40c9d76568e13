// Precision, optimizer, recomputation and CUDA graphs of Megatron-LM's flags.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
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
    ActivationOffload();
    Graphs();
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
      if (flags_.Text("fp4_recipe").value_or("nvfp4") != "nvfp4") return flags_.Refuse("fp4_recipe", "nvfp4");
      draft_.Set("precision.fp8_recipe", "nvfp4", flags_.ShownOr("fp4_recipe", flags_.Shown("fp4_format")));
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

  // --cpu-offloading says nothing without a number.
  void ActivationOffload() {
    constexpr char kLayers[] = "cpu_offloading_num_layers";
    if (flags_.Integer(kLayers).value_or(0) <= 0) return;
    flags_.Ignore({"cpu_offloading"});
    draft_.Set("activation_offload", "true", flags_.Shown(kLayers));
    Integer("activation_offload_layers", kLayers);
  }

  void RecomputedModules() {
    const std::vector<std::string> modules = flags_.List("recompute_modules");
    if (modules.empty()) return;
    std::string list;
    for (const std::string& module : modules) list += (list.empty() ? "" : ", ") + Printable(module);
    draft_.Set("recompute_modules", std::string_view("[" + list + "]"), flags_.Shown("recompute_modules"));
  }

  // Whole layers, if no scope is given.
  void Graphs() {
    const std::string impl = flags_.Text("cuda_graph_impl").value_or("none");
    if (impl != "none" && impl != "local" && impl != "transformer_engine" && impl != "full_iteration")
      return flags_.Refuse("cuda_graph_impl", "none, local, transformer_engine or full_iteration");
    const bool local = flags_.Flag("enable_cuda_graph"), external = flags_.Flag("external_cuda_graph");
    const std::vector<std::string> scope = GraphScope();
    if (impl == "none" && !local && !external) return;
    const std::string* const framework = draft_.Find("framework");
    if (framework != nullptr && *framework != "megatron_core")
      return draft_.Note("CUDA graphs are predicted for Megatron-Core only, so there are none here.");
    const auto has = [&](std::string_view what) {
      return std::find(scope.begin(), scope.end(), what) != scope.end();
    };
    const bool is_one = impl == "full_iteration" || has("full_iteration");
    const std::string* const capacity = draft_.Find("model.experts.capacity_factor");
    if ((is_one || scope.empty()) && capacity != nullptr && *capacity == "0")
      return draft_.Note(
          "Graphs of experts that take any number of tokens are not modelled, so there are none here.");
    if (is_one && stages() > 1)
      return draft_.Note(
          "One CUDA graph of all passes is not modelled in a pipeline, so there are none here.");
    const char* const flag = local      ? "enable_cuda_graph"
                             : external ? "external_cuda_graph"
                                        : "cuda_graph_impl";
    draft_.Set("run.cuda_graphs", "true", flags_.Shown(flag));
    if (is_one) draft_.Set("run.cuda_graph_scope", std::string_view("[full_iteration]"), flags_.Shown(flag));
    else if (!scope.empty())
      draft_.Set("run.cuda_graph_scope", std::string_view(fmt::format("[{}]", fmt::join(scope, ", "))),
                 flags_.ShownOr("cuda_graph_modules", flags_.Shown("cuda_graph_scope")));
  }

  // Each word once, however they are separated; none if whole layers are meant ("full", older versions'
  // default), and without what is for inference.
  std::vector<std::string> GraphScope() {
    std::vector<std::string> scope;
    for (const char* flag : {"cuda_graph_scope", "cuda_graph_modules"}) {
      for (std::string words : flags_.List(flag)) {
        for (char& c : words)
          if (std::string_view(",[]'\"").find(c) != std::string_view::npos) c = ' ';
        std::istringstream stream(words);
        for (std::string word; stream >> word;) {
          if (word == "full") return {};
          const bool is_known = std::find(scope.begin(), scope.end(), word) != scope.end();
          if (!is_known && word != "full_iteration_inference") scope.push_back(Printable(word));
        }
      }
    }
    return scope;
  }
};

}  // namespace

void ImportMegatronTraining(LaunchCommand& command, Draft& draft) {
  TrainingImporter(command, draft).Import();
}

}  // namespace windtunnel
