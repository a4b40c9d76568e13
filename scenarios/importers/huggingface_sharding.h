// How accelerate divides a model over ranks, and in which types it computes.
#pragma once

#include <string>

#include "base/result.h"
#include "scenarios/importers/draft.h"
#include "scenarios/importers/huggingface.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

struct HuggingFaceMode {
  std::string mixed;           // "bf16" or "fp16", empty for none
  std::string mixed_remark;    // the setting that says so
  bool loads_16_bits = false;  // parameters are in 16 bits before anything is wrapped
  bool has_adapters = false, is_recomputed = false;
  std::optional<bool> finds_unused;  // what a program other than the Trainer does by default
};

// Adds `precision`, `parallel` and `cluster`: DDP, FSDP 1 or 2 with its replicas, tensor and context ranks,
// or DeepSpeed. Mistakes are noted in `flags`. Errors: those of a file of DeepSpeed's.
Status ImportHuggingFaceSharding(Settings& flags, const HuggingFaceMode& mode, const ReadNamedFile& read,
                                 Draft& draft);

}  // namespace windtunnel
