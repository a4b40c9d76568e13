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

std::unique_ptr<Model> MakeModel(const Scenario& scenario, const StageRange& stage,
                                 const TensorParallel& tensor) {
  return scenario.model.kind == ModelKind::kTransformer ? MakeTransformer(scenario, stage, tensor)
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

namespace {

// Makes the parameter that of one of `ranks` tensor ranks.
void SplitParameter(const ParameterSplit& split, int ranks, Parameter& parameter) {
  const int64_t rows = parameter.shape[0], columns = parameter.elements / rows;
  if (split.by == ParameterSplit::By::kColumns) {
    parameter.part = {{0, columns / ranks, rows, columns}};
    parameter.shape[1] /= ranks;
  } else if (split.by == ParameterSplit::By::kRows) {
    int64_t first = 0;
    for (int64_t block : split.blocks) {
      parameter.part.push_back({first * columns, block / ranks * columns});
      first += block;
    }
    WT_CHECK_EQ(first, rows);
    parameter.shape[0] /= ranks;
  } else {
    return;
  }
  parameter.elements /= ranks;
  WT_CHECK_EQ(ElementsOf(parameter.part), parameter.elements);
}

}  // namespace

int Model::AddParameter(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape,
                        ParameterInit init, const ParameterSplit& split) {
  const int64_t ordinal = next_ordinal_++;
  if (!is_in_stage_) return -1;
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = parameter.whole_shape = std::move(shape);
  parameter.init = init;
  parameter.ordinal = ordinal;
  parameter.elements = WholeElements(parameter);
  if (tensor_.splits()) SplitParameter(split, tensor_.ranks(), parameter);
  parameter.is_partial_gradient = tensor_.splits_tokens() && split.is_partial_gradient;
  const int index = static_cast<int>(role.parameters.size());
  role.parameters.push_back(std::move(parameter));
  modules_[module].parameters.push_back(index);
  parameters_.push_back(index);
  return index;
}

int Model::AddTied(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape,
                   ParameterInit init, int64_t ordinal, const ParameterSplit& split) {
  for (size_t i = 0; i < role.parameters.size(); ++i) {
    if (role.parameters[i].ordinal != ordinal) continue;
    parameters_.push_back(static_cast<int>(i));
    return parameters_.back();
  }
  const int64_t next = std::exchange(next_ordinal_, ordinal);
  const int index = AddParameter(role, module, std::move(name), std::move(shape), init, split);
  next_ordinal_ = next;
  role.parameters[index].is_copy = true;
  return index;
}

Slice LayerContext::GatherTokens(Slice own, const std::string& name) const {
  if (!tensor.splits_tokens()) return own;
  const Slice all = Activation(name + ".gathered", own.elements * tensor.ranks());
  b.WaitBeforeUse(all, tensor.stream->AllGather(b, own, all, name, b.BeforeNextCompute()));
  return all;
}

Slice LayerContext::SumOverRanks(Slice partial, const std::string& name) const {
  if (!tensor.splits()) return partial;
  if (!tensor.sequence) {
    b.WaitBeforeUse(partial, tensor.stream->AllReduce(b, partial, name, b.BeforeNextCompute()));
    return partial;
  }
  const Slice own = Activation(name + ".scattered", partial.elements / tensor.ranks());
  b.WaitBeforeUse(own, tensor.stream->ReduceScatter(b, partial, own, name, b.BeforeNextCompute()));
  return own;
}

Slice Linear::Forward(const LayerContext& c, Slice x, int64_t rows) const {
  if (split == LinearSplit::kColumnParallel) x = c.GatherTokens(x, name);
  const bool adds_bias_after = split == LinearSplit::kRowParallel && bias >= 0;
  Slice y = c.Activation(name, rows * out);
  Gemm gemm{.m = rows, .n = out, .k = in, .transpose_b = true, .dtype = c.types.gemm};
  gemm.bias = bias >= 0 && !adds_bias_after;
  std::vector<Slice> reads = {x, c.hooks.Values(weight)};
  if (gemm.bias) reads.push_back(c.hooks.Values(bias));
  c.b.Add(gemm, name, std::move(reads), {y});
  if (split == LinearSplit::kRowParallel) y = c.SumOverRanks(y, name);
  if (adds_bias_after) {
    c.b.Add(AddBias{y.elements / out, out, c.types.storage}, name + ".bias", {y, c.hooks.Values(bias)}, {y});
  }
  return y;
}

void Linear::AddBiasGradient(const LayerContext& c, Slice dy) const {
  const ColumnSum sum{dy.elements / out, out, c.hooks.HoldsValue(bias), c.types.storage};
  c.b.Add(sum, name + ".bias", {dy}, {c.hooks.Gradient(bias)});
  c.hooks.Ready(bias);
}

Slice Linear::Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows, bool needs_dx,
                       bool weight_ready) const {
  const bool is_column_parallel = split == LinearSplit::kColumnParallel;
  const bool gathers_input_later = is_column_parallel && c.deferred != nullptr;
  const Slice own_dy = dy;
  if (split == LinearSplit::kRowParallel) dy = c.GatherTokens(dy, name + ".dy");
  if (is_column_parallel && !gathers_input_later) x = c.GatherTokens(x, name + ".x");
  if (bias >= 0) {
    c.AddOrDefer([*this, own_dy](const LayerContext& c) { AddBiasGradient(c, own_dy); });
  }
  Slice dx = kNoSlice;
  if (needs_dx) {
    dx = c.Activation(name + ".dx", rows * in);
    c.b.Add(Gemm{.m = rows, .n = in, .k = out, .dtype = c.types.gemm}, name + ".input",
            {dy, c.hooks.Values(weight)}, {dx});
    if (is_column_parallel) dx = c.SumOverRanks(dx, name + ".dx");
  }
  c.AddOrDefer([*this, dy, x, rows, weight_ready, gathers_input_later](const LayerContext& c) {
    const Gemm gemm{.m = out,
                    .n = in,
                    .k = rows,
                    .transpose_a = true,
                    .accumulate = c.hooks.HoldsValue(weight),
                    .dtype = c.types.gemm};
    const Slice input = gathers_input_later ? c.GatherTokens(x, name + ".x") : x;
    c.b.Add(gemm, name + ".weight", {dy, input}, {c.hooks.Gradient(weight)});
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
