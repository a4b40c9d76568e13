// The operators of the loss scale, of compressed gradients and of the optimizer. Operands and types are
// described as in plan/ops.h, of which this is a part.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/dtype.h"
#include "scenarios/optimizer_spec.h"

namespace windtunnel {

// The loss scale's state (plan/loss_scaling.h) is three fp32 numbers: the scale, the number of consecutive
// steps without overflow since it last changed, and the number of steps skipped so far.
inline constexpr int64_t kLossScaleNumbers = 3;

// Every gradient /= the loss scale; found_inf = 1 if any element is infinite or not a number, else 0, as
// torch._amp_foreach_non_finite_check_and_unscale_. reads: loss scale; writes: found_inf (fp32 scalar), every
// gradient.
struct UnscaleGradients {
  int64_t elements = 0;
  int64_t tensors = 0;
};

// Updates the loss scale for the next step, as torch._amp_update_scale_: it is multiplied by backoff_factor
// after a step that overflowed, and by growth_factor after growth_interval consecutive steps without
// overflow. Unless `dynamic` it stays the same, and only skipped steps are counted. reads: found_inf; writes:
// loss scale.
struct UpdateLossScale {
  bool dynamic = true;
  double growth_factor = 2.0, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

// norm = sqrt(sum of squares over all gradients); the sum itself when `squared`, to be summed over ranks that
// hold shards.
// A gradient that replicas[i] of the summed ranks hold alike counts 1 / replicas[i] on each; empty: all 1.
// reads: every gradient; writes: norm (fp32 scalar).
struct GradientNorm {
  int64_t elements = 0;
  int64_t tensors = 0;
  bool squared = false;
  std::vector<int> replicas = {};  // by gradient
  DType dtype = DType::kFloat32;   // other types are predicted only, here and below
};

// The columns of x[rows,columns] become orthonormal, one after another (Gram-Schmidt, in fp32 with sums in
// double, each column twice). One that depends on those before it is replaced (runtime/orthonormal.h). reads:
// x; writes: x.
struct Orthonormalize {
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kFloat32;
};

// x = sqrt(x) of one fp32 scalar in place. reads: x; writes: x.
struct SquareRoot {};

// Every gradient *= min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.
// reads: norm; writes: every gradient.
struct ClipGradients {
  int64_t elements = 0;
  int64_t tensors = 0;
  double max_norm = 0;
  DType dtype = DType::kFloat32;
};

// One update of every parameter, multi-tensor. reads: every gradient; writes: every parameter, then the first
// moments (or momenta) of every parameter, then the second moments. SGD without momentum has no state.
// The executor supplies the step number for Adam's bias correction.
// With `guarded`, found_inf and the loss scale's numbers are read after the gradients: if found_inf is 1,
// nothing is written; and skipped steps do not count in the step number.
struct OptimizerUpdate {
  OptimizerSpec spec;
  int64_t elements = 0;
  int64_t tensors = 0;
  int state_tensors = 0;  // per parameter: 0, 1 or 2
  bool guarded = false;
  DType dtype = DType::kFloat32;  // of parameters and gradients; other types are predicted only
  bool one_by_one = false;        // frameworks launch a kernel for each tensor
};

// The type of the moments, which are rounded when they are written: of the first ones, or the `second`.
inline DType MomentsOf(const OptimizerSpec& spec, bool second = false) {
  switch (spec.moments) {
    case MomentsType::kFp32:
      return DType::kFloat32;
    case MomentsType::kBf16:
      return DType::kBFloat16;
    case MomentsType::kInt8:
      return second ? DType::kDynamic8Unsigned : DType::kDynamic8;
  }
  return DType::kFloat32;
}

// The first part of Muon's update of one matrix (plan/muon.h), with the rates m = spec.momentum and e = 1e-7:
//   momentum = m momentum + (1 - m) gradient; x = (1 - m) gradient + m momentum; x /= max(|x|, e)
// x is rounded to bf16 before its norm is taken, and again at the end. With `guarded`, found_inf is read
// after the gradient: if it is 1, the momentum stays and x is 0. reads: gradient, (found_inf); writes:
// momentum, x, and with `keeps_fp32` x before it is rounded (predicted only).
struct MuonDirection {
  OptimizerSpec spec;
  int64_t elements = 0;
  bool guarded = false, keeps_fp32 = false;
};

// Its last part: parameter = (1 - lr weight_decay) parameter - lr adjustment x, with x in bf16.
// With `guarded`, found_inf is read after x: if it is 1, nothing is written. reads: x, (found_inf), with
// `keeps_fp32` what MuonDirection wrote; writes: parameter.
struct MuonUpdate {
  OptimizerSpec spec;
  int64_t elements = 0;
  double adjustment = 1;
  bool guarded = false, keeps_fp32 = false;
};

}  // namespace windtunnel
