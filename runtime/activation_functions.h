// The activation functions (ActivationKind, scenarios/operator_kinds.h). They are the same on every device
// except for the exponentials behind them.
#pragma once

#include <cmath>

#include "runtime/device_function.h"
#include "scenarios/operator_kinds.h"

namespace windtunnel {

// `Math` is the device's: Math::Sigmoid(x), and Math::Normal(x), which returns the standard normal
// distribution's `cdf` and `density`. Each function is y = Value(x) and dy/dx = Slope(x). A NaN passes
// through: it is not above, below or within a bound.
template <typename Math>
struct ActivationFunctions {
  struct Gelu {
    static WT_FUNCTION float Value(float x) { return x * Math::Normal(x).cdf; }
    static WT_FUNCTION float Slope(float x) {
      const auto normal = Math::Normal(x);
      return normal.cdf + x * normal.density;
    }
  };

  // The slope at zero is zero, as in torch.
  struct Relu {
    static WT_FUNCTION float Value(float x) { return x < 0.0f ? 0.0f : x; }
    static WT_FUNCTION float Slope(float x) { return x <= 0.0f ? 0.0f : 1.0f; }
  };

  struct SquaredRelu {
    static WT_FUNCTION float Value(float x) { return x < 0.0f ? 0.0f : x * x; }
    static WT_FUNCTION float Slope(float x) { return x < 0.0f ? 0.0f : 2.0f * x; }
  };

  // x s(x) with s the sigmoid.
  struct Silu {
    static WT_FUNCTION float Value(float x) { return x * Math::Sigmoid(x); }
    static WT_FUNCTION float Slope(float x) {
      const float s = Math::Sigmoid(x);
      return s * (1.0f + x * (1.0f - s));
    }
  };

  // gpt-oss's activation of the gate: c s(a c), where c = min(x, 7), s is the sigmoid and a is
  // kGateSteepness. The slope of min or clamp at its bound is one, as in torch.
  struct ClampedGate {
    static WT_FUNCTION float Value(float x) {
      const float c = x > kGateLimit ? kGateLimit : x;
      return c * Math::Sigmoid(kGateSteepness * c);
    }
    static WT_FUNCTION float Slope(float x) {
      const float s = Math::Sigmoid(kGateSteepness * x);
      return x > kGateLimit ? 0.0f : s * (1.0f + kGateSteepness * x * (1.0f - s));
    }
  };

  struct Identity {
    static WT_FUNCTION float Value(float x) { return x; }
    static WT_FUNCTION float Slope(float) { return 1.0f; }
  };

  // gpt-oss's activation of the other half: one plus x clamped to [-7, 7].
  struct ClampedValue {
    static WT_FUNCTION float Value(float x) {
      return 1.0f + (x > kGateLimit ? kGateLimit : (x < -kGateLimit ? -kGateLimit : x));
    }
    static WT_FUNCTION float Slope(float x) { return std::fabs(x) > kGateLimit ? 0.0f : 1.0f; }
  };

  // Calls pass.Plain<Function>(), or for a gated activation pass.Gated<Gate, Up>(): y = Gate(g) Up(u).
  template <typename Pass>
  static void Apply(ActivationKind kind, const Pass& pass) {
    switch (kind) {
      case ActivationKind::kGelu:
        return pass.template Plain<Gelu>();
      case ActivationKind::kRelu:
        return pass.template Plain<Relu>();
      case ActivationKind::kSquaredRelu:
        return pass.template Plain<SquaredRelu>();
      case ActivationKind::kSwiglu:
        return pass.template Gated<Silu, Identity>();
      case ActivationKind::kGeglu:
        return pass.template Gated<Gelu, Identity>();
      case ActivationKind::kClampedSwiglu:
        return pass.template Gated<ClampedGate, ClampedValue>();
    }
  }
};

}  // namespace windtunnel
