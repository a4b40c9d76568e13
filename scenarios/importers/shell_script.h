// Reads a launch script (sh, bash) without running it: variables and arrays are expanded, tests of known
// values are decided, and what remains is the commands with their words.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scenarios/importers/settings.h"

namespace windtunnel {

// A command's words after expansion. What the script does not say is in them as the name of the variable
// between kUnknown and kUnknownEnd (settings.h): variables that are not assigned, arguments ($1), the output
// of commands, and variables whose values depend on tests that cannot be decided.
using ShellCommand = std::vector<std::string>;

struct ShellScript {
  std::vector<ShellCommand> commands;  // those that would run, in their order
  // What would be added to variables' values under conditions that are not known, and is left out:
  // "--profile".
  std::vector<std::string> conditional;
  std::vector<Setting> slurm_options;  // of its lines "#SBATCH …" (slurm_options.h)
};

// `definitions` come first: what the script assigns to these names is ignored. Functions count as called once
// where they are defined, bodies of loops as executed once, under a condition that is not known, and those of
// loops over one value as parts of the script.
ShellScript ReadShellScript(const std::string& text, const std::map<std::string, std::string>& definitions);

// `text` with its ${NAME} and $NAME replaced, as between double quotes.
std::string ExpandShellText(const std::string& text, const std::map<std::string, std::string>& definitions);

// `text` between spaces and line ends, without regard to quotes.
std::vector<std::string> SplitWords(const std::string& text);

}  // namespace windtunnel
