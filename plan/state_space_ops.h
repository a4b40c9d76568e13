// The operators of a layer's state space model. Operands and types are described as in plan/ops.h, of which
// this is a part.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/dtype.h"

namespace windtunnel {

// What stands between the two projections of a Mamba-2 layer (Dao and Gu, arXiv:2405.21060, figure 6), as one
// operator: what mamba_split_conv1d_scan_combined of state-spaces/mamba does. Of each token, the first
// projection has made
//   packed  z[inner], x[inner], B[groups * state], C[groups * state], dt[heads],   inner = heads * head_dim
// x, B and C are convolved along the sequence, column by column, and activated:
//   v_t = silu(bias + sum_j weight[j] u_{t - conv + 1 + j}),   u = x, B and C, 0 before the sequence
// Each head has a state h[head_dim, state], 0 before the sequence. Heads of a group share B and C.
//   d_t = softplus(dt_t + dt_bias),   a_t = exp(-d_t exp(a_log))
//   h_t = a_t h_{t-1} + d_t x_t B_t^T,   s_t = h_t C_t + D x_t
// A gate and an RMS norm over the columns of each group follow:
//   y = norm(s silu(z)) gamma
// `convolved` columns are x, B and C. `chunk` is predicted only: kernels of others compute so many tokens by
// matrix products.
struct StateSpaceShape {
  int64_t batch = 0, seq = 0, heads = 0, groups = 0, head_dim = 0, state = 0, conv = 0, chunk = 0;
  DType dtype = DType::kFloat32;

  int64_t tokens() const { return batch * seq; }
  int64_t inner() const { return heads * head_dim; }
  int64_t shared() const { return groups * state; }  // columns of B, and of C
  int64_t convolved() const { return inner() + 2 * shared(); }
  int64_t packed() const { return inner() + convolved() + heads; }
  int64_t heads_of_group() const { return heads / groups; }
};

// reads: packed[T, packed], conv weight[convolved, conv], conv bias[convolved], dt_bias[heads], a_log[heads],
// D[heads], gamma[inner]; writes: y[T, inner], s[T, inner], statistics (fp32 [T, groups]: 1/rms), workspace
// (fp32, StateSpaceWorkspaceElements). Predicted only: also what the norm takes[T, inner], where that is
// another module, which keeps it; backward then reads it last.
struct StateSpaceForward : StateSpaceShape {
  double epsilon = 1e-5;
};
// reads: dy, packed, the six parameters' values in forward's order, s, statistics; writes: dpacked, the
// parameters' gradients in that order (acc), workspace.
struct StateSpaceBackward : StateSpaceShape {
  bool accumulate = false;
};

// In backward, a group's heads may be computed in so many parts at once (on GPUs), each with its own sum of the
// gradients of B and C.
inline constexpr int64_t kStateSpaceParts = 4;
constexpr int64_t StateSpacePartsOf(int64_t heads_of_group) {
  return std::min(kStateSpaceParts, heads_of_group);
}
// forward: what the convolution made. backward: that, its gradient (of B and C: of each part), and that of s.
inline int64_t StateSpaceWorkspaceElements(const StateSpaceShape& s, bool backward) {
  const int64_t parts = StateSpacePartsOf(s.heads_of_group());
  const int64_t gradients = backward ? 2 * s.inner() + parts * 2 * s.shared() : 0;
  return s.tokens() * (s.convolved() + gradients);
}
// The same for kernels that work by chunks (ssd_combined.py of state-spaces/mamba), with 16-bit numbers: what the
// convolution made, steps and their sums, the states of chunks (in backward their gradients, too, and both in 16
// bits), and the products of C and B (and their gradients).
inline int64_t ChunkedWorkspaceElements(const StateSpaceShape& s, bool backward) {
  const int64_t tokens = s.tokens(), chunk = std::max<int64_t>(std::min(s.chunk, s.seq), 1);
  const int64_t states = tokens / chunk * s.inner() * s.state, scores = tokens * s.groups * chunk;
  const int64_t of_tokens = tokens * (s.convolved() / 2 + 2 * s.heads);
  return of_tokens + (backward ? 3 * states + 2 * scores : states + states / 2 + scores);
}

}  // namespace windtunnel
