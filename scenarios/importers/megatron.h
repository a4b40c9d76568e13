// Megatron-LM's flags as a scenario.
#pragma once

#include "base/result.h"
#include "scenarios/importers/draft.h"
#include "scenarios/importers/launch_command.h"

namespace windtunnel {

// Adds what the flags say to `draft`, which may already have keys, such as the cluster; these stay. Flags
// that are not given have Megatron-Core's defaults (megatron/training/arguments.py). Errors: InvalidInput for
// a missing or a wrong value, Unsupported for models and flags that scenarios cannot express.
Status ImportMegatron(LaunchCommand& command, Draft& draft);

}  // namespace windtunnel
