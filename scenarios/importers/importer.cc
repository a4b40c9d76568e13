#include "scenarios/importers/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "scenarios/importers/configuration.h"
#include "scenarios/importers/deepspeed.h"
#include "scenarios/importers/draft.h"
#include "scenarios/importers/launch_command.h"
#include "scenarios/importers/megatron.h"
#include "scenarios/importers/torchtitan.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

constexpr std::string_view NameOf(SourceProgram program) {
  switch (program) {
    case SourceProgram::kMegatron:
      return "Megatron-LM";
    case SourceProgram::kDeepSpeed:
      return "DeepSpeed";
    case SourceProgram::kTorchtitan:
      return "torchtitan";
  }
  return "";
}

// The file's name without folder and ending, as a scenario's name: letters, digits, "_", "-" and ".".
std::string ScenarioName(const std::string& source) {
  std::string name = source.substr(source.find_last_of('/') + 1);
  if (const size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0) name.resize(dot);
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '-' && c != '.'; }, '_');
  return name.empty() ? "imported" : name;
}

// The flags of Megatron's functional tests: "MODEL_ARGS: {--num-layers: 12, --bf16: true}".
Result<LaunchCommand> ReadModelArguments(const std::string& text, const std::string& source,
                                         const std::map<std::string, std::string>& definitions) {
  WT_ASSIGN_OR_RETURN(Settings all, ReadJsonSettings(text, source));
  LaunchCommand command{"", Settings(source), {}};
  for (const Setting* setting : all.Unread()) {
    constexpr std::string_view kBlock = "MODEL_ARGS.--";
    if (!setting->name.starts_with(kBlock)) continue;
    std::string name = setting->name.substr(kBlock.size());
    std::replace(name.begin(), name.end(), '-', '_');
    if (setting->values == std::vector<std::string>{"false"}) continue;  // a flag that is not passed
    std::vector<std::string> values;                                     // a list may be written as one text
    for (const std::string& value : setting->values)
      for (const std::string& word : SplitWords(ExpandShellText(value, definitions))) values.push_back(word);
    if (values == std::vector<std::string>{"true"}) values.clear();
    command.settings.Add({name, setting->name.substr(kBlock.size() - 2), values});
  }
  if (command.settings.empty())
    return InvalidInput("{}: has no MODEL_ARGS, expected a launch script or these", source);
  return command;
}

Status ImportInto(const ImportRequest& request, Draft& draft) {
  const std::string& source = request.source;
  if (request.program == SourceProgram::kDeepSpeed) {
    WT_ASSIGN_OR_RETURN(Settings settings, ReadJsonSettings(request.text, source));
    return ImportDeepSpeed(settings, draft);
  }
  if (request.program == SourceProgram::kTorchtitan) {
    WT_ASSIGN_OR_RETURN(Settings settings, ReadTomlSettings(request.text, source));
    return ImportTorchtitan(settings, draft);
  }
  const bool is_yaml = source.ends_with(".yaml") || source.ends_with(".yml");
  auto command = !request.command.empty() ? ReadLaunchCommand(request.command, source)
                 : is_yaml                ? ReadModelArguments(request.text, source, request.definitions)
                                          : FindLaunchCommand(request.text, source, request.definitions);
  if (!command) return tl::unexpected(command.error());
  return ImportMegatron(*command, draft);
}

}  // namespace

SourceProgram ProgramOf(const std::string& path) {
  if (path.ends_with(".toml")) return SourceProgram::kTorchtitan;
  if (path.ends_with(".json")) return SourceProgram::kDeepSpeed;
  return SourceProgram::kMegatron;
}

Result<std::string> ImportScenario(const ImportRequest& request) {
  Draft draft;
  draft.Note(
      fmt::format("Imported from {} ({}) by `windtunnel import`.", request.source, NameOf(request.program)));
  for (const Override& set : request.sets) draft.Set(set.key, std::string_view(set.value), "--set");
  draft.Set("name", std::string_view(ScenarioName(request.source)));
  WT_RETURN_IF_ERROR(ImportInto(request, draft));
  const std::string yaml = draft.Yaml();
  const auto scenario = ParseScenario(yaml, "the scenario of " + request.source, ".", {});
  if (!scenario) return tl::unexpected(scenario.error());
  return yaml;
}

}  // namespace windtunnel
