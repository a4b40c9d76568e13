// Notes on standard error: what of a scenario has no effect, and where costs do not follow it.
#pragma once

#include <string>

#include "cli/costs.h"
#include "cli/options.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Prints a line on standard error, unless quiet.
void Note(const Options& options, const std::string& line);

// Notes the keys that the scenario gives and nothing reads.
void NoteKeysWithoutEffect(const Options& options, const Scenario& scenario);

// Notes the keys that only predictions follow.
void NoteWhatIfs(const Options& options, const Scenario& scenario);

// Notes where the costs do not follow the scenario.
void NoteCosts(const Options& options, const Costs& costs, const Scenario& scenario);

}  // namespace windtunnel
