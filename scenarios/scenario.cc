#include "scenarios/scenario.h"

#include <algorithm>

namespace windtunnel {

Scenario::Scenario() = default;
Scenario::Scenario(const Scenario&) = default;
Scenario::Scenario(Scenario&&) noexcept = default;
Scenario& Scenario::operator=(const Scenario&) = default;
Scenario& Scenario::operator=(Scenario&&) noexcept = default;
Scenario::~Scenario() = default;
bool Scenario::operator==(const Scenario&) const = default;

bool Scenario::Recomputes(RecomputeModule module) const {
  if (recompute != Recompute::kSelective) return false;
  if (recompute_modules.empty()) return module == RecomputeModule::kCoreAttention;
  return std::find(recompute_modules.begin(), recompute_modules.end(), module) != recompute_modules.end();
}

bool Scenario::RecomputesLayer(int64_t layer, int64_t first) const {
  if (layer >= model.EncoderLayers()) {
    layer -= model.EncoderLayers();
    first = std::max<int64_t>(first - model.EncoderLayers(), 0);
  }
  const bool is_among_first = recompute_layers == 0 || layer - first < recompute_layers;
  return recompute == Recompute::kFull && is_among_first && (layer + 1) % recompute_every == 0;
}

double Scenario::RecomputedShare() const {
  if (recompute != Recompute::kFull || model.AllLayers() == 0) return 0;
  if (!RecomputesSomeLayers()) return 1;
  const int64_t stages = parallel.pipeline.size * parallel.pipeline.virtual_stages;
  const int64_t of_stage = std::max<int64_t>(model.AllLayers() / std::max<int64_t>(stages, 1), 1);
  int64_t again = 0;
  for (int64_t layer = 0; layer < model.AllLayers(); ++layer)
    again += RecomputesLayer(layer, layer / of_stage * of_stage);
  return static_cast<double>(again) / static_cast<double>(model.AllLayers());
}

}  // namespace windtunnel
