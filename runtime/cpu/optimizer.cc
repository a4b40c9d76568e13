#include "runtime/cpu/optimizer.h"

#include <algorithm>
#include <cmath>

#include "runtime/adam_constants.h"
#include "runtime/cpu/dynamic8.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/loss_scale.h"

namespace windtunnel::cpu {
namespace {

WT_CPU_KERNEL double SumOfSquares(int64_t n, const float* x) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

WT_CPU_KERNEL void Multiply(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// x *= factor. Returns whether all elements were finite.
WT_CPU_KERNEL bool MultiplyFinite(int64_t n, float factor, float* x) {
  // The largest magnitude, as bits: those of infinities and NaNs exceed all others.
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
    x[i] *= factor;
  }
  return largest < 0x7f800000u;
}

// One parameter's tensors in the update; m is SGD's momentum or Adam's first moment. M: float or BFloat16.
template <typename M>
struct Tensors {
  const float* gradient;
  float* parameter;
  M *m, *v;
};

struct SgdConstants {
  float lr, weight_decay, momentum;
};

WT_CPU_KERNEL void Sgd(int64_t n, SgdConstants c, Tensors<float> t) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = t.gradient[i] + c.weight_decay * t.parameter[i];
    t.parameter[i] -= c.lr * g;
  }
}

// momentum = momentum * mu + g. It starts at zero, which gives torch's first step (momentum = g).
template <typename M>
WT_CPU_KERNEL void SgdWithMomentum(int64_t n, SgdConstants c, Tensors<M> t) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = t.gradient[i] + c.weight_decay * t.parameter[i];
    const float m = c.momentum * ToFloat(t.m[i]) + g;
    t.m[i] = FromFloat<M>(m);
    t.parameter[i] -= c.lr * m;
  }
}

// runtime/adam_constants.h has the formulas.
template <typename M>
WT_CPU_KERNEL void Adam(int64_t n, AdamConstants c, Tensors<M> t) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float p = t.parameter[i];
    const float g = t.gradient[i] + c.coupled_decay * p;
    const float m = c.beta1 * ToFloat(t.m[i]) + c.one_minus_beta1 * g;
    const float v = c.beta2 * ToFloat(t.v[i]) + c.one_minus_beta2 * g * g;
    t.m[i] = FromFloat<M>(m);
    t.v[i] = FromFloat<M>(v);
    t.parameter[i] = p * c.decoupled_decay - c.step_size * m / (std::sqrt(v) * c.v_correction + c.eps);
  }
}

// Moments in 8 bits, a block at a time.
void AdamIn8Bits(int64_t n, const AdamConstants& c, const float* gradient, float* parameter, uint8_t* m,
                 uint8_t* v) {
  float first[dynamic8::kBlock], second[dynamic8::kBlock];
  for (int64_t i = 0; i < n; i += dynamic8::kBlock, m += dynamic8::kBytes, v += dynamic8::kBytes) {
    const int64_t count = std::min<int64_t>(dynamic8::kBlock, n - i);
    UnpackMoments(/*second=*/false, m, count, first);
    UnpackMoments(/*second=*/true, v, count, second);
    Adam(count, c, Tensors<float>{gradient + i, parameter + i, first, second});
    PackMoments(/*second=*/false, first, count, m);
    PackMoments(/*second=*/true, second, count, v);
  }
}

SgdConstants SgdConstantsOf(const OptimizerSpec& spec) {
  return {static_cast<float>(spec.lr), static_cast<float>(spec.weight_decay),
          static_cast<float>(spec.momentum)};
}

}  // namespace

Status Run(const GradientNorm& op, const Operands& operands) {
  WT_CHECK(op.replicas.empty() || op.replicas.size() == operands.reads.size());
  double sum = 0.0;
  for (size_t i = 0; i < operands.reads.size(); ++i) {
    const TensorRef& gradient = operands.reads[i];
    sum += SumOfSquares(gradient.elements, gradient.f32()) / (op.replicas.empty() ? 1 : op.replicas[i]);
  }
  *operands.Out(0, 1) = static_cast<float>(op.squared ? sum : std::sqrt(sum));
  return Ok();
}

