#include <filesystem>

#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "scenarios/importers/importer.h"

namespace windtunnel {
namespace {

// A relative path given to --set counts from this directory, and in the file from the file's.
Result<Override> ReadSet(const std::string& text) {
  WT_ASSIGN_OR_RETURN(Override set, ParseOverride(text));
  if (set.key == "model.config") set.value = std::filesystem::absolute(set.value).lexically_normal().string();
  return set;
}

}  // namespace

Result<int> ImportCommand(const Options& options) {
  WT_RETURN_IF_ERROR(CheckOutputFiles(options));
  ImportRequest request;
  for (const std::string& text : options.sets) {
    WT_ASSIGN_OR_RETURN(Override set, ReadSet(text));
    request.sets.push_back(std::move(set));
  }
  for (const std::string& text : options.defines) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return InvalidInput("--define {}: expected NAME=VALUE", text);
    request.definitions[text.substr(0, equals)] = text.substr(equals + 1);
  }
  if (options.files.empty() == options.launch.empty())
    return InvalidInput("expected either a file or a command behind -- (see `windtunnel import --help`)");
  if (!options.launch.empty()) {
    if (!options.from.empty() && options.from != "megatron")
      return InvalidInput("--from {}: a command can only be Megatron-LM's, expected a file", options.from);
    request.source = "the command";
    request.command = options.launch;
  } else {
    request.source = options.files.front();
    request.program = options.from.empty()          ? ProgramOf(request.source)
                      : options.from == "megatron"  ? SourceProgram::kMegatron
                      : options.from == "deepspeed" ? SourceProgram::kDeepSpeed
                                                    : SourceProgram::kTorchtitan;
    WT_ASSIGN_OR_RETURN(request.text, ReadFile(request.source, "a launch script or a configuration"));
  }
  WT_ASSIGN_OR_RETURN(const std::string yaml, ImportScenario(request));
  WT_RETURN_IF_ERROR(WriteText(options.out.empty() ? "-" : options.out, yaml));
  return 0;
}

}  // namespace windtunnel
