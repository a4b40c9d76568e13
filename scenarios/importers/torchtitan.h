// torchtitan's job configuration (TOML) as a scenario.
#pragma once

#include "base/result.h"
#include "scenarios/importers/draft.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

// Adds what the configuration says to `draft`, which must have the cluster, since a configuration does not
// say it; keys that are there stay. Keys that are not given have torchtitan's defaults
// (torchtitan/config/job_config.py). Older names of keys are known. Errors: InvalidInput for a missing or a
// wrong value, or a model that has no preset.
Status ImportTorchtitan(Settings& config, Draft& draft);

}  // namespace windtunnel