Status Run(const SquareRoot&, const Operands& operands) {
  float* x = operands.Out(0, 1);
  *x = std::sqrt(*x);
  return Ok();
}

Status Run(const ClipGradients& op, const Operands& operands) {
  const double norm = *operands.In(0, 1);
  const double factor = op.max_norm / (norm + 1e-6);
  if (factor >= 1.0) return Ok();  // a NaN norm passes this test and spreads
  for (const TensorRef& gradient : operands.writes) {
    Multiply(gradient.elements, static_cast<float>(factor), gradient.f32());
  }
  return Ok();
}

Status Run(const UnscaleGradients&, const Operands& operands) {
  const float factor = static_cast<float>(1.0 / static_cast<double>(*operands.In(0, kLossScaleNumbers)));
  bool is_finite = true;
  for (const TensorRef& gradient : operands.writes.subspan(1))
    is_finite &= MultiplyFinite(gradient.elements, factor, gradient.f32());
  *operands.Out(0, 1) = is_finite ? 0.0f : 1.0f;
  return Ok();
}

Status Run(const UpdateLossScale& op, const Operands& operands) {
  UpdateScale(op, *operands.In(0, 1) != 0.0f, operands.Out(0, kLossScaleNumbers));
  return Ok();
}

Status Run(const OptimizerUpdate& op, int64_t step, double lr_factor, const Operands& operands) {
  size_t tensors = operands.reads.size();
  if (op.guarded) {
    tensors -= 2;
    if (*operands.In(tensors, 1) != 0.0f) return Ok();
    step -= static_cast<int64_t>(operands.In(tensors + 1, kLossScaleNumbers)[2]);
  }
  WT_CHECK_EQ(operands.writes.size(), tensors * static_cast<size_t>(1 + op.state_tensors));
  const bool is_sgd = op.spec.kind == OptimizerKind::kSgd;
  const int states_needed = !is_sgd ? 2 : op.spec.momentum != 0.0 ? 1 : 0;
  WT_CHECK_EQ(op.state_tensors, states_needed);
  OptimizerSpec spec = op.spec;
  spec.lr *= lr_factor;
  const AdamConstants adam = AdamConstantsOf(spec, step);
  const SgdConstants sgd = SgdConstantsOf(spec);
  if (IsDynamic8(MomentsOf(op.spec))) {
    WT_CHECK(!is_sgd);
    for (size_t i = 0; i < tensors; ++i) {
      const int64_t n = operands.reads[i].elements, blocks = ElementsFor(n, DType::kDynamic8);
      AdamIn8Bits(n, adam, operands.reads[i].f32(), operands.Out(i, n),
                  operands.Out<uint8_t>(tensors + i, blocks), operands.Out<uint8_t>(2 * tensors + i, blocks));
    }
    return Ok();
  }
  const auto update = [&]<typename M>(M) {
    for (size_t i = 0; i < tensors; ++i) {
      const int64_t n = operands.reads[i].elements;
      const auto moments = [&](size_t which) { return operands.Out<M>(which * tensors + i, n); };
      const float* const gradient = operands.reads[i].f32();
      float* const parameter = operands.Out(i, n);
      if (!is_sgd) Adam(n, adam, Tensors<M>{gradient, parameter, moments(1), moments(2)});
      else if (states_needed == 1)
        SgdWithMomentum(n, sgd, Tensors<M>{gradient, parameter, moments(1), nullptr});
      else Sgd(n, sgd, {gradient, parameter, nullptr, nullptr});
    }
  };
  if (MomentsOf(op.spec) == DType::kBFloat16) update(BFloat16());
  else update(float());
  return Ok();
}

}  // namespace windtunnel::cpu
