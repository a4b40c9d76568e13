// The operators of attention and of positions: norms of heads, attention (of whole sequences, and of the
// parts of context-parallel ranks), rotary embedding.
// Operands and types are described as in plan/ops.h, of which this is a part.
#pragma once

#include <cstdint>

#include "plan/dropout_site.h"
#include "plan/dtype.h"
#include "scenarios/operator_kinds.h"

namespace windtunnel {

// Which tokens of each sequence a rank has, where `ranks` context-parallel ranks share it: contiguous tokens,
// in the order of the ranks; or, with zigzag, of 2 x `ranks` chunks the `rank`-th from either end (rank 0 of
// two: the first and the fourth), so that causal attention is the same work for all ranks.
struct TokenSplit {
  int ranks = 1;
  bool zigzag = false;
  bool operator==(const TokenSplit&) const = default;
};
// The position in the whole sequence of the `token`-th of the `tokens` tokens that `rank` has.
int64_t WholePosition(const TokenSplit& split, int rank, int64_t tokens, int64_t token);

// RMS norm of each query head and each key head of packed projections x[T, (heads + 2 kv_heads) * head_dim],
// with one weight for query heads and one for key heads; value heads are copied. reads: x, queries'
// gamma[head_dim], keys' gamma[head_dim]; writes: y, statistics (fp32 [T, heads + kv_heads]: 1/rms).
// With `whole`, a token's query heads are normalised together, and its key heads: the weights are
// [heads * head_dim] and [kv_heads * head_dim], statistics [T, 2].
struct HeadNormForward {
  int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::kFloat32;
  double epsilon = 1e-5;
  bool whole = false;
};
// reads: dy, x, queries' gamma, keys' gamma, statistics; writes: dx (may be dy), the gammas' gradients (acc),
// which are neither computed nor written if the gammas are `frozen`.
struct HeadNormBackward {
  int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  bool frozen = false;
  bool whole = false;
};

// What a head norm (of either direction) normalises: of each token, `queries` rows of `query_width` elements,
// then `keys` rows of `key_width`; value heads follow.
struct NormedHeads {
  int64_t queries, query_width, keys, key_width, values;  // values: elements

