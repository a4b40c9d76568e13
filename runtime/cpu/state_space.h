// The state space models of Mamba-2 layers (operands: plan/state_space_ops.h), token by token: a head's state
// stays in the first-level cache, where chunks of matrix products would write it.
//
// Backward goes through each head's sequence twice. Forwards it makes the states again and with them the
// gradient of C; backwards, with g_t the gradient of h_t, the others. For the gradient of the decay it needs
// no states: with c_t the sum of the logarithms of a up to t,
//   dL/dc_t = ds_t . (h_t C_t) - (d_t x_t) . (g_t B_t),   dL/d(log a_t) = sum over t' >= t of dL/dc_t'
// since s_t depends on x_s by exp(c_t - c_s) alone. Both terms have in them what a token adds to its own
// output, d_t (ds_t . x_t) (B_t . C_t). It is left out of both: where decays are fast it is nearly all of them.
#pragma once

#include "base/result.h"
#include "plan/state_space_ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(Scratch& scratch, const StateSpaceForward& op, const Operands& operands);
Status Run(Scratch& scratch, const StateSpaceBackward& op, const Operands& operands);

}  // namespace windtunnel::cpu
