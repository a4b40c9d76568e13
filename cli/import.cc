#include <filesystem>
#include <string>
#include <utility>

#include "base/read_file.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "plan/balance.h"
#include "plan/outline.h"
#include "scenarios/importers/importer.h"
#include "scenarios/known_names.h"
#include "scenarios/load.h"
#include "scenarios/overrides.h"

namespace windtunnel {
namespace {

// Whether the loader takes the value for a file's path, not for a word.
bool NamesFile(const Override& set) {
  const std::string& value = set.value;
  if (set.key == "cluster.device") return NamesProfileFile(value);
  if (set.key == "framework") return value.ends_with(".json");
  if (set.key == "parallel.pipeline.schedule") return value.ends_with(".csv");
  if (set.key == "data") return value != "synthetic";
  return set.key == "model.config";
}

// A relative path given to --set counts from this directory, and in the file from the file's.
Result<Override> ReadSet(const std::string& text) {
  WT_ASSIGN_OR_RETURN(Override set, ParseOverride(text));
  if (NamesFile(set)) set.value = std::filesystem::absolute(set.value).lexically_normal().string();
  return set;
}

// What `predict` refuses of a scenario that the loader accepts, but for its size: splits with a remainder,
// and a schedule that does not run with so many micro-batches.
Status CheckPlan(const std::string& yaml, const std::string& source) {
  const std::string name = "the scenario of " + source;
  WT_ASSIGN_OR_RETURN(const Scenario scenario, ParseScenario(yaml, name, ".", {}));
  Status status = CheckSupported(scenario);
  if (status && scenario.parallel.pipeline.size > 1) {
    const auto schedule = ScheduleOf(scenario);
    if (!schedule) status = tl::unexpected(schedule.error());
  }
  if (status) return status;
  Error error = status.error();
  error.message = name + ": " + error.message;
  return tl::unexpected(std::move(error));
}

// A file that a launch script names: from the current directory, as the script's commands see it, else beside
// the script.
Result<NamedFile> ReadNamed(const std::string& path, const std::filesystem::path& folder) {
  constexpr char kWhat[] = "a file that exists";
  std::error_code ignored;
  const std::filesystem::path beside = folder / path;
  const bool is_beside = !std::filesystem::exists(path, ignored) && std::filesystem::exists(beside, ignored);
  const std::string found = is_beside ? beside.string() : path;
  WT_ASSIGN_OR_RETURN(std::string text, ReadFile(found, kWhat));
  return NamedFile{std::filesystem::absolute(found, ignored).lexically_normal().string(), std::move(text)};
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
  if (options.from == "megatron") request.program = SourceProgram::kMegatron;
  if (options.from == "deepspeed") request.program = SourceProgram::kDeepSpeed;
  if (options.from == "torchtitan") request.program = SourceProgram::kTorchtitan;
  if (options.from == "huggingface") request.program = SourceProgram::kHuggingFace;
  if (!options.launch.empty()) {
    if (options.from == "deepspeed" || options.from == "torchtitan")
      return InvalidInput("--from {}: a command can only be Megatron-LM's or Hugging Face's, expected a file",
                          options.from);
    request.source = "the command";
    request.command = options.launch;
  } else {
    request.source = options.files.front();
    WT_ASSIGN_OR_RETURN(request.text, ReadFile(request.source, "a launch script or a configuration"));
  }
  request.read = [folder = std::filesystem::path(options.files.empty() ? "." : request.source).parent_path()](
                     const std::string& path) { return ReadNamed(path, folder); };
  WT_ASSIGN_OR_RETURN(const std::string yaml, ImportScenario(request));
  WT_RETURN_IF_ERROR(CheckPlan(yaml, request.source));
  WT_RETURN_IF_ERROR(WriteText(options.out.empty() ? "-" : options.out, yaml));
  return 0;
}

}  // namespace windtunnel
