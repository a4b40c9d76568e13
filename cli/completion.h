// What lets a shell complete `windtunnel`'s commands, options and files: a script for bash, zsh or fish, made from the table of options that
// the command line itself parses by (DescribeCommands), so that it knows them all.
//
//   source <(windtunnel completion bash)        # in ~/.bashrc; zsh alike, after compinit
//   windtunnel completion fish | source
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"

namespace windtunnel {

// `profiles` are names that may stand for a profile's file. InvalidInput for another shell.
Result<std::string> CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands,
                                     const std::vector<std::string>& profiles);

}  // namespace windtunnel
