// Muon's update of weights in hidden layers (Jordan et al. 2024; torch.optim.Muon): the momentum's direction
// is made nearly orthogonal by Newton-Schulz iterations, products in bf16 of each matrix with itself.
//
//   x = direction of the momentum, as a unit vector        MuonDirection
//   ns_steps times:                                        with a, b, c = 3.4445, -4.7750, 2.0315
//     g = x x'          (x' x if x has more rows)          Gemm
//     u = b g + c g g                                      Copy, Gemm
//     x = a x + u x     (a x + x u)                        Copy, Gemm
//   w = (1 - lr weight_decay) w - lr adjustment x          MuonUpdate
//
// All other parameters are AdamW's (plan/optimizer_steps.h). Queries, keys and values, gates and the experts
// are matrices of their own, even if one weight stacks them. Tensor ranks update their own parts of a matrix
// as though they were matrices (Megatron's --muon-tp-mode blockwise).
#pragma once

#include <string>

#include "plan/program_builder.h"
#include "scenarios/optimizer_spec.h"

namespace windtunnel {

// A matrix [rows, columns] of a weight, whose gradient and momentum lie alike.
struct MuonMatrix {
  std::string name;
  int64_t rows = 0, columns = 0;
  Slice values, gradient, momentum;
};

// Adds the update of a matrix. `found_inf`: of loss scaling; null without. `keeps_fp32`: the direction is
// also kept in fp32 until the end, as PyTorch's code keeps it.
OpIndex AddMuonUpdate(ProgramBuilder& b, const OptimizerSpec& spec, const MuonMatrix& matrix,
                      const Slice* found_inf, bool keeps_fp32);

// RateAdjustment's factor for a matrix.
double AdjustmentOf(RateAdjustment adjustment, int64_t rows, int64_t columns);

}  // namespace windtunnel
