// Layers that models are made of: each adds the operators of its forward or its backward.
#pragma once

#include <string>
#include <vector>

#include "plan/gradient_sink.h"
#include "plan/model.h"
#include "plan/program_builder.h"

namespace windtunnel {

// Registers a parameter and returns its index.
int RegisterParameter(Role& role, std::vector<ParameterInit>& inits, std::string name, std::vector<int64_t> shape,
                      ParameterInit init);

inline Slice Values(const Role& role, int index) {
  return Slice{role.parameters[index].buffer, 0, role.parameters[index].elements};
}

// y[T,out] = x[T,in] weight[out,in]^T (+ bias[out]).
struct Linear {
  std::string name;
  int64_t in = 0, out = 0;
  int weight = -1, bias = -1;  // parameter indices; -1: no bias

  static Linear Register(Role& role, std::vector<ParameterInit>& inits, const std::string& name, int64_t in, int64_t out,
                         bool bias, ParameterInit weight_init, ParameterInit bias_init = {});

  Slice Forward(ProgramBuilder& b, Slice x, int64_t rows) const;
  // Adds weight and bias gradients, and dx unless `needs_dx` is false (the model's input). Returns dx (buffer -1 if not).
  Slice Backward(ProgramBuilder& b, GradientSink& sink, Slice dy, Slice x, int64_t rows, bool needs_dx = true,
                 bool weight_ready = true) const;
};

// Layer norm or RMS norm over `columns`.
struct Norm {
  std::string name;
  NormKind kind = NormKind::kLayerNorm;
  int64_t columns = 0;
  int gamma = -1, beta = -1;

  static Norm Register(Role& role, std::vector<ParameterInit>& inits, const std::string& name, NormKind kind,
                       int64_t columns, bool bias);

  struct Saved {
    Slice x, y, statistics;  // x: what was normalised
  };
  // With a branch (buffer not -1): x + branch is normalised, and kept as Saved::x.
  Saved Forward(ProgramBuilder& b, Slice x, Slice branch, int64_t rows) const;
  // dx = d(norm), plus `dresidual` where its buffer is not -1; then in place of dresidual. Returns dx.
  Slice Backward(ProgramBuilder& b, GradientSink& sink, Slice dy, const Saved& saved, Slice dresidual,
                 int64_t rows) const;
};

inline constexpr Slice kNoSlice{};

}  // namespace windtunnel
