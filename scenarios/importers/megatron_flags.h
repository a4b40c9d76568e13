// Megatron-LM's flags and the scenario that is made of them, as the parts of the importer see them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/importers/draft.h"
#include "scenarios/importers/launch_command.h"
#include "scenarios/importers/megatron_hybrid.h"

namespace windtunnel {

class MegatronFlags {
 public:
  static constexpr char kDefault[] = "Megatron's default";

  MegatronFlags(LaunchCommand& command, Draft& draft)
      : program_(command.program), flags_(command.settings), draft_(draft) {}

 protected:
  // Copies of single flags. Where a flag is missing, the key is not set, or set to `missing`, Megatron's
  // default.
  void Integer(std::string_view key, std::string_view flag) {
    if (const auto value = flags_.Integer(flag)) draft_.Set(key, *value, flags_.Shown(flag));
  }
  void Integer(std::string_view key, std::string_view flag, int64_t missing) {
    if (!flags_.Has(flag)) draft_.Set(key, missing, kDefault);
    else Integer(key, flag);
  }
  void Number(std::string_view key, std::string_view flag) {
    if (const auto value = flags_.Number(flag)) draft_.Set(key, *value, flags_.Shown(flag));
  }
  void Number(std::string_view key, std::string_view flag, double missing) {
    if (!flags_.Has(flag)) draft_.Set(key, missing, kDefault);
    else Number(key, flag);
  }
  void Required(std::string_view key, std::string_view flag) {
    if (flags_.Has(flag)) return Integer(key, flag);
    if (!draft_.Has(key))
      flags_.Fail("{} is missing, expected it or --set {}=N", flags_.Shown("--" + Dashed(flag)), key);
  }
  static std::string Dashed(std::string_view name) {
    std::string dashed(name);
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    return dashed;
  }
  bool Sets(std::string_view key, std::string_view flag, std::string_view value) {
    if (!flags_.Flag(flag)) return false;
    draft_.Set(key, value, flags_.Shown(flag));
    return true;
  }

  // What --set says, else the flag.
  int64_t Effective(std::string_view key, std::string_view flag, int64_t missing) {
    const std::optional<int64_t> set = draft_.FindInteger(key), given = flags_.Integer(flag);
    return set ? *set : given.value_or(missing);
  }
  std::optional<HybridLayers> hybrid_layers() { return ReadHybridLayers(program_, flags_, draft_); }
  int64_t tensor_ranks() { return Effective("parallel.tensor.size", "tensor_model_parallel_size", 1); }
  int64_t stages() { return Effective("parallel.pipeline.size", "pipeline_model_parallel_size", 1); }
  int64_t context_ranks() { return Effective("parallel.context.size", "context_parallel_size", 1); }

  const std::string& program_;
  Settings& flags_;
  Draft& draft_;
};

// The parts. Mistakes are noted in the command's settings.
void ImportMegatronModel(LaunchCommand& command, Draft& draft);  // megatron_model.cc: `model`
void ImportMegatronTraining(LaunchCommand& command,
                            Draft& draft);  // megatron_training.cc: precision to recompute

}  // namespace windtunnel
