// A multi-layer perceptron with a mean-squared-error loss: the model of DDP tutorials.
#include <cmath>

#include "plan/layers.h"
#include "plan/model.h"

namespace windtunnel {
namespace {

class Mlp : public Model {
 public:
  explicit Mlp(const Scenario& scenario)
      : spec_(scenario.model), types_(TypesOf(scenario.precision)), rows_(scenario.batch.micro) {}

  void Register(Role& role) override {
    AddModule("", -1);
    for (size_t i = 0; i + 1 < spec_.widths.size(); ++i) {
      const std::string name = fmt::format("layers.{}", i);
      const int64_t in = spec_.widths[i], out = spec_.widths[i + 1];
      const ModuleId module = AddModule(name, kRootModule);
      // torch.nn.Linear: uniform in +-1/sqrt(in), weights and biases.
      const ParameterInit init{InitializeParameter::Distribution::kUniform, 1.0 / std::sqrt(static_cast<double>(in))};
      Linear linear{name, in, out};
      linear.weight = AddParameter(role, module, name + ".weight", {out, in}, init);
      if (spec_.bias) linear.bias = AddParameter(role, module, name + ".bias", {out}, init);
      layers_.push_back(linear);
    }
  }

  void ForwardBackward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice loss,
                       double gradient_scale) override {
    const LayerContext c{b, hooks, types_};
    b.SetMicroBatch(micro_batch);
    b.SetPhase(Phase::kForward);
    const int64_t in = spec_.widths.front(), out = spec_.widths.back();
    Slice features = b.Temporary("features", rows_ * in, Category::kActivations);
    Slice targets = b.Temporary("targets", rows_ * out, Category::kActivations);
    b.Add(LoadBatch{micro_batch, rows_, in, out}, "load_batch", {}, {features, targets});
    std::vector<Slice> inputs = {InComputeType(c, features)}, sums;
    Forward(c, inputs, sums);
    b.SetPhase(Phase::kLoss);
    Slice dy = c.Activation("dprediction", rows_ * out);
    b.Add(MeanSquaredError{rows_, out, gradient_scale, types_.storage}, "mean_squared_error", {sums.back(), targets}, {loss, dy});
    b.SetPhase(Phase::kBackward);
    Backward(c, inputs, sums, dy);
    b.SetMicroBatch(-1);
  }

  ModelStatistics Statistics(const Role& role) const override {
    ModelStatistics statistics;
    for (const Parameter& parameter : role.parameters) statistics.parameters += parameter.elements;
    statistics.parameters_without_positions = statistics.parameters;
    statistics.flops_per_token = Flops(6.0 * static_cast<double>(statistics.parameters));
    return statistics;
  }

 private:
  static ModuleId ModuleOf(size_t layer) { return static_cast<ModuleId>(layer) + 1; }

  Slice InComputeType(const LayerContext& c, Slice features) const {
    if (types_.storage == DType::kFloat32) return features;
    Slice converted = c.Activation("features.converted", features.elements);
    c.b.Add(Copy{.elements = features.elements, .to = types_.storage}, "features", {features}, {converted});
    return converted;
  }

  void Forward(const LayerContext& c, std::vector<Slice>& inputs, std::vector<Slice>& sums) {
    ForwardScope scope(c.hooks, kRootModule);
    for (size_t i = 0; i < layers_.size(); ++i) {
      c.b.SetLayer(static_cast<int>(i));
      ForwardScope layer(c.hooks, ModuleOf(i));
      sums.push_back(layers_[i].Forward(c, inputs.back(), rows_));
      if (i + 1 < layers_.size()) inputs.push_back(Activate(c, layers_[i], sums.back()));
    }
    c.b.SetLayer(-1);
  }

  void Backward(const LayerContext& c, const std::vector<Slice>& inputs, const std::vector<Slice>& sums, Slice dy) {
    BackwardScope scope(c.hooks, kRootModule);
    for (size_t i = layers_.size(); i-- > 0;) {
      c.b.SetLayer(static_cast<int>(i));
      {
        BackwardScope layer(c.hooks, ModuleOf(i));
        dy = layers_[i].Backward(c, dy, inputs[i], rows_, /*needs_dx=*/i > 0);
      }
      if (i > 0) {
        c.b.Add(ActivationBackward{spec_.activation, rows_, layers_[i].in, types_.storage},
                layers_[i - 1].name + ".activation", {dy, sums[i - 1]}, {dy});
      }
    }
    c.b.SetLayer(-1);
  }

  Slice Activate(const LayerContext& c, const Linear& layer, Slice sum) {
    Slice activated = c.Activation(layer.name + ".activation", rows_ * layer.out);
    c.b.Add(ActivationForward{spec_.activation, rows_, layer.out, types_.storage}, layer.name + ".activation", {sum}, {activated});
    return activated;
  }

  ModelSpec spec_;
  ModelTypes types_;
  int64_t rows_;
  std::vector<Linear> layers_;
};

}  // namespace

std::unique_ptr<Model> MakeMlp(const Scenario& scenario) { return std::make_unique<Mlp>(scenario); }

}  // namespace windtunnel
