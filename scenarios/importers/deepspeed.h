// DeepSpeed's ds_config.json as a scenario.
#pragma once

#include "base/result.h"
#include "scenarios/importers/draft.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

// Adds what the configuration says to `draft`, which must have a model and the cluster, since a
// ds_config.json does not say them; keys that are there stay. Keys that are not given have DeepSpeed's
// defaults. "auto", which Hugging Face's trainer fills in, counts as missing. Errors: InvalidInput for a
// missing or a wrong value.
Status ImportDeepSpeed(Settings& config, Draft& draft);

}  // namespace windtunnel
