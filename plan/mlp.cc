// A multi-layer perceptron with a mean-squared-error loss: the model of DDP tutorials.
//
// Tensor parallelism applies to pairs of layers, as in PyTorch's tensor-parallel tutorial (and Megatron's
// MLP): the first of a pair is column-parallel, the second row-parallel, and the activations between them
// stay split. A last layer without a partner is whole on every rank. So are input, output and loss.
#include <cmath>
#include <map>

#include "plan/layers.h"
#include "plan/loss_scaling.h"
#include "plan/model.h"

namespace windtunnel {
namespace {

// The state of a micro-batch between forward and backward: inputs and pre-activations of the stage's layers.
struct Pass {
  Slice targets;
  std::vector<Slice> inputs, sums;
  std::vector<Slice> masks;  // of dropout
  WeightCopies copies;
};

class Mlp : public Model {
 public:
  Mlp(const Scenario& scenario, const StageRange& stage, const ModelParallel& parallel)
      : Model(parallel),
        spec_(scenario.model),
        stage_(stage),
        types_(TypesOf(scenario.precision)),
        rows_(scenario.batch.micro) {
    has_muon_ = scenario.optimizer.kind == OptimizerKind::kMuon;
  }

  void Register(Role& role) override {
    AddModule("", -1);
    for (size_t i = 0; i + 1 < spec_.widths.size(); ++i) {
      is_in_stage_ = stage_.first <= static_cast<int64_t>(i) && static_cast<int64_t>(i) < stage_.end;
      const std::string name = fmt::format("layers.{}", i);
      const int64_t in = spec_.widths[i], out = spec_.widths[i + 1];
      const LinearSplit split = SplitOf(i);
      is_hidden_ = i > 0 && i + 2 < spec_.widths.size();
      const ModuleId module = AddModule(name, kRootModule);
      // As torch.nn.Linear: weights and biases are uniform in +-1/sqrt(in).
      const ParameterInit init{InitializeParameter::Distribution::kUniform,
                               1.0 / std::sqrt(static_cast<double>(in))};
      Linear linear{name, OwnWidth(i), OwnWidth(i + 1)};
      linear.split = split;
      linear.weight = AddParameter(role, module, name + ".weight", {out, in}, init, WeightSplit(split, out));
      if (spec_.bias)
        linear.bias = AddParameter(role, module, name + ".bias", {out}, init, BiasSplit(split, out));
      if (is_in_stage_) layers_.push_back(linear);
    }
  }

  Slice Forward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice input, Slice loss,
                double gradient_scale) override {
    Pass& pass = passes_[micro_batch] = {};
    const LayerContext c = Context(b, hooks, pass, nullptr);
    b.SetMicroBatch(micro_batch);
    b.SetPhase(Phase::kForward);
    Slice features = input;
    if (!stage_.is_replica && (stage_.is_first || stage_.is_last)) {
      features = MakeInputs(b, 1);
      pass.targets = Load(b, micro_batch, 1, features);
    }
    pass.inputs = {stage_.is_first ? InComputeType(c, features) : input};
    const Slice output = ForwardLayers(c, pass);
    const bool takes_loss = stage_.is_last && !stage_.is_replica;
    const Slice result = takes_loss ? Loss(b, 1, output, pass.targets, loss, gradient_scale) : output;
    pass.copies.EndForward(b);
    b.SetMicroBatch(-1);
    return result;
  }

  Slice MakeInputs(ProgramBuilder& b, int64_t micro_batches) const override {
    return b.Temporary("features", micro_batches * rows_ * spec_.widths.front(), Category::kActivations);
  }

  Slice Load(ProgramBuilder& b, int micro_batch, int64_t micro_batches, Slice inputs) const override {
    const int64_t rows = micro_batches * rows_, in = spec_.widths.front(), out = spec_.widths.back();
    const Slice targets = b.Temporary("targets", rows * out, Category::kActivations);
    b.Add(LoadBatch{micro_batch, rows, in, out}, "load_batch", {}, {inputs, targets});
    return targets;
  }

  Slice Loss(ProgramBuilder& b, int64_t micro_batches, Slice output, Slice targets, Slice loss,
             double gradient_scale) const override {
    b.SetPhase(Phase::kLoss);
    const Slice dy = b.Temporary("dprediction", output.elements, Category::kActivations, types_.activations);
    MeanSquaredError op{micro_batches * rows_, spec_.widths.back(), gradient_scale, types_.activations};
    std::vector<Slice> reads = {output, targets};
    op.scaled = ReadLossScale(b, reads);
    b.Add(op, "mean_squared_error", std::move(reads), {loss, dy});
    return dy;
  }

  Slice AddBackward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice doutput,
                    DeferredOps* deferred, bool) override {
    Pass& pass = passes_.at(micro_batch);
    const LayerContext c = Context(b, hooks, pass, deferred);
    b.SetMicroBatch(micro_batch);
    b.SetPhase(Phase::kBackward);
    const Slice dx = BackwardLayers(c, pass, doutput);
    b.SetMicroBatch(-1);
    passes_.erase(micro_batch);
    return dx;
  }

  int64_t InputElements() const override { return rows_ * OwnWidth(static_cast<size_t>(stage_.first)); }
  int64_t OutputElements() const override { return rows_ * OwnWidth(static_cast<size_t>(stage_.end)); }
  DType BoundaryType() const override { return types_.activations; }

  ModelStatistics Statistics(int64_t parameters, int64_t frozen) const override {
    ModelStatistics statistics;
    statistics.parameters = statistics.parameters_without_positions = parameters;
    statistics.frozen_parameters = frozen;
    statistics.flops_per_token = Flops(6.0 * static_cast<double>(parameters));
    return statistics;
  }

