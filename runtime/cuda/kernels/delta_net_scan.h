// The recurrence of gated delta networks, S_t = e_t S_{t-1} + k_t u_t^T with u_t = c_t (v_t - (e_t S_{t-1})^T
// k_t), and its gradients (operands: plan/delta_net_ops.h; the three passes of backward:
// runtime/cpu/delta_net.h), token by token in fp32. Columns of a state do not depend on each other: a block
// has kDeltaNetColumns of one head's in the registers of its threads, and fetches a few tokens at a time into
// shared memory.
//
// In backward, blocks write sums over their own columns, which delta_net.cu adds up: a head of queries and
// keys belongs to several heads of values.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

struct DeltaNetScan {
  int batch, seq, heads, values_of_key, key_dim, value_dim;  // heads: of values
  int64_t tokens, keys, inner, convolved;
  const float* made;                // [T, convolved]: q, k and v as heads take them
  const float *decay, *correction;  // [heads, T]: e_t and c_t

  int parts() const { return static_cast<int>(DeltaNetPartsOf(value_dim)); }
};

struct DeltaNetGradients {
  const float* ds;   // [T, inner]
  float* residuals;  // [T, inner]: v_t - (e_t S_{t-1})^T k_t
  float* made;       // [T, convolved]: of v; the others are sums that are still to be made
  float* heads;      // [parts, heads, T, 2 key_dim]: of q and of k, by part and head of values
  // [parts, heads, T]: what a token adds to dL/d(log e) of its own and of those before it; and dL/dc.
  float *terms, *corrections;
};

template <typename T>
void DeltaNetScanForward(Queue& queue, const DeltaNetScan& scan, T* scanned);
void DeltaNetScanBackward(Queue& queue, const DeltaNetScan& scan, const DeltaNetGradients& gradients);

// Of a block.
int64_t DeltaNetSharedBytes(int64_t key_dim);

}  // namespace windtunnel::WT_KERNELS
