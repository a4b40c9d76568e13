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
    lines.push_back(
        fmt::format("{} is that of 2021 and 2022, which had no fp8: megatron_core has", WordOf(s.framework)));
  const Fp8Recipe recipe = s.precision.fp8_recipe;
  if (s.framework == Framework::kMegatronCore && recipe == Fp8Recipe::kRowwise)
    lines.emplace_back("megatron_core has no recipe rowwise (precision.fp8_recipe); it is torchtitan's");
  const bool has_narrow_moments =
      s.optimizer.moments == MomentsType::kBf16 && s.precision.optimizer == Precision::kFp32;
  if (is_older && has_narrow_moments)
    lines.push_back(
        fmt::format("{} is that of 2021 and 2022, whose moments are fp32 (optimizer.moments): "
                    "megatron_core has --use-precision-aware-optimizer",
                    WordOf(s.framework)));
  if (!IsPytorch(s.framework)) return;
  if (has_narrow_moments)
    lines.emplace_back(
        "moments in bf16 beside fp32 parameters (optimizer.moments) are not torch.optim's, which have the "
        "parameters' type: Transformer Engine's FusedAdam has them");
  if (recipe == Fp8Recipe::kDelayed || recipe == Fp8Recipe::kBlock)
    lines.push_back(
        fmt::format("torchao's float8 has no recipe {} (precision.fp8_recipe), but tensorwise and rowwise; "
                    "it is Transformer Engine's",
                    WordOf(recipe)));
  const DataParallelKind kind = s.parallel.data.kind;
  const bool is_whole = kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp;
  const bool has_16_bits = s.precision.param == Precision::kBf16 || s.precision.param == Precision::kFp16;
  // (peft's adapters are in fp32 beside weights of 16 bits.)
  if (is_whole && has_16_bits && s.precision.optimizer == Precision::kFp32 && !s.model.lora) {
    const bool is_bf16 = s.precision.param == Precision::kBf16;
    lines.push_back(fmt::format(
        "the optimizer has fp32 copies of parameters in {}, which PyTorch's optimizers do not make: {}",
        WordOf(s.precision.param),
        is_bf16 ? "with precision.optimizer: bf16 it has none"
                : "torch.autocast is precision: {param: fp32, compute: fp16}"));
  }
  if (kind == DataParallelKind::kFsdp && s.precision.param == Precision::kFp32 &&
      (s.precision.compute == Precision::kBf16 || s.precision.compute == Precision::kFp16))
    lines.push_back(fmt::format(
        "FSDP gathers and reduces in fp32 under autocast; its MixedPrecision of {0} is precision.param: {0}",
        WordOf(s.precision.compute)));
}

// Kinds of data parallelism that shard.
void AddZero(const Scenario& s, Lines& lines) {
  const DataParallelKind kind = s.parallel.data.kind;
  if (IsPytorch(s.framework) && IsZero(kind))
    lines.push_back(fmt::format(
        "PyTorch has no strategy like kind: {}: it is taken as DeepSpeed's, with PyTorch's kernels (its "
        "ZeroRedundancyOptimizer is optimizer.zero_redundancy; FSDP shards as much or more)",
        WordOf(kind)));
  const bool has_16_bits = s.precision.param == Precision::kBf16 || s.precision.param == Precision::kFp16;
  const bool reduces_wider = has_16_bits && s.precision.reduce == Precision::kFp32;
  const bool is_zero3 = kind == DataParallelKind::kZero3 && s.framework != Framework::kWindtunnel;
  if ((is_zero3 || IsDeepspeedsZero(s)) && reduces_wider)
    lines.push_back(
        fmt::format("gradients are reduced and added up in fp32, where DeepSpeed does so in the parameters' "
                    "type unless its "
                    "configuration says otherwise (communication_data_type): precision.reduce: {}",
                    WordOf(s.precision.param)));
  if (kind == DataParallelKind::kDdp && IsPytorch(s.framework) && reduces_wider)
    lines.push_back(
        fmt::format("gradients are reduced in fp32, where PyTorch's DDP has buckets of their own type: "
                    "precision.reduce: {}",
                    WordOf(s.precision.param)));
  if ((s.framework == Framework::kMegatron || s.framework == Framework::kMegatronCore) &&
      kind == DataParallelKind::kZero2)
    lines.push_back(fmt::format("{}'s distributed optimizer is kind: zero1; it keeps gradients whole",
                                WordOf(s.framework)));
}

void AddSharding(const Scenario& s, Lines& lines) {
  const DataParallelSpec& data = s.parallel.data;
  if (data.kind != DataParallelKind::kFsdp) return;
  if (s.framework == Framework::kDeepspeed)
    lines.emplace_back("DeepSpeed has no FSDP, which is PyTorch's; its third stage is kind: zero3");
  if (s.framework == Framework::kMegatron)
    lines.emplace_back("megatron is that of 2021 and 2022, which had no FSDP");
  if (s.framework == Framework::kMegatronCore)
    lines.emplace_back(
        "Megatron's own FSDP is not modelled: kind: fsdp is PyTorch's FSDP (--use-torch-fsdp2)");
  if (!IsPytorch(s.framework)) return;
  if (data.version == 2 && data.sharding == Sharding::kNoShard)
    lines.emplace_back(
        "fully_shard (version: 2) has no counterpart of sharding: no_shard, which is version 1's");
  if (data.version == 1 && s.model.attention == AttentionKind::kFlash &&
      s.model.flash_kernels == FlashChoice::kFramework)
    lines.emplace_back(
        "with version: 1 attention is FlashAttention's first version, as in the PyTorch of its time; "
        "model.flash_kernels: flash_attention_2 is that of later ones");
  if (s.parallel.pipeline.size > 1 && s.derived.reshard_after_forward && data.reshard_after_forward)
    lines.emplace_back(
        "in a pipeline torchtitan keeps parameters after forward (reshard_after_forward: false), which is "
        "not "
        "the default here");
}