 private:
  LayerContext Context(ProgramBuilder& b, ModelHooks& hooks, Pass& pass, DeferredOps* deferred) const {
    return {b, hooks, types_, deferred, tensor_, &pass.copies};
  }

  LinearSplit SplitOf(size_t layer) const {
    if (!tensor_.splits()) return LinearSplit::kNone;
    if (layer % 2 == 1) return LinearSplit::kRowParallel;
    return layer + 2 < spec_.widths.size() ? LinearSplit::kColumnParallel : LinearSplit::kNone;
  }
  // The number of features that the rank has at the input of layer `layer`, or at the output of the last one.
  int64_t OwnWidth(size_t layer) const {
    const bool in_parts = layer + 1 < spec_.widths.size() && SplitOf(layer) == LinearSplit::kRowParallel;
    return spec_.widths[layer] / (in_parts ? tensor_.ranks() : 1);
  }
  static ParameterSplit WeightSplit(LinearSplit split, int64_t out) {
    if (split == LinearSplit::kNone) return {};
    if (split == LinearSplit::kRowParallel) return {ParameterSplit::By::kColumns};
    return {ParameterSplit::By::kRows, {out}};
  }
  static ParameterSplit BiasSplit(LinearSplit split, int64_t out) {
    if (split == LinearSplit::kColumnParallel) return {ParameterSplit::By::kRows, {out}};
    return {};
  }

  static ModuleId ModuleOf(size_t layer) { return static_cast<ModuleId>(layer) + 1; }

  Slice InComputeType(const LayerContext& c, Slice features) const {
    if (types_.activations == DType::kFloat32) return features;
    Slice converted = c.Activation("features.converted", features.elements);
    c.b.Add(Copy{.elements = features.elements, .to = types_.activations}, "features", {features},
            {converted});
    return converted;
  }

  // The stage's output: the prediction, or what the next stage's first layer reads.
  Slice ForwardLayers(const LayerContext& c, Pass& pass) {
    ForwardScope scope(c.hooks, kRootModule);
    for (size_t i = 0; i < layers_.size(); ++i) {
      c.b.SetLayer(static_cast<int>(stage_.first + static_cast<int64_t>(i)));
      ForwardScope layer(c.hooks, ModuleOf(i));
      pass.sums.push_back(layers_[i].Forward(c, pass.inputs.back(), rows_));
      if (i + 1 < layers_.size() || !stage_.is_last)
        pass.inputs.push_back(Activate(c, i, pass.sums.back(), pass));
    }
    c.b.SetLayer(-1);
    return stage_.is_last ? pass.sums.back() : pass.inputs.back();
  }

  // Turns the gradient of the stage's output into that of its input. Activations belong to the layer before.
  Slice BackwardLayers(const LayerContext& c, const Pass& pass, Slice dy) {
    BackwardScope scope(c.hooks, kRootModule);
    if (!stage_.is_last) ActivationGradient(c, pass, layers_.size() - 1, dy);
    for (size_t i = layers_.size(); i-- > 0;) {
      c.b.SetLayer(static_cast<int>(stage_.first + static_cast<int64_t>(i)));
      {
        BackwardScope layer(c.hooks, ModuleOf(i));
        dy = layers_[i].Backward(c, dy, pass.inputs[i], rows_, /*needs_dx=*/i > 0 || !stage_.is_first);
      }
      if (i > 0) ActivationGradient(c, pass, i - 1, dy);
    }
    c.b.SetLayer(-1);
    return dy;
  }

  // Replaces dy by the gradient before dropout and activation, in place.
  void ActivationGradient(const LayerContext& c, const Pass& pass, size_t index, Slice dy) {
    const Linear& layer = layers_[index];
    const Slice sum = pass.sums[index];
    if (pass.masks[index].buffer >= 0) {
      Dropout op = DropoutAfter(c, index);
      op.elements = dy.elements;
      op.dtype = types_.activations;
      op.backward = true;
      c.b.Add(op, layer.name + ".dropout", {dy, pass.masks[index]}, {dy});
    }
    c.b.Add(ActivationBackward{spec_.activation, rows_, layer.out, types_.activations},
            layer.name + ".activation", {dy, sum}, {dy});
  }

  // The dropout of the activations of the stage's layer `index`.
  Dropout DropoutAfter(const LayerContext& c, size_t index) const {
    const Linear& layer = layers_[index];
    return {.site = DropoutSiteOf(spec_.dropout, layer.name, c.b.micro_batch()),
            .columns = layer.out,
            .splits_columns = layer.split == LinearSplit::kColumnParallel};
  }

  Slice Activate(const LayerContext& c, size_t index, Slice sum, Pass& pass) {
    const Linear& layer = layers_[index];
    Slice activated = c.Activation(layer.name + ".activation", rows_ * layer.out);
    c.b.Add(ActivationForward{spec_.activation, rows_, layer.out, types_.activations},
            layer.name + ".activation", {sum}, {activated});
    pass.masks.push_back(c.Drop(activated, DropoutAfter(c, index), layer.name + ".dropout"));
    return activated;
  }

  ModelSpec spec_;
  StageRange stage_;
  ModelTypes types_;
  int64_t rows_;
  std::vector<Linear> layers_;
  std::map<int, Pass> passes_;  // by micro-batch, from its forward to its backward
};

}  // namespace

std::unique_ptr<Model> MakeMlp(const Scenario& scenario, const StageRange& stage,
                               const ModelParallel& parallel) {
  return std::make_unique<Mlp>(scenario, stage, parallel);
}

}  // namespace windtunnel
