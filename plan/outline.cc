#include "plan/outline.h"

#include "plan/model.h"

namespace windtunnel {

Plan OutlineOf(const Scenario& scenario) {
  Plan plan;
  plan.scenario = scenario;
  plan.mesh = DeviceMesh(scenario.parallel);
  plan.world_size = plan.mesh.world_size();
  return plan;
}

// Registers the whole model on one rank to count its parameters.
ModelStatistics StatisticsOf(const Scenario& scenario) {
  Role role;
  const std::unique_ptr<Model> model = MakeModel(scenario, WholeModel(scenario.model));
  model->Register(role);
  int64_t parameters = 0;
  int64_t frozen = 0;
  for (const Parameter& parameter : role.parameters) {
    parameters += parameter.elements;
    if (parameter.is_frozen) frozen += parameter.elements;
  }
  ModelStatistics statistics = model->Statistics(parameters, frozen);
  const BatchSpec& batch = scenario.batch;
  const int64_t samples = batch.micro * batch.accumulate * scenario.parallel.data.size;
  const bool has_tokens = scenario.model.kind == ModelKind::kTransformer;
  statistics.tokens_per_step = samples * (has_tokens ? scenario.model.SampleTokens() : 1);
  return statistics;
}

}  // namespace windtunnel
