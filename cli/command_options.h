// The commands and their options, as CLI11 parses them and `--help` shows them.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace windtunnel {

// Adds all commands to `app`; parsing fills in `options`, which must outlive it.
void AddCommands(CLI::App& app, Options& options);

}  // namespace windtunnel
