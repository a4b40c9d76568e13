#include "scenarios/precision_checks.h"

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

// Both dimensions of a GEMM operand must consist of whole blocks of 32 numbers, since each block has a scale
// of its own (Transformer Engine, torchao). This holds for the part of each tensor rank.
void CheckScaledBlocks(const Scenario& scenario, Checker& check) {
  const Fp8Recipe recipe = scenario.precision.fp8_recipe;
  const ModelSpec& model = scenario.model;
  const ParallelSpec& parallel = scenario.parallel;
  if (recipe != Fp8Recipe::kMxfp8 && recipe != Fp8Recipe::kNvfp4) return;
  constexpr int64_t kBlock = 32;
  const int64_t tensor = parallel.tensor.size;
  const auto expect = [&](const char* path, const char* what, int64_t width) {
    check.Expect(Divides(kBlock, width), {path, "precision.fp8_recipe"},
                 "{}: a rank has {} {}, expected a multiple of {} with precision.fp8_recipe: {}", path, width,
                 what, kBlock, WordOf(recipe));
  };
  const bool experts_take_factors = scenario.framework == Framework::kMegatronCore;
  const int64_t sharing = parallel.TensorRanksHaveExperts() ? 1 : tensor;
  expect("model.hidden", "columns", model.hidden);
  if (!model.experts) expect("model.ffn", "columns", model.ffn / tensor);
  else if (experts_take_factors) expect("model.ffn", "columns of experts", model.ffn / sharing);
  if (model.experts) expect("model.experts.shared_ffn", "columns", model.experts->shared_ffn / tensor);
  if (model.experts) expect("model.experts.latent", "columns", model.experts->latent);
  if (model.MixesExperts()) expect("model.experts.dense_ffn", "columns", model.DenseFfn() / tensor);
  expect("model.heads", "columns of values", model.heads / tensor * model.ValueDim());
  if (model.latent_attention) {
    const LatentAttentionSpec& latent = *model.latent_attention;
    expect("model.latent_attention.q_rank", "columns", latent.q_rank);
    expect("model.latent_attention.kv_rank", "columns", latent.kv_rank);
    expect("model.latent_attention.rope_dim", "columns", latent.rope_dim);
    expect("model.head_dim", "columns of heads", model.heads / tensor * model.head_dim);
  } else {
    expect("model.kv_heads", "columns of queries, keys and values",
           ((model.attention_gate ? 2 : 1) * model.heads + 2 * model.kv_heads) / tensor * model.head_dim);
  }
  if (model.mamba) {
    const MambaSpec& mamba = *model.mamba;
    expect("model.mamba.heads", "columns of heads", mamba.inner() / tensor);
    expect("model.mamba.groups", "columns of the first projection",
           (2 * (mamba.inner() + mamba.groups * mamba.state) + mamba.heads) / tensor);
  }
  if (model.delta_net) {
    const DeltaNetSpec& net = *model.delta_net;
    expect("model.delta_net.value_heads", "columns of values", net.inner() / tensor);
    expect("model.delta_net.key_heads", "columns of the first projection", net.packed() / tensor);
  }
  const int64_t splits = parallel.context.size * (parallel.tensor.sequence ? tensor : 1);
  expect("model.seq_len", "tokens", scenario.batch.micro * model.seq_len / splits);
  if (model.encoder)
    expect("model.encoder.seq_len", "tokens", scenario.batch.micro * model.encoder->seq_len / splits);
}

