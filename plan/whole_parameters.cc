#include "plan/whole_parameters.h"

#include <utility>

#include "plan/data_parallel.h"
#include "plan/model.h"

namespace windtunnel {

WholeParameters::WholeParameters(Role& role, const Scenario& scenario, CollectiveStream& tensor,
                                 int dense_copies, std::vector<CollectiveStream*> model_parts)
    : role_(role),
      type_(TypesOf(scenario.precision).storage),
      updated_(TypeOf(scenario.precision.optimizer)),
      optimizer_(role, scenario, tensor, {std::move(model_parts), dense_copies}) {
  for (Parameter& parameter : role_.parameters) {
    values_.push_back(ValuesBuffer(role_, parameter, type_));
    const bool has_master = has_masters() && !parameter.is_frozen;
    masters_.push_back(
        has_master ? NewBuffer(role_, parameter.name + ".master", parameter.elements, Category::kOptimizer)
                   : Slice());
    parameter.values.buffer = has_master ? masters_.back().buffer : values_.back().buffer;
  }
}

void WholeParameters::Initialize(ProgramBuilder& b) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const bool has_master = masters_[i].buffer >= 0;
    if (!has_master) {
      b.Alloc(values_[i].buffer);
      if (role_.parameters[i].is_frozen) AddFrozenValues(b, static_cast<int>(i), values_[i]);
      else AddInitialValues(b, {static_cast<int>(i)}, {values_[i]});
      continue;
    }
    b.Alloc(masters_[i].buffer);
    AddInitialValues(b, {static_cast<int>(i)}, {masters_[i]});
    b.Alloc(values_[i].buffer);
    b.Add(Copy{.elements = values_[i].elements, .to = type_}, role_.parameters[i].name, {masters_[i]},
          {values_[i]});
  }
}

std::vector<OptimizerTarget> WholeParameters::Targets(ProgramBuilder& b,
                                                      const std::vector<Slice>& gradients) {
  std::vector<OptimizerTarget> targets;
  for (const int i : TrainedOf(role_.parameters)) {
    const std::string& name = role_.parameters[i].name;
    Slice gradient = gradients[i];
    if (has_masters()) {
      gradient = b.Temporary(name + ".grad.fp32", values_[i].elements, Category::kGradients);
      b.Add(Copy{.elements = values_[i].elements, .from = type_}, name, {gradients[i]}, {gradient});
    }
    targets.push_back({name, has_masters() ? masters_[i] : values_[i], gradient});
  }
  return targets;
}

void WholeParameters::Update(ProgramBuilder& b, bool first, const std::vector<Slice>& gradients) {
  b.SetPhase(Phase::kOptimizer);
  optimizer_.BeginUpdate(b, Targets(b, gradients));
  optimizer_.PrepareGradients(b, first);
  optimizer_.AddUpdate(b, first, 0, optimizer_.targets());
  Restore(b);
}

void WholeParameters::Restore(ProgramBuilder& b) {
  for (size_t i = 0; i < masters_.size(); ++i) {
    if (masters_[i].buffer < 0) continue;
    b.Add(Copy{.elements = values_[i].elements, .to = type_}, role_.parameters[i].name, {masters_[i]},
          {values_[i]});
  }
}

}  // namespace windtunnel
