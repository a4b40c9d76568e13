// A model: its parameters, and the forward and backward operators of one micro-batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan/gradient_sink.h"
#include "plan/program_builder.h"

namespace windtunnel {

// A parameter's first values.
struct ParameterInit {
  InitializeParameter::Distribution distribution = InitializeParameter::Distribution::kZeros;
  double scale = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  // Adds the parameters to the role in registration order; their initial values by the same index.
  virtual std::vector<ParameterInit> Register(Role& role) = 0;
  // Operators of one micro-batch: load, forward, loss into `loss`, backward. Gradients are those of the micro-batch's mean
  // loss times `gradient_scale`.
  virtual void ForwardBackward(ProgramBuilder& builder, GradientSink& sink, int micro_batch, Slice loss,
                               double gradient_scale) = 0;
  virtual ModelStatistics Statistics(const Role& role) const = 0;
};

std::unique_ptr<Model> MakeTransformer(const Scenario& scenario);
std::unique_ptr<Model> MakeMlp(const Scenario& scenario);

}  // namespace windtunnel