// Megatron's distributed optimizer with Transformer Engine, and FSDP 2 with torchao.
void CheckWeightsInFp8(const Scenario& scenario, Checker& check) {
  const PrecisionSpec& precision = scenario.precision;
  if (!precision.fp8_param_gather) return;
  const char* const key = "precision.fp8_param_gather";
  const DataParallelSpec& data = scenario.parallel.data;
  const Fp8Recipe recipe = precision.fp8_recipe;
  const bool of_megatron =
      data.kind == DataParallelKind::kZero1 && scenario.framework == Framework::kMegatronCore;
  const bool of_fsdp =
      data.kind == DataParallelKind::kFsdp && data.version == 2 && !IsMegatronOrDeepspeed(scenario.framework);
  check.Expect(precision.compute == Precision::kFp8, {key, "precision.compute"},
               "{} is true, expected false with precision.compute: {}", key, WordOf(precision.compute));
  check.Expect(
      of_megatron || of_fsdp, {key, "parallel.data.kind"},
      "{} is true, expected kind: zero1 with framework: megatron_core, or kind: fsdp (version 2) with "
      "another framework than Megatron and DeepSpeed",
      key);
  check.Expect(!of_fsdp || recipe == Fp8Recipe::kTensorwise, {key, "precision.fp8_recipe"},
               "{} is true, expected precision.fp8_recipe: tensorwise with kind: fsdp, not {}", key,
               WordOf(recipe));
  check.Expect(recipe != Fp8Recipe::kRowwise, {key, "precision.fp8_recipe"},
               "{} is true, expected another precision.fp8_recipe than rowwise", key);
  check.Expect(precision.param != Precision::kFp32, {key, "precision.param"},
               "{} is true, expected precision.param: bf16 or fp16, the type of all other weights", key);
  check.Expect(data.offload == Offload::kNone, {key, "parallel.data.offload"},
               "{} is true, expected parallel.data.offload: none, not {}", key, WordOf(data.offload));
  check.Expect(data.sync == GradientSync::kLastMicroBatch || of_fsdp, {key, "parallel.data.sync"},
               "{} is true, expected parallel.data.sync: last_micro_batch", key);
  check.Expect(data.reshard_ranks == 0, {key, "parallel.data.reshard_after_forward"},
               "{} is true, expected parallel.data.reshard_after_forward: true or false, not {}", key,
               data.reshard_ranks);
}

void CheckTypes(const PrecisionSpec& precision, Checker& check) {
  const Precision param = precision.param;
  check.Expect(
      param == Precision::kFp32 || param == Precision::kBf16 || param == Precision::kFp16,
      {"precision.param"},
      "precision.param is '{}', expected fp32, bf16 or fp16: parameters are stored in those, and products of "
      "precision.compute convert them",
      WordOf(param));
  const bool may_be_narrower = param == Precision::kFp32 || precision.fp8_recipe != Fp8Recipe::kNone;
  check.Expect(precision.compute == param || may_be_narrower, {"precision.compute", "precision.param"},
               "precision.compute is '{}', expected precision.param ({}) or a type of fewer bits",
               WordOf(precision.compute), WordOf(param));
}

}  // namespace

void CheckPrecision(const Scenario& scenario, Checker& check) {
  CheckTypes(scenario.precision, check);
  const PrecisionSpec& precision = scenario.precision;
  const Fp8Recipe recipe = precision.fp8_recipe;
  const bool fp8 = precision.compute == Precision::kFp8, fp4 = precision.compute == Precision::kFp4;
  const bool is_of_fp8 = recipe != Fp8Recipe::kNone && recipe != Fp8Recipe::kNvfp4;
  check.Expect(!fp8 || is_of_fp8, {"precision.fp8_recipe", "precision.compute"},
               "precision.fp8_recipe is '{}', expected tensorwise, delayed, rowwise, block or mxfp8 for "
               "compute: fp8",
               WordOf(recipe));
  check.Expect(!fp4 || recipe == Fp8Recipe::kNvfp4, {"precision.fp8_recipe", "precision.compute"},
               "precision.fp8_recipe is '{}', expected nvfp4 for compute: fp4", WordOf(recipe));
  check.Expect(fp8 || fp4 || recipe == Fp8Recipe::kNone, {"precision.fp8_recipe"},
               "precision.fp8_recipe is '{}', expected none unless compute is fp8 or fp4", WordOf(recipe));
  check.Expect(!fp4 || scenario.framework == Framework::kMegatronCore, {"precision.compute", "framework"},
               "precision.compute is 'fp4', expected framework: megatron_core, since Transformer Engine's is "
               "the recipe that is modelled");
  const bool has_blocks = scenario.model.kind == ModelKind::kTransformer;
  check.Expect(has_blocks || !(fp8 || fp4), {"precision.compute"},
               "precision.compute is '{}', expected another type for kind: mlp: products of a transformer's "
               "blocks alone take it",
               WordOf(precision.compute));
  if (has_blocks) CheckScaledBlocks(scenario, check);
  CheckWeightsInFp8(scenario, check);
}

}  // namespace windtunnel
