#include "scenarios/framework_doubts.h"

#include <fmt/format.h>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

using Lines = std::vector<std::string>;

void AddPrecision(const Scenario& s, Lines& lines) {
  const bool is_older = s.framework == Framework::kMegatron || s.framework == Framework::kDeepspeed;
  if (is_older && s.precision.fp8_recipe != Fp8Recipe::kNone)
    lines.push_back(fmt::format("{} is that of 2021 and 2022, which had no fp8: megatron_core has",
                                WordOf(s.framework)));
  if (s.framework == Framework::kMegatronCore && s.precision.fp8_recipe == Fp8Recipe::kRowwise)
    lines.emplace_back("megatron_core has no recipe rowwise (precision.fp8_recipe); it is torchtitan's");
}

void AddSharding(const Scenario& s, Lines& lines) {
  const DataParallelSpec& data = s.parallel.data;
  if (data.kind != DataParallelKind::kFsdp) return;
  if (s.framework == Framework::kDeepspeed)
    lines.emplace_back("DeepSpeed's own third stage is not modelled: kind: fsdp is PyTorch's FSDP");
  if (s.framework == Framework::kMegatron)
    lines.emplace_back("megatron is that of 2021 and 2022, which had no FSDP");
  if (!IsPytorch(s.framework)) return;
  if (data.version == 1 && s.model.attention == AttentionKind::kFlash &&
      s.model.flash_kernels == FlashChoice::kFramework)
    lines.emplace_back(
        "with version: 1 attention is FlashAttention's first version, as in the PyTorch of its time; "
        "model.flash_kernels: flash_attention_2 is that of later ones");
  if (s.parallel.pipeline.size > 1 && s.derived.reshard_after_forward && data.reshard_after_forward)
    lines.emplace_back(
        "in a pipeline torchtitan keeps parameters after forward (reshard_after_forward: false), which is not "
        "the default here");
}

void AddSchedule(const Scenario& s, Lines& lines) {
  const std::string& schedule = s.parallel.pipeline.schedule;
  if (s.parallel.pipeline.size == 1 || !IsMegatronOrDeepspeed(s.framework)) return;
  const bool interleaves = s.framework != Framework::kDeepspeed;
  if (schedule == "none" || schedule == "1f1b" || schedule.ends_with(".csv") ||
      (interleaves && schedule == "interleaved") || s.parallel.expert.overlap)
    return;
  lines.push_back(fmt::format("{} has no schedule {}, but {}", WordOf(s.framework), schedule,
                              interleaves ? "1f1b and interleaved" : "1f1b"));
}

}  // namespace

std::vector<std::string> FrameworkDoubts(const Scenario& scenario) {
  Lines lines;
  AddPrecision(scenario, lines);
  AddSharding(scenario, lines);
  AddSchedule(scenario, lines);
  const bool has_eager_loss = scenario.framework == Framework::kPytorchCompile &&
                              scenario.model.kind == ModelKind::kTransformer &&
                              scenario.cross_entropy == CrossEntropyKind::kFramework;
  if (has_eager_loss)
    lines.emplace_back(
        "the loss is PyTorch's eager one, outside of what is compiled; where it is compiled, too, as "
        "nanoGPT's, say cross_entropy: fused");
  return lines;
}

}  // namespace windtunnel
