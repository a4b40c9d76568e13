// Attention where context-parallel ranks share each sequence's tokens: every rank has all of its part's queries, and must see the keys
// and values before them, wherever they are.
//
//   ring        keys and values go around the ring of ranks, a shift while attention with those of the shift before is computed; what
//               each block gives is merged by its log-sum-exps (Liu et al. 2023; Megatron's and TransformerEngine's p2p). Backward they
//               go around again, and their gradients with them, one step behind, which arrive at their owner after a full turn.
//   all_gather  keys and values are gathered before, their gradients reduce-scattered after (Llama 3, section 3.3.2)
//   ulysses     an all-to-all makes of some tokens of all heads all tokens of some heads, and another one its way back (Jacobs et al.
//               2023); in between attention is as without
//
// ring and all_gather split tokens in zigzag (TokenSplit), ulysses in runs.
#pragma once

#include <string>
#include <vector>

#include "plan/layers.h"

namespace windtunnel {

// Of the rank's tokens (`seq` of each sequence) and heads.
struct AttentionDims {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  AttentionKind kind = AttentionKind::kFlash;
  DType dtype = DType::kFloat32;
  double dropout = 0;  // of eager's probabilities; flash drops within its kernel, from the seed
  bool deterministic = false;
  int64_t value_dim = 0;  // 0: head_dim
  int64_t window = 0;     // as AttentionForward's; not in a ring or gathered

  int64_t tokens() const { return batch * seq; }
  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  int64_t query_columns() const { return heads * head_dim; }
  int64_t out_columns() const { return heads * values(); }
  int64_t key_columns() const { return kv_heads * (head_dim + values()); }  // keys and values
  // Of queries, keys and values.
  std::vector<int64_t> parts() const { return {query_columns(), kv_heads * head_dim, kv_heads * values()}; }
  int64_t packed_columns() const { return query_columns() + key_columns(); }
};

class ContextAttention {
 public:
  // Adds operators named `name` to the context's program.
  ContextAttention(const LayerContext& c, const AttentionDims& dims, const ContextParallel& context,
                   std::string name)
      : c_(c), dims_(dims), context_(context), name_(std::move(name)) {}

  // What the core works on, of the rank's qkv (rotated): the same, or with ulysses all tokens of some heads.
  Slice Enter(Slice qkv) const;
  struct Core {
    Slice out = {}, saved = {};     // log-sum-exps, or eager's probabilities
    Slice dropped = {}, mask = {};  // of those, where some are dropped
  };
  Core Forward(Slice qkv) const;
  // The rank's tokens of all heads, of the core's out.
  Slice Leave(Slice out) const;
  // The gradient of the rank's (rotated) qkv. `qkv`, `core`: what Enter and Forward gave.
  Slice Backward(Slice dout, Slice qkv, const Core& core) const;

 private:
  bool exchanges_heads() const { return context_.splits() && context_.kind == ContextKind::kUlysses; }
  bool is_plain() const { return !context_.splits() || exchanges_heads(); }
  AttentionDims CoreDims() const;
  int blocks() const { return context_.kind == ContextKind::kAllGather ? context_.ranks() : 1; }
  int steps() const { return context_.kind == ContextKind::kAllGather ? 1 : context_.ranks(); }

  Slice ToHeads(Slice x, const std::vector<int64_t>& columns, const std::string& name) const;
  Slice ToTokens(Slice x, const std::vector<int64_t>& columns, const std::string& name) const;
  Slice Exchange(Slice x, const std::string& name) const;
  Slice SwapBatch(Slice x, int64_t outer, int64_t inner, const std::string& name) const;
  Slice KeysAndValues(Slice qkv) const;
  Slice Gathered(Slice kv) const;
  Slice Shifted(Slice x, const std::string& name) const;
  Slice Workspace(bool backward) const;
  void Drop(Core& core) const;
  Core ForwardBlock(Slice qkv, Slice kv, int step) const;
  Slice BackwardBlock(Slice dout, Slice qkv, Slice kv, const Core& core, int step, Slice dqkv) const;

  const LayerContext& c_;
  const AttentionDims dims_;
  const ContextParallel context_;
  const std::string name_;
};

}  // namespace windtunnel
