// What the terminal shows: colours, and the progress of live work.
#pragma once

#include "cli/options.h"
#include "reports/ink.h"
#include "reports/progress.h"
#include "runtime/live.h"

namespace windtunnel {

// Colours when standard output is a terminal that shows them and NO_COLOR is not set.
Ink StandardInk();

bool ShowsProgress(const Options& options);
// Shows live work on `progress`. Both arguments must outlive the result.
LiveOptions LiveOptionsFor(const Options& options, Progress& progress);

}  // namespace windtunnel
