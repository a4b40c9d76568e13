// The layers of Megatron-LM's models that are not transformers: Mamba-2's, gated delta networks, and hybrids
// of either with attention (pretrain_mamba.py, pretrain_hybrid.py). What Megatron counts as layers are the
// letters of scenarios/layer_pattern.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/importers/draft.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

struct HybridLayers {
  std::string letters;   // of all layers; "M" if is_pure
  bool is_pure = false;  // nothing says which layers there are: all of --num-layers have Mamba-2
  std::vector<std::string> stages = {};  // of the pipeline, where | divides the letters
  // Of the modules of multi-token prediction, what is behind each /: the letters of one, and how many.
  std::string modules = {};
  int64_t depths = 0;
  std::string remark = {};               // where the letters come from
  bool Has(char letter) const { return letters.find(letter) != std::string::npos; }
};

// Nothing if it is another model: one of pretrain_gpt.py may have gated delta networks, too, by other flags
// (importers/megatron_model.cc). What --set says comes before the flags. Notes mistakes in `flags`.
std::optional<HybridLayers> ReadHybridLayers(const std::string& program, Settings& flags, const Draft& draft);

}  // namespace windtunnel
