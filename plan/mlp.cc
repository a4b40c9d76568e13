// A multi-layer perceptron with a mean-squared-error loss: the model of DDP tutorials.
#include <cmath>

#include "plan/layers.h"
#include "plan/model.h"

namespace windtunnel {
namespace {

class Mlp : public Model {
 public:
  explicit Mlp(const Scenario& scenario) : spec_(scenario.model), rows_(scenario.batch.micro) {}

  std::vector<ParameterInit> Register(Role& role) override {
    std::vector<ParameterInit> inits;
    for (size_t i = 0; i + 1 < spec_.widths.size(); ++i) {
      // torch.nn.Linear: uniform in +-1/sqrt(in), weights and biases.
      const ParameterInit init{InitializeParameter::Distribution::kUniform,
                               1.0 / std::sqrt(static_cast<double>(spec_.widths[i]))};
      layers_.push_back(Linear::Register(role, inits, fmt::format("layers.{}", i), spec_.widths[i], spec_.widths[i + 1],
                                         spec_.bias, init, init));
    }
    return inits;
  }

  void ForwardBackward(ProgramBuilder& b, GradientSink& sink, int micro_batch, Slice loss,
                       double gradient_scale) override {
    b.SetMicroBatch(micro_batch);
    b.SetPhase(Phase::kForward);
    const int64_t in = spec_.widths.front(), out = spec_.widths.back();
    Slice features = b.Temporary("features", rows_ * in, Category::kActivations);
    Slice targets = b.Temporary("targets", rows_ * out, Category::kActivations);
    b.Add(LoadBatch{micro_batch, rows_, in, out}, "load_batch", {}, {features, targets});
    std::vector<Slice> inputs = {features}, sums;
    for (size_t i = 0; i < layers_.size(); ++i) {
      b.SetLayer(static_cast<int>(i));
      sums.push_back(layers_[i].Forward(b, inputs.back(), rows_));
      if (i + 1 < layers_.size()) inputs.push_back(Activate(b, layers_[i], sums.back()));
    }
    b.SetLayer(-1);
    b.SetPhase(Phase::kLoss);
    Slice dy = b.Temporary("dprediction", rows_ * out, Category::kActivations);
    b.Add(MeanSquaredError{rows_, out, gradient_scale}, "mean_squared_error", {sums.back(), targets}, {loss, dy});
    b.SetPhase(Phase::kBackward);
    for (size_t i = layers_.size(); i-- > 0;) {
      b.SetLayer(static_cast<int>(i));
      dy = layers_[i].Backward(b, sink, dy, inputs[i], rows_, /*needs_dx=*/i > 0);
      if (i > 0) {
        b.Add(ActivationBackward{spec_.activation, rows_, layers_[i].in}, layers_[i - 1].name + ".activation",
              {dy, sums[i - 1]}, {dy});
      }
    }
    b.SetLayer(-1);
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
  Slice Activate(ProgramBuilder& b, const Linear& layer, Slice sum) {
    Slice activated = b.Temporary(layer.name + ".activation", rows_ * layer.out, Category::kActivations);
    b.Add(ActivationForward{spec_.activation, rows_, layer.out}, layer.name + ".activation", {sum}, {activated});
    return activated;
  }

  ModelSpec spec_;
  int64_t rows_;
  std::vector<Linear> layers_;
};

}  // namespace

std::unique_ptr<Model> MakeMlp(const Scenario& scenario) { return std::make_unique<Mlp>(scenario); }

}  // namespace windtunnel
