#include "plan/layers.h"

#include <utility>

#include "base/check.h"

namespace windtunnel {

DType TypeOf(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return DType::kFloat32;
    case Precision::kTf32:
      return DType::kTf32;
    case Precision::kBf16:
      return DType::kBFloat16;
    case Precision::kFp16:
      return DType::kFloat16;
    case Precision::kFp8:
      return DType::kFloat8;
  }
  return DType::kFloat32;
}

ModelTypes TypesOf(const PrecisionSpec& precision) {
  const DType storage = precision.param == Precision::kTf32 ? DType::kFloat32 : TypeOf(precision.param);
  return {storage, TypeOf(precision.compute)};
}

std::unique_ptr<Model> MakeModel(const Scenario& scenario, const StageRange& stage) {
  return scenario.model.kind == ModelKind::kTransformer ? MakeTransformer(scenario, stage)
                                                        : MakeMlp(scenario, stage);
}

ModuleId Model::AddModule(std::string name, ModuleId parent) {
  if (!is_in_stage_) return -1;
  modules_.push_back(Module{std::move(name), parent, {}});
  return static_cast<ModuleId>(modules_.size()) - 1;
}

Slice Model::Backward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice doutput,
                      WeightGradients weights) {
  const bool defers = weights == WeightGradients::kDeferred;
  return AddBackward(builder, hooks, micro_batch, doutput, defers ? &deferred_[micro_batch] : nullptr);
}

void Model::BackwardWeights(ProgramBuilder& builder, int micro_batch) {
  auto deferred = deferred_.extract(micro_batch);
  WT_CHECK(!deferred.empty());
  builder.SetMicroBatch(micro_batch);
  builder.SetPhase(Phase::kBackwardWeights);
  for (const auto& [layer, add] : deferred.mapped()) {
    builder.SetLayer(layer);
    add();
  }
  builder.SetLayer(-1);
  builder.SetMicroBatch(-1);
}

int Model::AddParameter(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape,
                        ParameterInit init) {
  const int64_t ordinal = next_ordinal_++;
  if (!is_in_stage_) return -1;
  int64_t elements = 1;
  for (int64_t extent : shape) elements *= extent;
  const int index = static_cast<int>(role.parameters.size());
  role.parameters.push_back(Parameter{std::move(name), std::move(shape), elements, init, {}, ordinal});
  modules_[module].parameters.push_back(index);
  parameters_.push_back(index);
  return index;
}

int Model::AddTied(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape,
                   ParameterInit init, int64_t ordinal) {
  for (size_t i = 0; i < role.parameters.size(); ++i) {
    if (role.parameters[i].ordinal != ordinal) continue;
    parameters_.push_back(static_cast<int>(i));
    return parameters_.back();
  }
  const int64_t next = std::exchange(next_ordinal_, ordinal);
  const int index = AddParameter(role, module, std::move(name), std::move(shape), init);
  next_ordinal_ = next;
  role.parameters[index].is_copy = true;
  return index;
}

Slice Linear::Forward(const LayerContext& c, Slice x, int64_t rows) const {
  Slice y = c.Activation(name, rows * out);
  std::vector<Slice> reads = {x, c.hooks.Values(weight)};
  if (bias >= 0) reads.push_back(c.hooks.Values(bias));
  c.b.Add(Gemm{.m = rows, .n = out, .k = in, .transpose_b = true, .bias = bias >= 0, .dtype = c.types.gemm},
          name, std::move(reads), {y});
  return y;
}

Slice Linear::Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows, bool needs_dx,
                       bool weight_ready) const {
  if (bias >= 0) {
    c.AddOrDefer([*this, dy, rows](const LayerContext& c) {
      const bool accumulate = c.hooks.HoldsValue(bias);
      c.b.Add(ColumnSum{rows, out, accumulate, c.types.storage}, name + ".bias", {dy},
              {c.hooks.Gradient(bias)});
      c.hooks.Ready(bias);
    });
  }
  Slice dx = kNoSlice;
  if (needs_dx) {
    dx = c.Activation(name + ".dx", rows * in);
    c.b.Add(Gemm{.m = rows, .n = in, .k = out, .dtype = c.types.gemm}, name + ".input",
            {dy, c.hooks.Values(weight)}, {dx});
  }
  c.AddOrDefer([*this, dy, x, rows, weight_ready](const LayerContext& c) {
    const Gemm gemm{.m = out,
                    .n = in,
                    .k = rows,
                    .transpose_a = true,
                    .accumulate = c.hooks.HoldsValue(weight),
                    .dtype = c.types.gemm};
    c.b.Add(gemm, name + ".weight", {dy, x}, {c.hooks.Gradient(weight)});
    if (weight_ready) c.hooks.Ready(weight);
    else c.hooks.Wrote(weight);
  });
  return dx;
}

Norm::Saved Norm::Forward(const LayerContext& c, Slice x, Slice branch, int64_t rows) const {
  const bool residual = branch.buffer >= 0;
  Saved saved;
  std::vector<Slice> reads = {x}, writes;
  if (residual) reads.push_back(branch);
  reads.push_back(c.hooks.Values(gamma));
  if (beta >= 0) reads.push_back(c.hooks.Values(beta));
  saved.x = x;
  if (residual) {
    saved.x = c.Activation(name + ".sum", rows * columns);
    writes.push_back(saved.x);
  }
  saved.y = c.Activation(name, rows * columns);
  saved.statistics = c.b.Temporary(name + ".statistics", rows * (kind == NormKind::kLayerNorm ? 2 : 1),
                                   Category::kActivations);
  writes.push_back(saved.y);
  writes.push_back(saved.statistics);
  c.b.Add(NormForward{kind, rows, columns, beta >= 0, residual, c.types.storage}, name, reads, writes);
  return saved;
}

Slice Norm::Backward(const LayerContext& c, Slice dy, const Saved& saved, Slice dresidual,
                     int64_t rows) const {
  const bool residual = dresidual.buffer >= 0;
  const bool accumulate = c.hooks.HoldsValue(gamma);
  Slice dx = residual ? dresidual : dy;
  if (residual && c.deferred != nullptr) dx = c.Activation(name + ".dx", rows * columns);
  std::vector<Slice> reads = {dy, saved.x, c.hooks.Values(gamma), saved.statistics};
  if (residual) reads.push_back(dresidual);
  std::vector<Slice> writes = {dx, c.hooks.Gradient(gamma)};
  if (beta >= 0) writes.push_back(c.hooks.Gradient(beta));
  c.b.Add(NormBackward{kind, rows, columns, beta >= 0, residual, accumulate, c.types.storage}, name, reads,
          writes);
  if (beta >= 0) c.hooks.Ready(beta);
  c.hooks.Ready(gamma);
  return dx;
}

}  // namespace windtunnel
