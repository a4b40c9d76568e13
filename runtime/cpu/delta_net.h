// Gated delta networks (operands: plan/delta_net_ops.h), token by token: a head's state stays in the caches,
// where chunks of matrix products would write it.
//
// Backward goes through each head's sequence three times. With S' = e_t S_{t-1}, r_t = v_t - S'^T k_t, and G
// the gradient of S_t by later tokens, each of these products is made where one of its factors is at hand:
//   forwards   S again: r_t, and dq_t = S_t ds_t
//   backwards  du_t = G^T k_t + (q_t . k_t) ds_t, dv_t = c_t du_t, and of dk_t what goes to u_t: (G + q_t ds_t^T) u_t
//   forwards   S once more: of dk_t what comes by r_t: -S' dv_t
// G goes on as e_t (G + q_t ds_t^T - k_t dv_t^T). For the gradient of the decay no two states need to meet:
// the inner product of G and S_t changes from token to token by
//   dL/d(log e_t) = <G, S_t> + ds_t . (S'^T q_t) - u_t . (G^T k_t) - dv_t . (S'^T k_t),
// which is <G, S_{t-1}> of the token before. Each term has the decay as a factor, so nothing large cancels.
#pragma once

#include "base/result.h"
#include "plan/delta_net_ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(Scratch& scratch, const DeltaNetForward& op, const Operands& operands);
Status Run(Scratch& scratch, const DeltaNetBackward& op, const Operands& operands);

}  // namespace windtunnel::cpu
