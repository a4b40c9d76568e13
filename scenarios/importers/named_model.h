// The model of a draft, for what programs derive from its dimensions.
#pragma once

#include <optional>

#include "scenarios/importers/draft.h"
#include "scenarios/model_spec.h"

namespace windtunnel {

// The model that `model.preset` or `model.config` names, with the draft's own layers, hidden and vocab. What
// neither says is 0; nothing if a name or a file is unknown.
std::optional<ModelSpec> NamedModel(const Draft& draft);

}  // namespace windtunnel
