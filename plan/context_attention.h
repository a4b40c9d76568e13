// Attention where context-parallel ranks share each sequence's tokens: every rank has the queries of its own
// tokens, and must see the keys and values before them, whichever rank has these.
//
//   ring        keys and values go around the ring of ranks: while attention to those of one shift is
//               computed, the next shift is under way. The blocks' results are merged by their log-sum-exps
//               (Liu et al. 2023; Megatron's and TransformerEngine's p2p). In backward keys and values go
//               around again; their gradients follow one step behind, and arrive at their owner after a full
//               turn.
//   all_gather  keys and values are gathered before, their gradients reduce-scattered after (Llama 3, section
//               3.3.2)
//   ulysses     an all-to-all turns some tokens of all heads into all tokens of some heads, and another one
//               turns them back (Jacobs et al. 2023); attention in between is that of a single rank
//
// ring and all_gather split tokens in zigzag (TokenSplit), which matters for causal attention only; ulysses
// splits them contiguously.
#pragma once

#include <string>
#include <vector>

#include "plan/head_exchange.h"
#include "plan/layers.h"

namespace windtunnel {

// Counts the rank's own tokens (`seq` of each sequence) and its own heads.
struct AttentionDims {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  AttentionKind kind = AttentionKind::kFlash;
  DType dtype = DType::kFloat32;
  double dropout = 0;  // the share of the probabilities
  // They are dropped within the kernel, from the seed, also those of eager. Else flash does so without an
  // effect on its cost, and eager by an operator of its own.
  bool drops_within = false;
  bool deterministic = false;
  int64_t value_dim = 0;  // 0: head_dim
  int64_t window = 0;     // as in AttentionForward; not with a ring
  // The tokens of a document, of which each sequence has several; 0: one. Not with ring or all_gather.
  int64_t document = 0;
  bool causal = true;  // as in AttentionForward, and what follows
  bool fp32_softmax = false;
  int64_t key_seq = 0;  // not with context-parallel ranks; nor this
  bool biased = false;

  int64_t keys() const { return key_seq > 0 ? key_seq : seq; }

  int64_t tokens() const { return batch * seq; }
  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  int64_t query_columns() const { return heads * head_dim; }
  int64_t out_columns() const { return heads * values(); }
  int64_t key_columns() const { return kv_heads * (head_dim + values()); }  // keys and values
  // The columns of queries, keys and values.
  std::vector<int64_t> parts() const { return {query_columns(), kv_heads * head_dim, kv_heads * values()}; }
  int64_t packed_columns() const { return query_columns() + key_columns(); }
};

class ContextAttention {
 public:
  // Adds operators named `name` to the context's program.
  ContextAttention(const LayerContext& c, const AttentionDims& dims, const ContextParallel& context,
                   std::string name)
      : c_(c), dims_(dims), context_(context), name_(std::move(name)) {}

  // The core's input, from the rank's rotated qkv: qkv itself; with ulysses all tokens of some heads.
  Slice Enter(Slice qkv) const;
  struct Core {
    Slice out = {}, saved = {};     // saved: log-sum-exps, or eager's probabilities
    Slice dropped = {}, mask = {};  // the probabilities after dropout, and its mask; with dropout only
    Slice rounded = {};             // fp32_softmax: what the product with values takes
  };
  // `bias`: of the scores, if they have one.
  Core Forward(Slice qkv, Slice bias = kNoSlice) const;
  // Cross-attention (key_seq > 0): the core of queries and of another sequence's keys and values.
  Core ForwardCross(Slice queries, Slice keys) const;
  // The rank's tokens of all heads, from the core's `out`.
  Slice Leave(Slice out) const;
  // The gradient of the rank's rotated qkv. `qkv` and `core` are what Enter and Forward returned. `dscores`
  // gets the gradients of biased scores.
  Slice Backward(Slice dout, Slice qkv, const Core& core, Slice* dscores = nullptr) const;
  struct CrossGradients {
    Slice queries, keys;
  };
  CrossGradients BackwardCross(Slice dout, Slice queries, Slice keys, const Core& core) const;

 private:
  bool exchanges_heads() const { return context_.splits() && context_.kind == ContextKind::kUlysses; }
  bool is_plain() const { return !context_.splits() || exchanges_heads(); }
  AttentionDims CoreDims() const;  // of the core, to which documents are sequences
  int blocks() const { return context_.kind == ContextKind::kAllGather ? context_.ranks() : 1; }
  int steps() const { return context_.kind == ContextKind::kAllGather ? 1 : context_.ranks(); }

  HeadExchange Heads() const { return HeadExchange(c_, context_, dims_.batch, dims_.seq); }
  Slice KeysAndValues(Slice qkv) const;
  Slice Gathered(Slice kv) const;
  Slice Shifted(Slice x, const std::string& name) const;
  Slice Workspace(bool backward) const;
  DropoutSite DropsWithin() const;
  bool drops_apart() const;
  void Drop(Core& core) const;
  Slice Rounded(Slice probabilities, const std::string& name) const;
  // The operators of attention that no ranks share; `inputs` and `gradients` as AttentionForward's.
  Core PlainForward(std::vector<Slice> inputs) const;
  void PlainBackward(Slice dout, const std::vector<Slice>& inputs, const Core& core,
                     std::vector<Slice> gradients) const;
  Core ForwardBlock(Slice qkv, Slice kv, int step) const;
  Slice BackwardBlock(Slice dout, Slice qkv, Slice kv, const Core& core, int step, Slice dqkv) const;

  const LayerContext& c_;
  const AttentionDims dims_;
  const ContextParallel context_;
  const std::string name_;
};

}  // namespace windtunnel
