// Parsing the command line (docs/contract.md, "Command line"). The only file that knows CLI11.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace windtunnel {

// `arguments` without the program's name. InvalidInput for wrong usage: the message says what was expected.
Result<Options> ParseCommandLine(const std::vector<std::string>& arguments);

// What may be typed, read out of the same tables that ParseCommandLine works by: for the completion of shells (cli/completion.h).
struct OptionWords {
  std::vector<std::string> names;  // {"-q", "--quiet"}
  std::string value;               // what the help calls its value ("FILE", "NAME|FILE", "N"); empty: a flag
  std::string description;
};
struct CommandWords {
  std::vector<std::string> path;  // {"profile", "show"}; empty: the program itself
  std::string description;
  std::vector<std::string> subcommands;
  std::vector<OptionWords> options;
  std::string operand;  // what the help calls what stands without an option ("SCENARIO"); empty: nothing may
};
// The program, its commands, and theirs; hidden ones are left out.
std::vector<CommandWords> DescribeCommands();

}  // namespace windtunnel
