// Kinds of layers and of products that a scenario names and operators have. Apart from scenario.h for
// operators and their kernels, which know no scenarios.
#pragma once

namespace windtunnel {

// Definitions for an input x. A gated activation's x holds the gate g and the value u side by side, each
// `columns` wide:
//   gelu            x Phi(x), the exact form          geglu           gelu(g) u
//   relu            max(x, 0)                         swiglu          g s(g) u, s the sigmoid
//   squared_relu    max(x, 0)^2                       clamped_swiglu  c s(1.702 c) (v + 1),
//                                                     c = min(g, 7), v = u within [-7, 7]
// Sources: Shazeer 2020 (GLU variants), So et al. 2021 (Primer), OpenAI's gpt-oss (model.py, swiglu).
enum class ActivationKind { kGelu, kRelu, kSquaredRelu, kSwiglu, kGeglu, kClampedSwiglu };
inline constexpr float kGateLimit = 7.0f, kGateSteepness = 1.702f;  // of clamped_swiglu
constexpr bool IsGated(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kGelu:
    case ActivationKind::kRelu:
    case ActivationKind::kSquaredRelu:
      return false;
    case ActivationKind::kSwiglu:
    case ActivationKind::kGeglu:
    case ActivationKind::kClampedSwiglu:
      return true;
  }
  return false;
}
enum class NormKind { kLayerNorm, kRmsNorm };
// kRelative: T5's biases of scores, by the distance of query and key (plan/relative_buckets.h).
enum class PositionKind { kLearned, kRope, kRelative, kNone };
enum class AttentionKind { kFlash, kEager };
// Whether attention and MLP of a block take the same residual stream (GPT-J's x + attention(norm(x)) +
// mlp(norm(x))) instead of one behind the other, and how many norms they have then.
enum class ParallelResidual { kNone, kOneNorm, kTwoNorms };
// What RMS norms of queries and keys span: each head (Qwen3), or all heads of a token together (OLMo 2).
enum class QkNormSpan { kHead, kAllHeads };
enum class Fp8Recipe { kNone, kTensorwise, kDelayed, kRowwise, kBlock, kMxfp8, kNvfp4 };

}  // namespace windtunnel
