// A model's stages: contiguous layers, balanced by hand or by what they cost.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scenarios/scenario.h"

namespace windtunnel {

// The part of a model that is one stage of a pipeline: layers [first, end) (blocks of a transformer), with the model's input
// before the first stage's and its loss behind the last's.
struct StageRange {
  int64_t first = 0, end = 0;
  bool is_first = true, is_last = true;
};
// All of it.
StageRange WholeModel(const ModelSpec& model);
// Layers of the model that stages are made of.
int64_t LayerCount(const ModelSpec& model);

// `balance` layers for each stage in turn. REQUIRES: they add up to the model's.
std::vector<StageRange> StagesOf(const ModelSpec& model, const std::vector<int64_t>& balance);

// What the parts of a model cost, in any unit: the layers in order, what is before the first, what is behind the last.
struct LayerCosts {
  std::vector<double> layers;
  double input = 0, output = 0;
};

// Layers for each of `stages` stages, such that the most expensive stage is as cheap as can be; among such balances the one with the
// least sum of squares, and of those the one with the fewest layers in the last stages. Every stage has a layer at least, and none
// is as `fits` (a stage's number and its layers [first, end)) forbids; empty, when that forbids all.
// REQUIRES: 1 <= stages <= layers.
// Worked example: six layers of 1 before an output of 2, in two stages: {4, 2}.
using StageFits = std::function<bool(int stage, int64_t first, int64_t end)>;
std::vector<int64_t> BalanceStages(const LayerCosts& costs, int stages, const StageFits& fits = {});

}  // namespace windtunnel
