// A model: its modules and parameters, and the forward and backward operators of one micro-batch.
#pragma once

#include <memory>
#include <vector>

#include "plan/model_hooks.h"
#include "plan/program_builder.h"

namespace windtunnel {

class Model {
 public:
  virtual ~Model() = default;
  // Adds the parameters to the role, in registration order. Once.
  virtual void Register(Role& role) = 0;
  // The module tree; module 0 is the root.
  const std::vector<Module>& modules() const { return modules_; }
  // Operators of one micro-batch: load, forward, loss into `loss`, backward. Gradients are those of the micro-batch's mean
  // loss times `gradient_scale`.
  virtual void ForwardBackward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice loss,
                               double gradient_scale) = 0;
  virtual ModelStatistics Statistics(const Role& role) const = 0;

 protected:
  // Adds a module; parents before children, in forward order.
  ModuleId AddModule(std::string name, ModuleId parent) {
    modules_.push_back(Module{std::move(name), parent, {}});
    return static_cast<ModuleId>(modules_.size()) - 1;
  }
  // Adds a parameter of a module to the role; its index.
  int AddParameter(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape, ParameterInit init);

  std::vector<Module> modules_;
};

// The types that the model's operators work in.
struct ModelTypes {
  DType storage = DType::kFloat32;  // activations, parameters as gathered, their gradients
  DType gemm = DType::kFloat32;     // the same, or tf32
};
ModelTypes TypesOf(const PrecisionSpec& precision);
DType TypeOf(Precision precision);

std::unique_ptr<Model> MakeTransformer(const Scenario& scenario);
std::unique_ptr<Model> MakeMlp(const Scenario& scenario);

}  // namespace windtunnel
