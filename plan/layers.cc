#include "plan/layers.h"

namespace windtunnel {

int RegisterParameter(Role& role, std::vector<ParameterInit>& inits, std::string name, std::vector<int64_t> shape,
                      ParameterInit init) {
  int64_t elements = 1;
  for (int64_t extent : shape) elements *= extent;
  Slice values = NewBuffer(role, name, elements, Category::kParameters);
  role.parameters.push_back(Parameter{std::move(name), std::move(shape), elements, values.buffer, {}});
  inits.push_back(init);
  return static_cast<int>(role.parameters.size()) - 1;
}

Linear Linear::Register(Role& role, std::vector<ParameterInit>& inits, const std::string& name, int64_t in, int64_t out,
                        bool bias, ParameterInit weight_init, ParameterInit bias_init) {
  Linear linear{name, in, out};
  linear.weight = RegisterParameter(role, inits, name + ".weight", {out, in}, weight_init);
  if (bias) linear.bias = RegisterParameter(role, inits, name + ".bias", {out}, bias_init);
  return linear;
}

Slice Linear::Forward(ProgramBuilder& b, Slice x, int64_t rows) const {
  Slice y = b.Temporary(name, rows * out, Category::kActivations);
  std::vector<Slice> reads = {x, Values(b.role(), weight)};
  if (bias >= 0) reads.push_back(Values(b.role(), bias));
  b.Add(Gemm{.m = rows, .n = out, .k = in, .transpose_b = true, .bias = bias >= 0}, name, reads, {y});
  return y;
}

Slice Linear::Backward(ProgramBuilder& b, GradientSink& sink, Slice dy, Slice x, int64_t rows, bool needs_dx,
                       bool weight_ready) const {
  if (bias >= 0) {
    const bool accumulate = sink.HoldsValue(bias);
    b.Add(ColumnSum{rows, out, accumulate}, name + ".bias", {dy}, {sink.Gradient(bias)});
    sink.Ready(bias);
  }
  Slice dx = kNoSlice;
  if (needs_dx) {
    dx = b.Temporary(name + ".dx", rows * in, Category::kActivations);
    b.Add(Gemm{.m = rows, .n = in, .k = out}, name + ".input", {dy, Values(b.role(), weight)}, {dx});
  }
  const bool accumulate = sink.HoldsValue(weight);
  b.Add(Gemm{.m = out, .n = in, .k = rows, .transpose_a = true, .accumulate = accumulate}, name + ".weight", {dy, x},
        {sink.Gradient(weight)});
  if (weight_ready) sink.Ready(weight);
  return dx;
}

Norm Norm::Register(Role& role, std::vector<ParameterInit>& inits, const std::string& name, NormKind kind,
                    int64_t columns, bool bias) {
  Norm norm{name, kind, columns};
  norm.gamma = RegisterParameter(role, inits, name + ".weight", {columns},
                                 {InitializeParameter::Distribution::kOnes, 0});
  if (bias && kind == NormKind::kLayerNorm) norm.beta = RegisterParameter(role, inits, name + ".bias", {columns}, {});
  return norm;
}

Norm::Saved Norm::Forward(ProgramBuilder& b, Slice x, Slice branch, int64_t rows) const {
  const bool residual = branch.buffer >= 0;
  Saved saved;
  std::vector<Slice> reads = {x}, writes;
  if (residual) reads.push_back(branch);
  reads.push_back(Values(b.role(), gamma));
  if (beta >= 0) reads.push_back(Values(b.role(), beta));
  saved.x = x;
  if (residual) {
    saved.x = b.Temporary(name + ".sum", rows * columns, Category::kActivations);
    writes.push_back(saved.x);
  }
  saved.y = b.Temporary(name, rows * columns, Category::kActivations);
  saved.statistics =
      b.Temporary(name + ".statistics", rows * (kind == NormKind::kLayerNorm ? 2 : 1), Category::kActivations);
  writes.push_back(saved.y);
  writes.push_back(saved.statistics);
  b.Add(NormForward{kind, rows, columns, beta >= 0, residual}, name, reads, writes);
  return saved;
}

Slice Norm::Backward(ProgramBuilder& b, GradientSink& sink, Slice dy, const Saved& saved, Slice dresidual,
                     int64_t rows) const {
  const bool residual = dresidual.buffer >= 0;
  const bool accumulate = sink.HoldsValue(gamma);
  const Slice dx = residual ? dresidual : dy;
  std::vector<Slice> reads = {dy, saved.x, Values(b.role(), gamma), saved.statistics};
  if (residual) reads.push_back(dresidual);
  std::vector<Slice> writes = {dx, sink.Gradient(gamma)};
  if (beta >= 0) writes.push_back(sink.Gradient(beta));
  b.Add(NormBackward{kind, rows, columns, beta >= 0, residual, accumulate}, name, reads, writes);
  if (beta >= 0) sink.Ready(beta);
  sink.Ready(gamma);
  return dx;
}

}  // namespace windtunnel
