// A stage's layers, as what repeats in them: a layer, or, where only each n-th has experts or sees all tokens, n of them.
//
//   DDDMMMMMMM (dense ones first, then with experts): units D D D M 5 x M M
//
// A small stage has each of its units once, and every layer among the same neighbours, so that what its passes are made of puts passes
// through the whole one together.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/stages.h"
#include "scenarios/scenario.h"

namespace windtunnel::composed {

// What of a stage's layers makes it different from others of one model.
struct StageLayers {
  int64_t layers = 0;
  // Of models whose layers are of several kinds: those without experts that come before the first that may have some, and how many
  // layers of a period are behind them when the stage goes on.
  int64_t dense = 0, phase = 0;

  auto operator<=>(const StageLayers&) const = default;
};
// Of layers [first, first + layers) of the model.
StageLayers StageLayersOf(const ModelSpec& model, int64_t first, int64_t layers);

// Consecutive layers, so many of them, that come so often in a row.
struct LayerUnit {
  int64_t layers = 1, count = 1;
};
// In the order of the model. Of layers that are all alike: the first one, and those behind it (none, if there is but one). Of no layers, none.
std::vector<LayerUnit> UnitsOf(const ModelSpec& model, const StageLayers& stage);

// Where the units of a small stage are the same ones, however often they come.
std::string UnitsKey(const ModelSpec& model, const StageLayers& stage);

// The stage with each unit once, of a model with so many layers as are needed to have it where it is.
struct SmallLayers {
  ModelSpec model;
  StageRange range;
  std::vector<LayerUnit> units;
};
SmallLayers SmallLayersOf(const ModelSpec& model, const StageLayers& stage, bool is_first, bool is_last);

}  // namespace windtunnel::composed
