// The recurrence of state space models, h_t = a_t h_{t-1} + d_t x_t B_t^T, and its gradients (operands:
// plan/state_space_ops.h), token by token. A block has 64 rows of a head's state in the registers of its
// threads, and fetches a few tokens at a time into shared memory.
//
// Forward computes all heads at once. In backward a block computes the heads of one part of a group one after
// the other, so that their gradients of B and C add up in a fixed order. So that there are enough blocks, it
// does so for a chunk of the sequence. Two kernels that compute all heads at once first find what enters the
// chunks: states from the left, their gradients from the right.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// Tokens that are staged at a time.
inline constexpr int kScanTokens = 8;

// Numbers by head, sequence and token (`scalars`) have a whole number of tiles of kScanTokens for a sequence.
struct StateSpaceScan {
  int batch, seq, heads, heads_of_group, groups, head_dim, state;
  int64_t inner, shared, convolved, time;  // time: seq, in whole tiles
  bool aligned;                            // whether all rows are whole pieces of 16 bytes
  const float* u;                          // [T, convolved]: what the convolution made, activated
  const float *step, *decay;               // scalars: d_t and a_t
  const float* d;                          // [heads]

  int64_t tokens() const { return static_cast<int64_t>(batch) * seq; }
  int64_t scalars() const { return static_cast<int64_t>(heads) * batch * time; }
};

// The chunks of the sequence that backward computes at once: enough for the device, each at least as long as
// the state.
struct StateSpaceChunks {
  int tokens, count;

  StateSpaceChunks(const StateSpaceShape& shape, const Traits& traits);
};

struct StateSpaceGradients {
  StateSpaceChunks chunks;
  int parts;        // of a group's heads
  const float* ds;  // [T, inner]
  // [T, inner]. Before, chunk by chunk, the states that enter the next chunk; then the gradients that enter
  // this one.
  float* dx;
  float* dbc;  // [parts, T, 2 * shared]: of B and of C
  // Scalars: what a token adds to dL/d(log a) of its own and of those before it (runtime/cpu/state_space.h),
  // and x_t . (g_t B_t).
  float *of_decay, *of_step;
  float* dd;  // [batch * chunks, heads]: partial sums of the gradient of d
};

template <typename T>
void ScanForward(Queue& queue, const StateSpaceScan& scan, T* scanned);
void ScanBackward(Queue& queue, const StateSpaceScan& scan, const StateSpaceGradients& gradients);

// Of a block, for this many columns of the state.
int64_t ScanSharedBytes(int64_t state);

}  // namespace windtunnel::WT_KERNELS
