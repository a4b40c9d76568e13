// The words that scenario files use for enumerations, in the order in which they are offered:
//
//   WordOf(NormKind::kRmsNorm) == "rmsnorm"
#pragma once

#include <iterator>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "scenarios/scenario.h"

namespace windtunnel {

template <typename E>
struct Word {
  std::string_view word;
  E value;
};

// Specialised for every enumeration of scenario.h that a file can name: a static constexpr array `table`.
template <typename E>
struct Words;

template <>
struct Words<ModelKind> {
  static constexpr Word<ModelKind> table[] = {{"transformer", ModelKind::kTransformer},
                                              {"mlp", ModelKind::kMlp}};
};
template <>
struct Words<ActivationKind> {
  static constexpr Word<ActivationKind> table[] = {{"gelu", ActivationKind::kGelu},
                                                   {"relu", ActivationKind::kRelu},
                                                   {"squared_relu", ActivationKind::kSquaredRelu},
                                                   {"swiglu", ActivationKind::kSwiglu},
                                                   {"geglu", ActivationKind::kGeglu},
                                                   {"clamped_swiglu", ActivationKind::kClampedSwiglu}};
};
template <>
struct Words<NormKind> {
  static constexpr Word<NormKind> table[] = {{"layernorm", NormKind::kLayerNorm},
                                             {"rmsnorm", NormKind::kRmsNorm}};
};
template <>
struct Words<PositionKind> {
  static constexpr Word<PositionKind> table[] = {{"learned", PositionKind::kLearned},
                                                 {"rope", PositionKind::kRope},
                                                 {"relative", PositionKind::kRelative},
                                                 {"none", PositionKind::kNone}};
};
template <>
struct Words<LoraTarget> {
  static constexpr Word<LoraTarget> table[] = {
      {"q", LoraTarget::kQueries}, {"k", LoraTarget::kKeys},          {"v", LoraTarget::kValues},
      {"qkv", LoraTarget::kQkv},   {"proj", LoraTarget::kProjection}, {"gate", LoraTarget::kGate},
      {"up", LoraTarget::kUp},     {"gate_up", LoraTarget::kGateUp},  {"down", LoraTarget::kDown}};
};
template <>
struct Words<Quantization> {
  static constexpr Word<Quantization> table[] = {
      {"none", Quantization::kNone}, {"nf4", Quantization::kNf4}, {"nf4_double", Quantization::kNf4Double}};
};
template <>
struct Words<QkNormSpan> {
  static constexpr Word<QkNormSpan> table[] = {{"head", QkNormSpan::kHead},
                                               {"all_heads", QkNormSpan::kAllHeads}};
};
template <>
struct Words<ParallelResidual> {
  static constexpr Word<ParallelResidual> table[] = {{"none", ParallelResidual::kNone},
                                                     {"one_norm", ParallelResidual::kOneNorm},
                                                     {"two_norms", ParallelResidual::kTwoNorms}};
};
template <>
struct Words<AttentionKind> {
  static constexpr Word<AttentionKind> table[] = {{"flash", AttentionKind::kFlash},
                                                  {"eager", AttentionKind::kEager}};
};
template <>
struct Words<FlashChoice> {
  static constexpr Word<FlashChoice> table[] = {{"framework", FlashChoice::kFramework},
                                                {"flash_attention_2", FlashChoice::kFlashAttention2},
                                                {"cudnn", FlashChoice::kCudnn}};
};
template <>
struct Words<LossScale> {
  static constexpr Word<LossScale> table[] = {{"none", LossScale::kNone}, {"dynamic", LossScale::kDynamic}};
};
template <>
struct Words<Precision> {
  static constexpr Word<Precision> table[] = {{"fp32", Precision::kFp32}, {"tf32", Precision::kTf32},
                                              {"bf16", Precision::kBf16}, {"fp16", Precision::kFp16},
                                              {"fp8", Precision::kFp8},   {"fp4", Precision::kFp4}};
};
template <>
struct Words<Fp8Recipe> {
  static constexpr Word<Fp8Recipe> table[] = {
      {"none", Fp8Recipe::kNone},       {"tensorwise", Fp8Recipe::kTensorwise},
      {"delayed", Fp8Recipe::kDelayed}, {"rowwise", Fp8Recipe::kRowwise},
      {"block", Fp8Recipe::kBlock},     {"mxfp8", Fp8Recipe::kMxfp8},
      {"nvfp4", Fp8Recipe::kNvfp4}};
};
template <>
struct Words<OptimizerKind> {
  static constexpr Word<OptimizerKind> table[] = {{"sgd", OptimizerKind::kSgd},
                                                  {"adam", OptimizerKind::kAdam},
                                                  {"adamw", OptimizerKind::kAdamW},
                                                  {"muon", OptimizerKind::kMuon}};
};
template <>
struct Words<RateAdjustment> {
  static constexpr Word<RateAdjustment> table[] = {{"original", RateAdjustment::kOriginal},
                                                   {"match_rms_adamw", RateAdjustment::kMatchRmsAdamW}};
};
template <>
struct Words<MomentsType> {
  static constexpr Word<MomentsType> table[] = {
      {"fp32", MomentsType::kFp32}, {"bf16", MomentsType::kBf16}, {"int8", MomentsType::kInt8}};
};
template <>
struct Words<LearningRateDecay> {
  static constexpr Word<LearningRateDecay> table[] = {{"none", LearningRateDecay::kNone},
                                                      {"linear", LearningRateDecay::kLinear},
                                                      {"cosine", LearningRateDecay::kCosine},
                                                      {"sqrt", LearningRateDecay::kSqrt},
                                                      {"step", LearningRateDecay::kStep}};
};
template <>
struct Words<Recompute> {
  static constexpr Word<Recompute> table[] = {{"none", Recompute::kNone},
                                              {"selective", Recompute::kSelective},
                                              {"selective_op", Recompute::kSelectiveOp},
                                              {"full", Recompute::kFull}};
};
template <>
struct Words<CrossEntropyKind> {
  static constexpr Word<CrossEntropyKind> table[] = {{"framework", CrossEntropyKind::kFramework},
                                                     {"fused", CrossEntropyKind::kFused}};
};
template <>
struct Words<RecomputeModule> {
  static constexpr Word<RecomputeModule> table[] = {{"core_attn", RecomputeModule::kCoreAttention},
                                                    {"layernorm", RecomputeModule::kLayerNorm},
                                                    {"mla_up_proj", RecomputeModule::kLatentUp},
                                                    {"mlp", RecomputeModule::kMlp},
                                                    {"moe", RecomputeModule::kMoe},
                                                    {"moe_act", RecomputeModule::kMoeActivation},
                                                    {"shared_experts", RecomputeModule::kSharedExperts}};
};
template <>
struct Words<CudaGraphScope> {
  static constexpr Word<CudaGraphScope> table[] = {{"attn", CudaGraphScope::kAttention},
                                                   {"mamba", CudaGraphScope::kMamba},
                                                   {"mlp", CudaGraphScope::kMlp},
                                                   {"moe", CudaGraphScope::kMoe},
                                                   {"moe_router", CudaGraphScope::kMoeRouter},
                                                   {"moe_preprocess", CudaGraphScope::kMoePreprocess},
                                                   {"full_iteration", CudaGraphScope::kFullIteration}};
};
template <>
struct Words<DataParallelKind> {
  static constexpr Word<DataParallelKind> table[] = {
      {"none", DataParallelKind::kNone},   {"dp", DataParallelKind::kDp},
      {"ddp", DataParallelKind::kDdp},     {"zero1", DataParallelKind::kZero1},
      {"zero2", DataParallelKind::kZero2}, {"zero3", DataParallelKind::kZero3},
      {"fsdp", DataParallelKind::kFsdp}};
};
template <>
struct Words<Sharding> {
  static constexpr Word<Sharding> table[] = {{"full_shard", Sharding::kFullShard},
                                             {"shard_grad_op", Sharding::kShardGradOp},
                                             {"hybrid_shard", Sharding::kHybridShard},
                                             {"hybrid_shard_zero2", Sharding::kHybridShardZero2},
                                             {"no_shard", Sharding::kNoShard}};
};
template <>
struct Words<GradientSync> {
  static constexpr Word<GradientSync> table[] = {{"last_micro_batch", GradientSync::kLastMicroBatch},
                                                 {"every_micro_batch", GradientSync::kEveryMicroBatch}};
};
template <>
struct Words<Prefetch> {
  static constexpr Word<Prefetch> table[] = {{"none", Prefetch::kNone},
                                             {"backward_pre", Prefetch::kBackwardPre},
                                             {"backward_post", Prefetch::kBackwardPost}};
};
template <>
struct Words<Offload> {
  static constexpr Word<Offload> table[] = {
      {"none", Offload::kNone}, {"optimizer", Offload::kOptimizer}, {"param", Offload::kParam}};
};
template <>
struct Words<MtpStage> {
  static constexpr Word<MtpStage> table[] = {{"last", MtpStage::kLast},
                                             {"before_last", MtpStage::kBeforeLast}};
};
template <>
struct Words<ContextKind> {
  static constexpr Word<ContextKind> table[] = {{"ring", ContextKind::kRing},
                                                {"all_gather", ContextKind::kAllGather},
                                                {"ulysses", ContextKind::kUlysses}};
};
template <>
struct Words<ExpertDispatcher> {
  static constexpr Word<ExpertDispatcher> table[] = {{"all_to_all", ExpertDispatcher::kAllToAll},
                                                     {"deepep", ExpertDispatcher::kDeepEp}};
};
template <>
struct Words<CollectiveAlgorithm> {
  static constexpr Word<CollectiveAlgorithm> table[] = {
      {"auto", CollectiveAlgorithm::kAuto}, {"ring", CollectiveAlgorithm::kRing},
      {"tree", CollectiveAlgorithm::kTree}, {"nvls", CollectiveAlgorithm::kNvls},
      {"pat", CollectiveAlgorithm::kPat},   {"hierarchical", CollectiveAlgorithm::kHierarchical}};
};
template <>
struct Words<CollectiveProtocol> {
  static constexpr Word<CollectiveProtocol> table[] = {{"auto", CollectiveProtocol::kAuto},
                                                       {"ll", CollectiveProtocol::kLl},
                                                       {"ll128", CollectiveProtocol::kLl128},
                                                       {"simple", CollectiveProtocol::kSimple}};
};
template <>
struct Words<Framework> {
  static constexpr Word<Framework> table[] = {
      {"windtunnel", Framework::kWindtunnel},          {"pytorch", Framework::kPytorch},
      {"pytorch_compile", Framework::kPytorchCompile}, {"megatron", Framework::kMegatron},
      {"megatron_core", Framework::kMegatronCore},     {"deepspeed", Framework::kDeepspeed}};
};
template <>
struct Words<AllocatorKind> {
  static constexpr Word<AllocatorKind> table[] = {{"windtunnel", AllocatorKind::kWindtunnel},
                                                  {"pytorch", AllocatorKind::kPytorch},
                                                  {"pytorch_expandable", AllocatorKind::kPytorchExpandable}};
};
template <>
struct Words<Backend> {
  static constexpr Word<Backend> table[] = {
      {"gloo", Backend::kGloo}, {"mpi", Backend::kMpi}, {"nccl", Backend::kNccl}};
};

// The word for `value`, which must be a valid value of the enumeration.
template <typename E>
std::string_view WordOf(E value) {
  for (const Word<E>& entry : Words<E>::table) {
    if (entry.value == value) return entry.word;
  }
  WT_CHECK_LT(static_cast<size_t>(value), std::size(Words<E>::table));
  return {};
}

}  // namespace windtunnel