void AddSchedule(const Scenario& s, Lines& lines) {
  const std::string& schedule = s.parallel.pipeline.schedule;
  if (s.parallel.pipeline.size == 1 || !IsMegatronOrDeepspeed(s.framework)) return;
  const bool interleaves = s.framework != Framework::kDeepspeed;
  // (megatron/core/pipeline_parallel/schedules.py; in 2021 schedules.py asserted the second as well.)
  const int64_t stages = s.parallel.pipeline.size, micro_batches = s.batch.accumulate;
  const bool lacks_some =
      micro_batches < stages || (s.framework == Framework::kMegatron && micro_batches % stages != 0);
  if (interleaves && schedule == "interleaved" && lacks_some)
    lines.push_back(fmt::format(
        "{}'s schedule interleaved needs {} {} micro-batches, and stops at {}", WordOf(s.framework),
        s.framework == Framework::kMegatron ? "a multiple of" : "at least", stages, micro_batches));
  if (schedule == "none" || schedule == "1f1b" || schedule.ends_with(".csv") ||
      (interleaves && schedule == "interleaved") || s.parallel.expert.overlap)
    return;
  lines.push_back(fmt::format("{} has no schedule {}, but {}", WordOf(s.framework), schedule,
                              interleaves ? "1f1b and interleaved" : "1f1b"));
}

void AddModelAxes(const Scenario& s, Lines& lines) {
  const ContextParallelSpec& context = s.parallel.context;
  if (context.size == 1) return;
  const bool is_ulysses = context.kind == ContextKind::kUlysses;
  if (IsPytorch(s.framework) && is_ulysses)
    lines.emplace_back(
        "PyTorch's context parallelism has no ulysses (parallel.context.kind), but ring and all_gather");
  if (s.framework == Framework::kDeepspeed && !is_ulysses)
    lines.push_back(fmt::format("DeepSpeed's context parallelism is ulysses (parallel.context.kind), not {}",
                                WordOf(context.kind)));
}

void AddActivationOffload(const Scenario& s, Lines& lines) {
  if (!s.activation_offload) return;
  if (s.framework == Framework::kMegatron)
    lines.emplace_back("megatron is that of 2021 and 2022, which had no activation_offload");
  const bool is_full = s.recompute == Recompute::kFull;
  if (s.framework == Framework::kDeepspeed && !is_full)
    lines.emplace_back(
        "DeepSpeed moves activations to the host (cpu_checkpointing) only with recompute: full");
  if (s.framework == Framework::kMegatronCore &&
      (s.recompute != Recompute::kNone || s.parallel.pipeline.size > 1))
    lines.emplace_back(
        "Megatron-Core's cpu_offloading goes neither with recomputation nor with a pipeline (its "
        "fine-grained offloading, which does, moves the inputs of single modules)");
}

void AddRecomputation(const Scenario& s, Lines& lines) {
  if (IsMegatronOrDeepspeed(s.framework) && s.recompute == Recompute::kSelectiveOp)
    lines.push_back(fmt::format("{} has no recompute: selective_op, which is torchtitan's, but selective",
                                WordOf(s.framework)));
}

void AddParallelResidual(const Scenario& s, Lines& lines) {
  if (s.model.parallel_residual == ParallelResidual::kNone) return;
  if (s.framework == Framework::kMegatronCore)
    lines.emplace_back(
        "Megatron-Core has no blocks whose MLP is beside attention (model.parallel_residual): GPT-NeoX's "
        "library, which has, is framework: deepspeed");
  if (s.framework == Framework::kDeepspeed && s.parallel.tensor.size > 1)
    lines.emplace_back(
        "GPT-NeoX's library reduces the sum of attention and the MLP over tensor ranks at once, which is two "
        "reductions here (model.parallel_residual)");
}

void AddAdapters(const Scenario& s, Lines& lines) {
  if (!s.model.lora) return;
  if (s.framework == Framework::kMegatron)
    lines.emplace_back(
        "megatron is that of 2021 and 2022, which had no adapters (model.lora): megatron_core has them by "
        "Megatron-Bridge");
  if (s.framework == Framework::kMegatronCore && s.parallel.tensor.size > 1)
    lines.emplace_back(
        "Megatron-Bridge splits both matrices of an adapter (model.lora) over tensor ranks, and gathers "
        "between them, which is not modelled");
  if (s.framework == Framework::kMegatronCore && s.model.lora->is_quantized())
    lines.emplace_back(
        "Megatron-Bridge's adapters are of 16-bit weights: weights in 4 bits (model.lora.quantize) are "
        "bitsandbytes' or torchao's, in PyTorch");
}

}  // namespace

std::vector<std::string> FrameworkDoubts(const Scenario& scenario) {
  Lines lines;
  AddPrecision(scenario, lines);
  AddZero(scenario, lines);
  AddSharding(scenario, lines);
  AddModelAxes(scenario, lines);
  AddActivationOffload(scenario, lines);
  AddRecomputation(scenario, lines);
  AddParallelResidual(scenario, lines);
  AddAdapters(scenario, lines);
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
