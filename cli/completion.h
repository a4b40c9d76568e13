// Completion of `windtunnel`'s commands, options and files in a shell: a script for bash, zsh or fish. It is
// generated from the table of options that the command line itself is parsed by (DescribeCommands), so it is
// complete.
//
//   source <(windtunnel completion bash)        # in ~/.bashrc; zsh alike, after compinit
//   windtunnel completion fish | source
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"

namespace windtunnel {

// `profiles`: names that may be given instead of a profile's file. Errors: InvalidInput for another shell.
Result<std::string> CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands,
                                     const std::vector<std::string>& profiles);

}  // namespace windtunnel
