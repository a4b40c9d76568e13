// Settings from the command that launches a training: the flags of torchrun and those of the training script.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenarios/importers/settings.h"
#include "scenarios/importers/shell_script.h"

namespace windtunnel {

// The program that trains, "pretrain_gpt.py" or "trl sft", and its settings, those of launchers among them.
// Names are in lower case with underscores: "tensor_model_parallel_size", "nproc_per_node". The launchers'
// "mpirun_np", "mpirun_hosts" and "deepspeed_include" are not the program's --np, --host and --include.
struct LaunchCommand {
  std::string program;
  std::string
      file;  // the first word behind the program that names a configuration ("recipe.yaml"); else empty
  Settings settings;
  std::vector<std::string>
      left_out;  // flags under conditions that are not known, and variables that stand for flags
};

// `words` are a command after expansion by a shell. Errors: InvalidInput if it has no flags.
Result<LaunchCommand> ReadLaunchCommand(const ShellCommand& words, const std::string& source);

// The command of a script (ReadShellScript) that has the most flags, with the options of sbatch. Errors:
// InvalidInput if no command has any.
Result<LaunchCommand> FindLaunchCommand(const std::string& script, const std::string& source,
                                        const std::map<std::string, std::string>& definitions);

}  // namespace windtunnel
