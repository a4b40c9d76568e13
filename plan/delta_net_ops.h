// The operators of a layer's gated delta network. Operands and types are described as in plan/ops.h, of which
// this is a part.
#pragma once

#include <cstdint>

#include "base/ceil_divide.h"
#include "plan/dtype.h"

namespace windtunnel {

// What stands between the two projections of a gated delta network (Yang, Kautz and Hatamizadeh,
// arXiv:2412.06464), as one operator. Of each token, the first projection has made
//   packed  q[keys], k[keys], v[inner], z[inner], b[value_heads], a[value_heads],
//           keys = key_heads * key_dim, inner = value_heads * value_dim
// q, k and v are convolved along the sequence, column by column, without a bias, and activated:
//   silu(sum_j weight[j] u_{t - conv + 1 + j}),   u = q, k and v, 0 before the sequence
// Each head of q and of k is then divided by sqrt(the sum of its squares + 1e-6), and q by sqrt(key_dim),
// too. So many heads of values as `values_of_key` says take the same head of queries and of keys. Each head
// of values has a state S[key_dim, value_dim], 0 before the sequence, which each token decays and corrects
// where its key points:
//   e_t = exp(-exp(a_log) softplus(a_t + dt_bias)),   c_t = sigmoid(b_t)
//   u_t = c_t (v_t - (e_t S_{t-1})^T k_t),   S_t = e_t S_{t-1} + k_t u_t^T,   s_t = S_t^T q_t
// An RMS norm over each head follows, and a gate:
//   y = norm(s) gamma silu(z)
// `convolved` columns are q, k and v.
struct DeltaNetShape {
  int64_t batch = 0, seq = 0, key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, conv = 0;
  DType dtype = DType::kFloat32;

  int64_t tokens() const { return batch * seq; }
  int64_t keys() const { return key_heads * key_dim; }
  int64_t inner() const { return value_heads * value_dim; }
  int64_t convolved() const { return 2 * keys() + inner(); }
  int64_t packed() const { return convolved() + inner() + 2 * value_heads; }
  int64_t values_of_key() const { return value_heads / key_heads; }
};

// reads: packed[T, packed], conv weight[convolved, conv], a_log[value_heads], dt_bias[value_heads],
// gamma[value_dim]; writes: y[T, inner], s[T, inner], statistics (fp32 [T, value_heads]: 1/rms), workspace
// (fp32, DeltaNetWorkspaceElements). Predicted only: also what frameworks' kernels keep (KeptByChunks), which
// backward then reads last.
struct DeltaNetForward : DeltaNetShape {
  double epsilon = 1e-5;
};
// reads: dy, packed, the four parameters' values in forward's order, s, statistics; writes: dpacked, the
// parameters' gradients in that order (acc), workspace.
struct DeltaNetBackward : DeltaNetShape {
  bool accumulate = false;
};

// Predicted only: the tokens of a chunk of the kernels of others.
inline constexpr int64_t kDeltaNetChunk = 64;

// On GPUs a head's columns of values are computed in parts of so many at once, each with its own sum of the
// gradients of q and k.
inline constexpr int64_t kDeltaNetColumns = 64;
constexpr int64_t DeltaNetPartsOf(int64_t value_dim) { return CeilDivide(value_dim, kDeltaNetColumns); }

// forward: what the convolution made, with q and k as heads take them, and e and c. backward: those, and what
// heads of q and k were divided by; the gradients of what the convolution made and of s; v_t - (e_t
// S_{t-1})^T k_t; and of each head of values and part the gradients of q and k, and two numbers a token.
inline int64_t DeltaNetWorkspaceElements(const DeltaNetShape& s, bool backward) {
  const int64_t factors = 2 * s.value_heads;
  if (!backward) return s.tokens() * (s.convolved() + factors);
  const int64_t of_parts = DeltaNetPartsOf(s.value_dim) * s.value_heads * (2 * s.key_dim + 2);
  return s.tokens() * (2 * s.convolved() + 2 * s.key_heads + factors + 2 * s.inner() + of_parts);
}

// What others keep between forward and backward, in the activations' type, beside `packed` and s: queries,
// keys and values as heads take them, the inverse of each chunk (64 columns), and e and c. Megatron-Core
// (gated_delta_net of megatron/core/ssm) also keeps the normalised heads before they are repeated for heads
// of values, and what its norm returns, which the gate multiplies; transformers (modeling_qwen3_next.py) what
// is convolved, in one piece.
enum class DeltaNetKept : uint8_t { kByMegatron, kByTransformers };
inline int64_t KeptByChunks(const DeltaNetShape& s, DeltaNetKept by) {
  const int64_t of_head = 2 * s.key_dim + s.value_dim + kDeltaNetChunk + 3;
  const int64_t others = by == DeltaNetKept::kByMegatron ? 2 * s.keys() + s.inner() : s.convolved();
  return s.tokens() * (s.value_heads * of_head + others);
}
// The workspace of kernels that work by chunks (fla/ops/gated_delta_rule/chunk.py of flash-linear-attention),
// in fp32 numbers, with 16-bit ones: what the convolution made, the factors w and u of chunks, what tokens
// correct, and the states of chunks; in backward the gradients of these and of queries, keys and values,
// those of keys twice.
inline int64_t ChunkedWorkspaceElements(const DeltaNetShape& s, bool backward) {
  const int64_t states = s.key_dim * s.value_dim / kDeltaNetChunk;
  const int64_t of_head =
      backward ? 5 * (s.key_dim + s.value_dim) + 2 * states : s.key_dim + 2 * s.value_dim + states;
  return s.tokens() * (s.convolved() + s.value_heads * of_head) / 2;
}

}  // namespace windtunnel