  int64_t rows() const { return queries + keys; }
  int64_t packed() const { return queries * query_width + keys * key_width + values; }
};
template <typename HeadNorm>
NormedHeads HeadsOf(const HeadNorm& n) {
  const int64_t values = n.kv_heads * n.head_dim;
  return n.whole ? NormedHeads{1, n.heads * n.head_dim, 1, n.kv_heads * n.head_dim, values}
                 : NormedHeads{n.heads, n.head_dim, n.kv_heads, n.head_dim, values};
}

// Multi-head attention over packed projections qkv[T, (heads + 2 kv_heads) * head_dim] (all query heads,
// then key heads, then value heads), scaled by head_dim^-1/2. out is [T, heads * head_dim]. Value heads may
// have another width (value_dim): qkv is then [T, (heads + kv_heads) * head_dim + kv_heads * value_dim], and
// out [T, heads * value_dim].
// A query sees the keys up to its own; if not `causal`, all keys of its sequence. With a window, which is
// shorter than seq, and needs `causal`, it sees that many keys at most, up to its own.
// Cross-attention (key_seq > 0, not `causal`) sees all key_seq keys of another sequence, one for each of batch.
// Instead of qkv there are q[T, heads * head_dim] and kv[batch * key_seq, kv_heads * (head_dim + value_dim)]
// (keys, then values), and gradients dq and dkv.
// dropout, here and below, is of the probabilities, before they weigh values; what is saved is not dropped.
// `heads` are those of one of `head_parts` context-parallel ranks, which share the tensor rank's (ulysses).
// `biased`, eager only: bias[heads, seq, seq] is added to the scaled scores. backward also writes the
// gradients of their sums, dscores[batch, heads, seq, seq] (zero for keys that the query does not see).
// eager saves the probabilities [batch, heads, seq, keys] (zero for keys that the query does not see);
// flash saves the rows' log-sum-exp [batch, heads, seq]. The workspace holds tiles; its size is
// AttentionWorkspaceElements().
// forward: reads qkv (, bias); writes out, saved, workspace.
// backward: reads dout, qkv, out, saved; writes dqkv (, dscores), workspace.
struct AttentionForward {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  AttentionKind kind = AttentionKind::kFlash;
  DType dtype = DType::kFloat32;
  int64_t value_dim = 0;  // 0: head_dim
  int64_t window = 0;     // the most keys that a query sees; 0: no limit
  DropoutSite dropout = {};
  int head_parts = 1;
  bool causal = true;
  // Predicted only, eager: softmax returns fp32, as under autocast, and saved are its probabilities.
  bool fp32_softmax = false;
  int64_t key_seq = 0;
  bool biased = false;

  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  int64_t keys() const { return key_seq > 0 ? key_seq : seq; }  // of a sequence
};
struct AttentionBackward {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  AttentionKind kind = AttentionKind::kFlash;
  DType dtype = DType::kFloat32;
  bool deterministic = false;  // by a kernel that repeats its results bit for bit, even if another is faster
  int64_t value_dim = 0, window = 0;  // as AttentionForward's, and what follows
  DropoutSite dropout = {};
  int head_parts = 1;
  bool causal = true;
  bool fp32_softmax = false;
  int64_t key_seq = 0;
  bool biased = false;

  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  int64_t keys() const { return key_seq > 0 ? key_seq : seq; }
};
// The fp32 elements of one rank's attention workspace: a tile of scores, kAttentionBlock of the `seq` query
// rows x keys, and in backward another one for their gradient.
inline constexpr int64_t kAttentionBlock = 64;
int64_t AttentionWorkspaceElements(int64_t seq, int64_t keys, bool backward);
inline int64_t AttentionWorkspaceElements(int64_t seq, bool backward) {
  return AttentionWorkspaceElements(seq, seq, backward);
}

// Attention of the queries of a context-parallel rank's tokens (`seq` of each sequence, split in zigzag) with
// the keys and values of some ranks' tokens, kv[blocks, T, kv_heads * (head_dim + value_dim)] (keys, then
// values).
// `blocks` is either `ranks`: those of all ranks, in order; or 1: those of the one rank that is `step` before
// this one around the ring. A query that sees none of the keys gets an output of zero and a log-sum-exp of
// minus infinity. `causal` and `window` are as in AttentionForward; a window needs the keys of all ranks.
// The workspace is that of AttentionForward for sequences of blocks * seq tokens.
// forward: reads qkv, kv; writes out, log_sum_exp (fp32 [batch, heads, seq]), workspace.
// backward, given the out and log_sum_exp over the keys of all blocks: reads dout, qkv, kv, out, log_sum_exp;
// writes dqkv (the queries' columns, acc), dkv, workspace.
struct ContextAttentionForward {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int ranks = 1, blocks = 1, step = 0;
  DType dtype = DType::kFloat32;
  DropoutSite dropout = {};
  int64_t window = 0;
  bool causal = true;
  int64_t value_dim = 0;  // 0: head_dim

  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
};
struct ContextAttentionBackward {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int ranks = 1, blocks = 1, step = 0;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  DropoutSite dropout = {};
  int64_t window = 0;
  bool causal = true;
  int64_t value_dim = 0;

  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
};
// Merges the (out, log_sum_exp) of two sets of keys into those of their union. reads:
// out[T, heads * value_dim] and log_sum_exp of one set; writes: those of the other, in place.
struct MergeAttention {
  int64_t batch = 0, seq = 0, heads = 0, value_dim = 0;
  DType dtype = DType::kFloat32;
};

// The biases of relative positions, of scores between the tokens of one sequence: of each head one for each
// bucket of distances (plan/relative_buckets.h). reads: table[heads, buckets]; writes: bias[heads, seq, seq].
struct RelativeBias {
  int64_t heads = 0, seq = 0;
  bool causal = true;
  DType dtype = DType::kFloat32;
};
// reads: dscores[batch, heads, seq, seq] (AttentionBackward), of which only what a query sees counts; writes:
// dtable (acc).
struct RelativeBiasBackward {
  int64_t batch = 0, heads = 0, seq = 0;
  bool causal = true;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
};

// Multi-head latent attention: joins up-projected latents into packed projections as AttentionForward takes
// them, with as many key heads as query heads. The last rope_dim of a head's head_dim columns are rotated (by
// halves, as in Rope); in keys they come from one key that all heads share. kv has, for each head, the other
// head_dim - rope_dim columns of its key, then its value.
// forward reads: q[T, heads * head_dim], kv[T, heads * (head_dim - rope_dim + value_dim)], shared_key[T,
// rope_dim]; writes: qkv.
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

// Rotary positions (rotating halves as Llama does), in place on the query and key heads of qkv[T,
// (heads + 2 kv_heads) * head_dim]; backward rotates gradients the other way. Of each head, the first `rotated`
// columns are rotated (0: all). theta, the base, has no part in the cost. reads: qkv; writes: qkv.
struct Rope {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool backward = false;
  DType dtype = DType::kFloat32;
  TokenSplit context = {};
  double theta = 10'000;
  int64_t rotated = 0;

  int64_t rotated_columns() const { return rotated > 0 ? rotated : head_dim; }
  bool is_partial() const { return rotated_columns() < head_dim; }
};

}  // namespace windtunnel
