// A stage's layers as units that repeat: one layer, or n if only every n-th has experts or sees all tokens.
//
//   DDDMMMMMMM (dense ones first, then with experts): units D D D M 5 x M M
//   RRRRKKK (recomputed ones first, then ones that keep their activations): units R 3 x R K 2 x K
//
// A small stage has each of the units once, and every layer has the same neighbours there. So passes through
// the whole stage can be assembled from the parts of the small stage's passes.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/stages.h"
#include "scenarios/scenario.h"

namespace windtunnel::composed {

// The part of a stage's layers that distinguishes it from the model's other stages.
struct StageLayers {
  int64_t layers = 0;
  // For models with layers of several kinds. `dense`: layers without experts before the first one that may
  // have some. `phase`: the position of the layer after those within the model's period of layers.
  int64_t dense = 0, phase = 0;
  // The first so many layers are recomputed and the others are not; 0: all or none are. (Only where layers are
  // alike otherwise.)
  int64_t recomputed = 0;

  auto operator<=>(const StageLayers&) const = default;
};
// For layers [first, first + layers) of the model.
StageLayers StageLayersOf(const Scenario& scenario, int64_t first, int64_t layers);

// `layers` consecutive layers that occur `count` times in a row.
struct LayerUnit {
  int64_t layers = 1, count = 1;
};
// In the order of the model. If all layers are alike: the first one, and those after it (count 0 if there is
// only one). Empty if there are no layers.
std::vector<LayerUnit> UnitsOf(const ModelSpec& model, const StageLayers& stage);

// Equal for stages whose small stages have the same units, however often these occur.
std::string UnitsKey(const ModelSpec& model, const StageLayers& stage);

// The stage with each unit once, in a model with just enough layers for the stage to keep its place there.
struct SmallLayers {
  ModelSpec model;
  StageRange range;
  std::vector<LayerUnit> units;
  int64_t recompute_layers = 0;  // Scenario::recompute_layers
};
SmallLayers SmallLayersOf(const ModelSpec& model, const StageLayers& stage, bool is_first, bool is_last);

}  // namespace windtunnel::composed
