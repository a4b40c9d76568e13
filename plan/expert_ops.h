// The operators of a mixture of experts (plan/experts.h), but for its products.
// Operands and types are described as in plan/op.h, which this is part of.
#pragma once

#include <cstdint>

#include "plan/dtype.h"

namespace windtunnel {

// A slot is where a token's copy for one of its top_k experts lies among rows [expert, capacity]:
// expert x capacity + place, or -1 - expert where the expert has no room left. Tokens are given room in their order. With capacity 0
// there is room for all, and rows follow each other expert by expert.

// reads: logits[tokens,experts]; writes: probabilities (fp32 [tokens,experts]: softmax of the top_k largest, zero elsewhere; of all where
// top_k is 1), weights (fp32 [tokens,top_k]: those of the chosen), slots (int32 [tokens,top_k]). Of equal logits the first is larger.
// With groups (of neighbours, equally many) a token's experts are in the top_k_groups of the largest single logits (DeepSeek-V2's
// group_limited_greedy).
struct RouteTokens {
  int64_t tokens = 0, experts = 0, top_k = 0, capacity = 0;
  DType dtype = DType::kFloat32;
  int64_t groups = 0, top_k_groups = 0;

  bool is_limited() const { return groups > 0 && top_k_groups > 0 && top_k_groups < groups; }
};
// reads: dweights, probabilities, slots; writes: dlogits.
struct RouteTokensBackward {
  int64_t tokens = 0, experts = 0, top_k = 0, capacity = 0;
  DType dtype = DType::kFloat32;
};
// Tokens [tokens,hidden] and the `rows` rows of slots.
struct TokenRows {
  int64_t tokens = 0, hidden = 0, top_k = 0, rows = 0;
  DType dtype = DType::kFloat32;
};
// Every token into its slots; empty ones become zero. reads: x, slots; writes: y[rows,hidden].
// `counted`: what goes to each expert and rank is counted before, for who sends no more.
// Predicted only: tokens' weights, fp32 [tokens,top_k], go along, into fp32 [rows].
struct DispatchTokens : TokenRows {
  bool counted = false;
};
// y = sum over the token's slots of its rows, times the weights with `weighted`. reads: x[rows,hidden], slots, (weights); writes: y.
// Predicted only: gradients of rows' weights, fp32 [rows], go back along, into fp32 [tokens,top_k].
struct CombineTokens : TokenRows {
  bool weighted = false;
};
// Of the weighted one. reads: dy, x, slots, weights; writes: dx[rows,hidden] (empty slots zero), dweights (fp32 [tokens,top_k]).
// Not `weighted` (predicted only): reads dy, slots; writes dx.
struct CombineBackward : TokenRows {
  bool weighted = true;
};

}  // namespace windtunnel
