// Parsing the command line (docs/contract.md, "Command line"). CLI11 stays behind this header.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace windtunnel {

// `arguments` are without the program's name. Errors: InvalidInput for wrong usage; the message says what was
// expected.
Result<Options> ParseCommandLine(const std::vector<std::string>& arguments);

// The commands and options that may be typed, for the completion of shells (cli/completion.h). They come from
// the same tables that ParseCommandLine uses.
struct OptionWords {
  std::vector<std::string> names;  // {"-q", "--quiet"}
  std::string value;               // its value's name in the help ("FILE", "NAME|FILE", "N"); empty: a flag
  std::string description;
};
struct CommandWords {
  std::vector<std::string> path;  // {"profile", "show"}; empty: the program itself
  std::string description;
  std::vector<std::string> subcommands;
  std::vector<OptionWords> options;
  // The name in the help of an argument without an option ("SCENARIO"); empty: there may be none.
  std::string operand;
};
// The program, its commands and their subcommands, without hidden ones.
std::vector<CommandWords> DescribeCommands();

}  // namespace windtunnel
