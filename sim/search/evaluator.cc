#include "sim/search/evaluator.h"

#include <algorithm>

#include "cost_models/block_speed.h"
#include "cost_models/cost_model.h"
#include "plan/outline.h"
#include "plan/plan.h"
#include "sim/composed/composed_step.h"
#include "sim/operator_room.h"
#include "sim/predict.h"
#include "sim/role_memory.h"

namespace windtunnel {
namespace {

Evaluation Refused(const Error& error) {
  return {.outcome = Evaluation::Outcome::kRefused, .reason = error.message};
}

Evaluation Infeasible(Bytes memory) {
  return {.outcome = Evaluation::Outcome::kInfeasible, .memory = memory};
}

bool Fits(Bytes memory, const CostModel& model) {
  return model.DeviceMemory() == Bytes(0) || memory <= model.DeviceMemory();
}

Bytes LargestPeak(const Plan& plan) {
  Bytes largest;
  for (const Role& role : plan.roles)
    largest = std::max(largest, RequestedPeak(role, plan.scenario.allocator));
  return largest;
}

// Operator by operator; memory first.
Result<Evaluation> EvaluateInFull(const Scenario& scenario, const Profile& profile, ProductSpeeds& speeds) {
  const OperatorRoom room(scenario);
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario, {.checks = false, .predicts = true}));
  const std::unique_ptr<CostModel> model = MakeProfileCostModel(profile, plan, &speeds);
  const Bytes memory = LargestPeak(plan) + model->OutsideAllocator(plan);
  if (!Fits(memory, *model)) return Infeasible(memory);
  WT_ASSIGN_OR_RETURN(const Duration time, PredictStepTime(plan, *model, {.seed = scenario.run.seed}));
  return Evaluation{.outcome = Evaluation::Outcome::kFeasible, .step_time = time, .memory = memory};
}

}  // namespace

class Evaluator::State {
 public:
  State(const Scenario& base, const Profile& profile, const EvaluatorOptions& options)
      : base_(base), profile_(profile), options_(options) {
    base_.search.reset();  // rather than of each configuration's copy
  }

  Evaluation Evaluate(const Configuration& configuration) {
    const Scenario scenario = ScenarioOf(base_, configuration);
    if (const Status status = CheckSupported(scenario); !status) return Refused(status.error());
    const Result<Evaluation> composed = Composed(scenario);
    if (composed) return *composed;
    if (composed.error().kind != ErrorKind::kUnsupported) return Refused(composed.error());
    auto evaluation = EvaluateInFull(scenario, profile_, speeds_);
    return evaluation ? *evaluation : Refused(evaluation.error());
  }

 private:
  Result<Evaluation> Composed(const Scenario& scenario) {
    const Plan plan = OutlineOf(scenario);
    const std::unique_ptr<CostModel> model =
        MakeProfileCostModel(profile_, plan, &speeds_, CardSharing::kIgnored);
    const Bytes outside = model->OutsideAllocator(plan), capacity = RoomForAllocator(plan, *model);
    WT_ASSIGN_OR_RETURN(const ComposedSteps::Step step,
                        steps_.Compose(scenario, *model, options_.follows_peaks ? Bytes::Max() : capacity));
    const Bytes memory = step.memory() + outside;
    if (step.memory() > capacity) return Infeasible(memory);
    return Evaluation{.outcome = Evaluation::Outcome::kFeasible,
                      .step_time = step.Time(),
                      .is_lower_bound = SharesCards(profile_, scenario),
                      .memory = memory};
  }

  Scenario base_;
  const Profile& profile_;
  const EvaluatorOptions options_;
  ComposedSteps steps_;
  ProductSpeeds speeds_;
};

Evaluator::Evaluator(const Scenario& base, const Profile& profile, const EvaluatorOptions& options)
    : state_(std::make_unique<State>(base, profile, options)) {}
Evaluator::~Evaluator() = default;

Evaluation Evaluator::Evaluate(const Configuration& configuration) const {
  return state_->Evaluate(configuration);
}

}  // namespace windtunnel
