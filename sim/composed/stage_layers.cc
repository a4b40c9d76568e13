#include "sim/composed/stage_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace windtunnel::composed {
namespace {

// If a unit occurs more often in a row than this, the additional ones are like the middle one of kKept: its
// neighbours are the same unit.
constexpr int64_t kKept = 3;

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();  // of first_dense: no layer has experts

// One kind of layer throughout.
bool IsAlike(const ModelSpec& model, const StageLayers& stage) {
  if (model.HasAlikeLayers()) return true;
  if (model.MixesWindows()) return false;
  return stage.dense == stage.layers || (stage.dense == 0 && model.LayerPeriod() == 1);
}

// Adds units of `layers` layers that repeat with `period`.
void AddUnits(int64_t layers, int64_t period, std::vector<LayerUnit>& units) {
  const int64_t whole = layers / period;
  for (int64_t i = 0; i < std::min(whole, kKept); ++i) units.push_back({period, 1});
  if (whole > kKept) units[units.size() - 2].count = whole - kKept + 1;
  for (int64_t i = 0; i < layers % period; ++i) units.push_back({1, 1});
}

// The number of layers of a small stage that stand for `layers` layers.
int64_t Kept(int64_t layers, int64_t period) {
  return std::min(layers / period, kKept) * period + layers % period;
}

// In the order of the stage: the first layer, the other ones that are recomputed, the first one that is not
// (which frees what the layer before it does not keep), and those after it.
constexpr int64_t kUnitsOfRecomputed = 4;

// The model with one kind of layer throughout.
ModelSpec WithLayersOfKind(ModelSpec model, bool have_experts, bool have_windows) {
  if (model.experts) {
    model.experts->every = 1;
    model.experts->first_dense = have_experts ? 0 : kNone;
  }
  if (model.HasWindows()) model.sliding_window->full_every = have_windows ? 0 : 1;
  return model;
}

}  // namespace

StageLayers StageLayersOf(const Scenario& scenario, int64_t first, int64_t layers) {
  const ModelSpec& model = scenario.model;
  StageLayers stage{.layers = layers};
  const bool recomputes_first = scenario.recompute == Recompute::kFull && scenario.recompute_layers < layers;
  if (recomputes_first) stage.recomputed = scenario.recompute_layers;
  if (model.HasAlikeLayers()) return stage;
  if (model.MixesExperts()) stage.dense = std::clamp<int64_t>(model.experts->first_dense - first, 0, layers);
  if (!IsAlike(model, stage)) stage.phase = (first + stage.dense) % model.LayerPeriod();
  return stage;
}

std::vector<LayerUnit> UnitsOf(const ModelSpec& model, const StageLayers& stage) {
  if (stage.layers == 0) return {};
  if (stage.recomputed > 0)
    return {{1, 1}, {1, stage.recomputed - 1}, {1, 1}, {1, stage.layers - stage.recomputed - 1}};
  if (IsAlike(model, stage)) return {{1, 1}, {1, stage.layers - 1}};
  std::vector<LayerUnit> units;
  AddUnits(stage.dense, model.LayerPeriod(), units);
  AddUnits(stage.layers - stage.dense, model.LayerPeriod(), units);
  return units;
}

std::string UnitsKey(const ModelSpec& model, const StageLayers& stage) {
  if (stage.layers == 0) return "none";
  if (stage.recomputed > 0) return "recomputed";
  if (model.HasAlikeLayers()) return "";
  if (IsAlike(model, stage)) return stage.dense > 0 ? "dense" : "experts";
  const int64_t period = model.LayerPeriod();
  return fmt::format("{}+{}@{}", Kept(stage.dense, period), Kept(stage.layers - stage.dense, period),
                     stage.phase);
}

SmallLayers SmallLayersOf(const ModelSpec& model, const StageLayers& stage, bool is_first, bool is_last) {
  SmallLayers small{model, {0, 0, is_first, is_last}, UnitsOf(model, stage)};
  StageRange& range = small.range;
  const int64_t period = model.LayerPeriod();
  if (stage.layers == 0) {
    // Modules that predict further tokens are like the model's last layer.
    const int64_t last = model.layers - 1;
    range.first = range.end = is_first ? 0 : 2;
    small.model = WithLayersOfKind(model, model.HasExperts(last), model.WindowOf(last) > 0);
  } else if (IsAlike(model, stage)) {
    range.first = is_first ? 0 : 2;
    range.end = range.first + (stage.recomputed > 0 ? kUnitsOfRecomputed : 2);
    small.recompute_layers = stage.recomputed > 0 ? kUnitsOfRecomputed / 2 : 0;
    const bool has_experts = model.HasAlikeLayers() ? model.LayersWithExperts() > 0 : stage.dense == 0;
    small.model = WithLayersOfKind(model, has_experts, model.WindowOf(0) > 0);
  } else {
    const int64_t dense = Kept(stage.dense, period), others = Kept(stage.layers - stage.dense, period);
    // The first of the others keeps its position in the period.
    int64_t first = (stage.phase - stage.dense) % period;
    if (first < 0) first += period;
    if (!is_first && first == 0) first = period;
    range.first = first;
    range.end = first + dense + others;
    if (small.model.experts && model.LayersWithExperts() > 0)
      small.model.experts->first_dense = dense > 0 ? first + dense : 0;
    else if (small.model.experts) small.model.experts->first_dense = kNone;
  }
  small.model.layers = range.end + (is_last ? 0 : 2);
  return small;
}

}  // namespace windtunnel::composed
