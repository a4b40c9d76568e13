#include "sim/search/evaluator.h"

#include <algorithm>

#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "sim/predict.h"
#include "sim/role_memory.h"

namespace windtunnel {
namespace {

Evaluation Refused(const Error& error) {
  return {.outcome = Evaluation::Outcome::kRefused, .step_time = {}, .memory = {}, .reason = error.message};
}

Evaluation Infeasible(Bytes memory) {
  return {.outcome = Evaluation::Outcome::kInfeasible, .step_time = {}, .memory = memory, .reason = {}};
}

bool Fits(Bytes memory, const CostModel& model) {
  return model.DeviceMemory() == Bytes(0) || memory <= model.DeviceMemory();
}

Result<Bytes> LargestPeak(const Plan& plan) {
  Bytes largest;
  for (const Role& role : plan.roles) {
    WT_ASSIGN_OR_RETURN(const RoleMemory memory,
                        SimulateMemory(role, {.allocator = plan.scenario.allocator}));
    largest = std::max(largest, memory.steady.requested);
  }
  return largest;
}

// Operator by operator; memory first.
Result<Evaluation> EvaluateInFull(const Scenario& scenario, const Profile& profile) {
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario));
  const std::unique_ptr<CostModel> model = MakeProfileCostModel(profile, plan);
  WT_ASSIGN_OR_RETURN(const Bytes peak, LargestPeak(plan));
  const Bytes memory = peak + model->OutsideAllocator(plan);
  if (!Fits(memory, *model)) return Infeasible(memory);
  WT_ASSIGN_OR_RETURN(const Prediction prediction, Predict(plan, *model, {.seed = scenario.run.seed}));
  return Evaluation{Evaluation::Outcome::kFeasible, prediction.p50, memory, {}};
}

}  // namespace

class Evaluator::State {
 public:
  State(const Scenario& base, const Profile& profile, const EvaluatorOptions& options)
      : base_(base), profile_(profile), options_(options) {}

  Evaluation Evaluate(const Configuration& configuration) {
    const Scenario scenario = ScenarioOf(base_, configuration);
    auto evaluation = EvaluateInFull(scenario, profile_);
    return evaluation ? *evaluation : Refused(evaluation.error());
  }

 private:
  const Scenario& base_;
  const Profile& profile_;
  const EvaluatorOptions options_;
};

Evaluator::Evaluator(const Scenario& base, const Profile& profile, const EvaluatorOptions& options)
    : state_(std::make_unique<State>(base, profile, options)) {}
Evaluator::~Evaluator() = default;

Evaluation Evaluator::Evaluate(const Configuration& configuration) const {
  return state_->Evaluate(configuration);
}

}  // namespace windtunnel
