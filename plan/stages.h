// A model's pipeline stages: contiguous layers, balanced by hand or by cost.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "scenarios/model_spec.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// The part of a model that is one pipeline stage: layers [first, end) (blocks of a transformer). The first
// stage also has the model's input, and the last one the loss.
//
// `has_mtp`: whether it also has what follows the layers in a model with multi-token prediction (the final
// norm and the modules), if the model is one. If that is the stage before the last, the last has the heads
// alone.
struct StageRange {
  int64_t first = 0, end = 0;
  bool is_first = true, is_last = true;
  // A replica of the model on a part of the batch. The strategy (DataParallel) loads the whole batch and
  // computes its loss. So the first stage receives its inputs, the last one returns its output (logits,
  // predictions), and backward begins with the gradient of that.
  bool is_replica = false;
  bool has_mtp = is_last;
};
// The whole model as one stage.
StageRange WholeModel(const ModelSpec& model);
// The number of layers that are divided among stages.
int64_t LayerCount(const ModelSpec& model);

// Stage i has balance[i] layers. REQUIRES: they add up to the model's layers.
std::vector<StageRange> StagesOf(const ModelSpec& model, const std::vector<int64_t>& balance,
                                 MtpStage mtp = MtpStage::kLast);

// The costs of a model's layers in order, of its input and of its output, in any unit. `behind`: of a stage
// that follows the last one with layers, if there is one (StageRange::has_mtp); it is none of those that are
// balanced.
struct LayerCosts {
  std::vector<double> layers;
  double input = 0, output = 0;
  std::optional<double> behind = std::nullopt;
};

// The number of layers of each of `stages` stages that minimizes the cost of the most expensive stage; among
// such balances the one with the smallest sum of squared costs, and of those the one with the fewest layers
// in the last stages. Every stage has at least one layer; the first and the last `least_at_ends`, 0 or 1.
// `fits` may reject a stage. Returns empty if no balance fits.
// REQUIRES: 1 <= stages <= layers.
// Worked example: six layers of 1 before an output of 2, in two stages: {4, 2}. Before an output of 7, in
// three stages: {3, 2, 1}, or {3, 3, 0} without a layer beside the output.
using StageFits = std::function<bool(int index, const StageRange& stage)>;
std::vector<int64_t> BalanceStages(const LayerCosts& costs, int stages, int64_t least_at_ends = 1,
                                   const StageFits& fits = {});

// The same where ranks have several stages each: begins with BalanceStages and moves single layers from one
// stage to another for as long as that lowers the largest sum of costs of a rank, or leaves it as it is and
// lowers the cost of the most expensive stage, or then the sum of the ranks' squared costs.
// Worked example: six layers of 1 before an output of 2, in four stages of two ranks in a V (0, 1, 1, 0):
// {1, 3, 1, 1}, of which both ranks have 4. The slowest stage would be no slower with {2, 2, 1, 1}, 5 and 3.
// With the output alone in the last stage, {2, 2, 2, 0}, both have 4 as well, and no stage more than 2.
// If there is a stage `behind`, it is the last one of `rank_of_stage`, and the balance has one entry less.
std::vector<int64_t> BalanceRanks(const LayerCosts& costs, const std::vector<int>& rank_of_stage,
                                  int64_t least_at_ends = 1);

}  // namespace windtunnel
