// The costs of a step's operators, looked up once, and Monte Carlo draws of a step's work from them.
//
//   WT_ASSIGN_OR_RETURN(StepCosts costs, ResolveCosts(schedule, model, /*replicates=*/101));
//   StepSampler sampler(schedule, costs, /*seed=*/0);
//   sampler.Draw(7, work);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "sim/executor.h"
#include "sim/step_schedule.h"

namespace windtunnel {

class Lateness;

struct StepCosts {
  static constexpr int32_t kNothing = -1;
  // Index into `hosts` (dispatch) or `kernels`, by role and item; kNothing for memory operators.
  std::vector<std::vector<int32_t>> cost_of_item;
  // Index into `communications`, or into `kernels` if the transfer is a kernel or a copy; by transfer.
  std::vector<int32_t> cost_of_transfer;
  std::vector<KernelCost> kernels, hosts;  // distinct ones
  std::vector<CommunicationCost> communications;
  std::vector<double> common_mode;  // by replicate
};

// Errors: the cost model's.
Result<StepCosts> ResolveCosts(const StepSchedule& schedule, const CostModel& model, int replicates);

// The common mode of each replicate: its quantiles at the middles of `replicates` equal slices of [0, 1],
// which cover the whole distribution without sampling noise. If fewer replicates are run than ResolveCosts
// was called for, they need new levels.
std::vector<double> CommonModes(const CostModel& model, int replicates);

// Whether every draw is the same: no cost has spread, and the scenario has no jitter.
bool AreConstant(const StepSchedule& schedule, const StepCosts& costs);

std::vector<TransferTraits> TraitsOf(const StepSchedule& schedule, const StepCosts& costs);

// Shares of the busy time (kernels, dispatch and every rank's transfers, at their medians) by the source of
// its cost.
struct SourceShares {
  double measured = 0, interpolated = 0, modelled = 0;
};
SourceShares ShareBySource(const StepSchedule& schedule, const StepCosts& costs);

// Draws are functions of (seed, replicate, rank, operator), so no number depends on the order of events or on
// what else is drawn.
class StepSampler {
 public:
  StepSampler(const StepSchedule& schedule, const StepCosts& costs, uint64_t seed);
  ~StepSampler();

  // The work of one replicate: every kernel and every host time draws its own level and is scaled by the
  // replicate's common mode; every transfer draws one level. The scenario's straggler and jitter apply. Ranks
  // that are not laid out may come late (sim/lateness.h).
  void Draw(int replicate, StepWork& work) const;

 private:
  void DrawItems(int32_t rank, int replicate, StepWork& work) const;
  void DrawTransfers(int replicate, StepWork& work) const;
  double SlowdownOf(int32_t rank) const;

  const StepSchedule& schedule_;
  const StepCosts& costs_;
  const uint64_t seed_;
  std::unique_ptr<Lateness> lateness_;  // set if ranks stand for others and costs have spread
};

}  // namespace windtunnel
