// The operators of a mixture of experts (plan/experts.h), except for its products.
// Operands and types are described as in plan/ops.h, of which this is a part.
#pragma once

#include <cstdint>

#include "plan/dtype.h"

namespace windtunnel {

// A slot is the row, among rows [expert, capacity], of a token's copy for one of its top_k experts:
// expert x capacity + place, or -1 - expert if the expert has no room left. Tokens get room in their order.
// With capacity 0 there is room for all, and rows follow each other expert by expert.

// reads: logits[tokens,experts]; writes: probabilities (fp32 [tokens,experts]: softmax of the top_k largest
// logits, zero elsewhere; softmax of all if top_k is 1), weights (fp32 [tokens,top_k]: the probabilities of
// the chosen experts), slots (int32 [tokens,top_k]). Of equal logits the first counts as larger. With groups
// (of equally many neighbouring experts) a token chooses from the top_k_groups groups that have the largest
// single logits (DeepSeek-V2's group_limited_greedy).
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
// Tokens [tokens,hidden], and the `rows` rows that slots refer to.
struct TokenRows {
  int64_t tokens = 0, hidden = 0, top_k = 0, rows = 0;
  DType dtype = DType::kFloat32;
};
// Copies every token into its slots; empty slots become zero. reads: x, slots; writes: y[rows,hidden].
// `counted`: the rows for each expert and rank are counted first, where no more than these are sent.
// Predicted only: tokens' weights, fp32 [tokens,top_k], go along, into fp32 [rows].
struct DispatchTokens : TokenRows {
  bool counted = false;
};
// y = sum of the rows of the token's slots, times the weights if `weighted`. reads: x[rows,hidden], slots,
// (weights); writes: y.
// Predicted only: gradients of rows' weights, fp32 [rows], go back along, into fp32 [tokens,top_k].
struct CombineTokens : TokenRows {
  bool weighted = false;
};
// Backward of CombineTokens. `weighted`: reads dy, x, slots, weights; writes dx[rows,hidden] (empty slots
// zero), dweights (fp32 [tokens,top_k]). Otherwise (predicted only): reads dy, slots; writes dx.
struct CombineBackward : TokenRows {
  bool weighted = true;
};

}  // namespace windtunnel
