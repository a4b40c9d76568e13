// Norms of the residual stream and of heads, with their backward.
#pragma once

#include <cstdint>
#include <string>

#include "plan/layers.h"

namespace windtunnel {

// Layer norm or RMS norm over `columns`, in the residual stream's type. Under autocast its output is
// converted for the product behind it, and so are the branch that it adds and the gradient that comes back.
struct Norm {
  std::string name;
  NormKind kind = NormKind::kLayerNorm;
  int64_t columns = 0;
  double epsilon = 1e-5;
  int gamma = -1, beta = -1;
  bool is_frozen = false;

  struct Saved {
    Slice x, y, statistics;       // x: what was normalised
    Slice fp32 = kNoSlice;        // x in fp32, if kept (ModelTypes::norms_keep_fp32)
    Slice normalised = kNoSlice;  // y in the residual stream's type
  };
  // With a branch (buffer not -1), x + branch is normalised, and kept as Saved::x.
  Saved Forward(const LayerContext& c, Slice x, Slice branch, int64_t rows) const;
  // Normalises a branch, behind the layers that it consists of; y stays in the residual stream's type.
  Slice ForwardBranch(const LayerContext& c, Slice branch, int64_t rows, Saved& saved) const;
  // dx = d(norm) (+ `dresidual`, if its buffer is not -1, which dx then overwrites unless weight gradients
  // are deferred). The same operator makes the gradients of its own weights. Returns dx.
  Slice Backward(const LayerContext& c, Slice dy, const Saved& saved, Slice dresidual, int64_t rows) const;
  // dx = d(norm) of dy + dstream, the gradients of y by way of a layer and of the residual stream, if that
  // goes on from y. Leaves dstream as it is.
  Slice BackwardOfStream(const LayerContext& c, Slice dy, const Saved& saved, Slice dstream,
                         int64_t rows) const;
  // Leaves dy as it is.
  Slice BackwardBranch(const LayerContext& c, Slice dy, const Saved& saved, int64_t rows) const;

 private:
  // Returns y in the stream's type; saves x and statistics.
  Slice Normalise(const LayerContext& c, Slice x, Slice branch, int64_t rows, Saved& saved) const;
  void AddBackward(const LayerContext& c, Slice dy, const Saved& saved, Slice dresidual, Slice dx,
                   int64_t rows) const;
};

// RMS norm of each query head and key head (Qwen 3; Megatron's qk_layernorm), in the type of activations.
// Each tensor rank has some heads, and a copy of the weights. `whole`: of all query heads together, and of
// all key heads (OLMo 2), where one tensor rank has all.
struct HeadNorm {
  std::string name;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // the rank's
  double epsilon = 1e-5;
  bool whole = false;
  int query_gamma = -1, key_gamma = -1;
  bool is_frozen = false;

  struct Saved {
    Slice x, statistics;
    Slice fp32 = kNoSlice;  // as in Norm::Saved
  };
  // x: packed projections [rows, (heads + 2 kv_heads) head_dim], which are kept; the result has its own
  // buffer.
  Slice Forward(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const;
  int64_t query_weights() const { return whole ? heads * head_dim : head_dim; }
  int64_t key_weights() const { return whole ? kv_heads * head_dim : head_dim; }
  // Writes dx over dy; the same operator makes the weights' gradients, as in Norm.
  void Backward(const LayerContext& c, Slice dy, const Saved& saved, int64_t rows) const;
};

}  // namespace windtunnel
