// The operators of attention and of positions: norms of heads, attention, whole and in shares of context-parallel ranks, rotation.
// Operands and types are described as in plan/op.h, which this is part of.
#pragma once

#include <cstdint>

#include "plan/dtype.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Which tokens of each sequence a rank has, where `ranks` context-parallel ranks share it: a run of them, rank after rank; or, in
// zigzag, of twice as many chunks the rank's own from either end (rank 0 of two: the first and the fourth), so that causal attention is
// the same work for all.
struct TokenSplit {
  int ranks = 1;
  bool zigzag = false;
  bool operator==(const TokenSplit&) const = default;
};
// The place in the whole sequence of token `token` of the `tokens` that `rank` has.
int64_t WholePosition(const TokenSplit& split, int rank, int64_t tokens, int64_t token);

// RMS norm of each query head and each key head of packed projections x[T, (heads + 2 kv_heads) * head_dim], with a weight for either
// kind; value heads are copied. reads: x, queries' gamma[head_dim], keys' gamma[head_dim]; writes: y, statistics (fp32
// [T, heads + kv_heads]: 1/rms).
struct HeadNormForward {
  int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::kFloat32;
  double epsilon = 1e-5;
};
// reads: dy, x, queries' gamma, keys' gamma, statistics; writes: dx (may be dy), their gradients (acc).
struct HeadNormBackward {
  int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
};

// Causal multi-head attention over packed projections qkv[T, (heads + 2 kv_heads) * head_dim] (all query heads, then key
// heads, then value heads), scaled by head_dim^-1/2. out is [T, heads * head_dim]. Heads of values may have another width (value_dim): qkv
// is then [T, (heads + kv_heads) * head_dim + kv_heads * value_dim], and out [T, heads * value_dim].
// With a window, which is shorter than seq, a query sees that many keys at most, the last of which is its own.
// eager saves the probabilities [batch, heads, seq, seq] (those of what is not seen are zero);
// flash saves the rows' log-sum-exp [batch, heads, seq]. The workspace holds tiles; its size is AttentionWorkspaceElements().
// forward: reads qkv; writes out, saved, workspace.
// backward: reads dout, qkv, out, saved; writes dqkv, workspace.
struct AttentionForward {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  AttentionKind kind = AttentionKind::kFlash;
  DType dtype = DType::kFloat32;
  int64_t value_dim = 0;  // 0: head_dim
  int64_t window = 0;     // keys that a query sees at most; 0: all before

  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
};
struct AttentionBackward {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  AttentionKind kind = AttentionKind::kFlash;
  DType dtype = DType::kFloat32;
  bool deterministic = false;  // by a kernel that repeats its bits, where another would be faster
  int64_t value_dim = 0, window = 0;  // as AttentionForward's

  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
};
// Elements (fp32) of one rank's attention workspace: a query-block x sequence tile of scores, and in backward one of their gradient, too.
// Query blocks have kAttentionBlock rows.
inline constexpr int64_t kAttentionBlock = 64;
int64_t AttentionWorkspaceElements(int64_t seq, bool backward);

// Attention of the queries of a context-parallel rank's tokens (`seq` of each sequence, split in zigzag) with the keys and values of
// some ranks' tokens, kv[blocks, T, 2 kv_heads * head_dim] (keys, then values): of all ranks, in their order (`blocks` = `ranks`), or of
// the one (`blocks` = 1) that is `step` before this rank around the ring. A query that sees none of the keys gets zero, and a log-sum-exp
// of minus infinity. The workspace is that of AttentionForward of blocks * seq tokens.
// forward: reads qkv, kv; writes out, log_sum_exp (fp32 [batch, heads, seq]), workspace.
// backward, given the out and log_sum_exp of all blocks together: reads dout, qkv, kv, out, log_sum_exp; writes dqkv (the queries'
// columns, acc), dkv, workspace.
struct ContextAttentionForward {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int ranks = 1, blocks = 1, step = 0;
  DType dtype = DType::kFloat32;
};
struct ContextAttentionBackward {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int ranks = 1, blocks = 1, step = 0;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
};
// (out, log_sum_exp) of two sets of keys become those of both together. reads: the one's out[T, heads * head_dim] and
// log_sum_exp; writes: the other's, in place.
struct MergeAttention {
  int64_t batch = 0, seq = 0, heads = 0, head_dim = 0;
  DType dtype = DType::kFloat32;
};

// What multi-head latent attention makes of up-projected latents: packed projections as AttentionForward takes them, with as many key heads
// as query heads. The last rope_dim of a head's head_dim columns are rotated (by halves, as Rope does); keys' are those of one key that
// all heads share. Of kv, a head has the other head_dim - rope_dim columns of its key, then its value.
// forward reads: q[T, heads * head_dim], kv[T, heads * (head_dim - rope_dim + value_dim)], shared_key[T, rope_dim]; writes: qkv.
// backward reads: dqkv; writes: dq, dkv, dshared_key (the sum over heads).
struct JoinLatentHeads {
  int64_t batch = 0, seq = 0, heads = 0, head_dim = 0, rope_dim = 0, value_dim = 0;
  bool backward = false;
  DType dtype = DType::kFloat32;
  TokenSplit context = {};
  double theta = 10'000;

  int64_t tokens() const { return batch * seq; }
  int64_t query_columns() const { return heads * head_dim; }
  int64_t kv_columns() const { return heads * (head_dim - rope_dim + value_dim); }
  int64_t packed_columns() const { return heads * (2 * head_dim + value_dim); }
};

// Rotary positions (rotating halves as Llama does), in place on the query and key heads of qkv[T, (heads + 2 kv_heads) * head_dim];
// backward rotates gradients the other way. theta, the base, is no part of the cost. reads: qkv; writes: qkv.
struct Rope {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool backward = false;
  DType dtype = DType::kFloat32;
  TokenSplit context = {};
  double theta = 10'000;
};

}  // namespace windtunnel
