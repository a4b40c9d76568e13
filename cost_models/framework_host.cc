#include "cost_models/framework_host.h"

namespace windtunnel {
namespace {

// Beyond the launch; the header names the sources.
constexpr double kEagerOperatorMicroseconds = 7, kCompiledKernelMicroseconds = 3.8;

}  // namespace

int EagerKernels(const OpKind& kind) {
  // The residual stream's addition is an operator of its own.
  if (const auto* norm = std::get_if<NormForward>(&kind)) return norm->residual ? 2 : 1;
  if (const auto* norm = std::get_if<NormBackward>(&kind)) return norm->residual ? 2 : 1;
  // Magnitudes and their reduction; product with the scale, clamp and conversion (and, compiled, one each).
  if (std::holds_alternative<Fp8Amax>(kind)) return 2;
  if (std::holds_alternative<Fp8Cast>(kind)) return 3;
  // SwiGLU: silu and a product; backwards, both factors.
  if (const auto* a = std::get_if<ActivationForward>(&kind))
    return a->kind == ActivationKind::kSwiglu ? 2 : 1;
  if (const auto* a = std::get_if<ActivationBackward>(&kind))
    return a->kind == ActivationKind::kSwiglu ? 3 : 1;
  // Two look-ups and their sum.
  // (Megatron's vocab-parallel one also masks foreign ids, before and after: two comparisons, their disjunction, a difference, two
  // fills.)
  if (const auto* e = std::get_if<EmbeddingForward>(&kind))
    return (e->learned_positions ? 3 : 1) + (e->vocab_parallel ? 6 : 0);
  if (const auto* e = std::get_if<EmbeddingBackward>(&kind)) return e->learned_positions ? 2 : 1;
  // Flash: one; backwards its row sums come first and the query gradient is converted at the end. Eager: scores, scale,
  // mask, softmax, values.
  if (const auto* a = std::get_if<AttentionForward>(&kind)) return a->kind == AttentionKind::kFlash ? 1 : 5;
  if (const auto* a = std::get_if<AttentionBackward>(&kind)) return a->kind == AttentionKind::kFlash ? 3 : 8;
  // Softmax, top-k, and what counts and sorts tokens by expert (Megatron's permutation: a map, its sum, two index selections);
  // grouped products, permutations and their sums are a kernel each.
  if (std::holds_alternative<RouteTokens>(kind)) return 6;
  if (std::holds_alternative<RouteTokensBackward>(kind)) return 3;
  if (std::holds_alternative<CombineBackward>(kind)) return 3;
  // Of blocks as of flash. Merging: differences and exponentials of both, the sums' logarithm, two products and their sum.
  if (std::holds_alternative<ContextAttentionBackward>(kind)) return 3;
  if (std::holds_alternative<MergeAttention>(kind)) return 6;
  // log_softmax and nll_loss, each forwards and backwards.
  if (std::holds_alternative<CrossEntropy>(kind)) return 4;
  // Megatron's, function by function: conversion and maximum; difference, the mask of foreign targets (three), the targets' logits (six),
  // exponential and sum; logarithm, loss, mean, quotient, and backwards the gradient at the targets (four) and its scale.
  if (std::holds_alternative<VocabParallelMaximum>(kind)) return 2;
  if (std::holds_alternative<VocabParallelSums>(kind)) return 12;
  if (std::holds_alternative<VocabParallelLoss>(kind)) return 9;
  return 1;
}

Duration HostTime(const OpKind& kind, Framework framework, Duration launch) {
  switch (framework) {
    case Framework::kWindtunnel:
      return launch;
    case Framework::kPytorchCompile:
      return launch + Microseconds(kCompiledKernelMicroseconds);
    case Framework::kPytorch:
    case Framework::kMegatron:
    case Framework::kDeepspeed:
      return (launch + Microseconds(kEagerOperatorMicroseconds)) * EagerKernels(kind);
  }
  return launch;
}

}  // namespace windtunnel
