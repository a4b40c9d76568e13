// A model's pipeline stages: contiguous layers, balanced by hand or by cost.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scenarios/scenario.h"

namespace windtunnel {

// The part of a model that is one pipeline stage: layers [first, end) (blocks of a transformer). The first
// stage also has the model's input, and the last one the loss.
struct StageRange {
  int64_t first = 0, end = 0;
  bool is_first = true, is_last = true;
  // A replica of the model on a part of the batch. The strategy (DataParallel) loads the whole batch and
  // computes its loss. So the first stage receives its inputs, the last one returns its output (logits,
  // predictions), and backward begins with the gradient of that.
  bool is_replica = false;
};
// The whole model as one stage.
StageRange WholeModel(const ModelSpec& model);
// The number of layers that are divided among stages.
int64_t LayerCount(const ModelSpec& model);

// Stage i has balance[i] layers. REQUIRES: they add up to the model's layers.
std::vector<StageRange> StagesOf(const ModelSpec& model, const std::vector<int64_t>& balance);

// The costs of a model's layers in order, of its input and of its output, in any unit.
struct LayerCosts {
  std::vector<double> layers;
  double input = 0, output = 0;
};

// The number of layers of each of `stages` stages that minimizes the cost of the most expensive stage; among
// such balances the one with the smallest sum of squared costs, and of those the one with the fewest layers
// in the last stages. Every stage has at least one layer. `fits` may reject a stage with layers [first, end).
// Returns empty if no balance fits.
// REQUIRES: 1 <= stages <= layers.
// Worked example: six layers of 1 before an output of 2, in two stages: {4, 2}.
using StageFits = std::function<bool(int stage, int64_t first, int64_t end)>;
std::vector<int64_t> BalanceStages(const LayerCosts& costs, int stages, const StageFits& fits = {});

}  // namespace windtunnel
