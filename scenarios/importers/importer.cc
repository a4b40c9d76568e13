#include "scenarios/importers/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "scenarios/importers/configuration.h"
#include "scenarios/importers/deepspeed.h"
#include "scenarios/importers/draft.h"
#include "scenarios/importers/huggingface.h"
#include "scenarios/importers/launch_command.h"
#include "scenarios/importers/megatron.h"
#include "scenarios/importers/settings.h"
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
    case SourceProgram::kHuggingFace:
      return "Hugging Face";
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
  LaunchCommand command{"", "", Settings(source), {}};
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

// Files that people may take for another program's.
Status RefuseOtherFiles(const Settings& settings) {
  const std::vector<Setting> all = settings.All();
  const bool is_scenario = std::any_of(all.begin(), all.end(), [](const Setting& setting) {
    return setting.name.starts_with("cluster.") || setting.name.starts_with("parallel.");
  });
  if (is_scenario)
    return InvalidInput("{}: this is a scenario already, expected what another program is told to train",
                        settings.source());
  if (settings.Holds("num_hidden_layers") || settings.Holds("n_layer"))
    return InvalidInput(
        "{}: this is the configuration of a model, which --set model.config=FILE takes; expected what "
        "says how it is trained",
        settings.source());
  for (const char* nemos :
       {"model.mcore_gpt", "model.tensor_model_parallel_size", "model.pipeline_model_parallel_size"})
    if (settings.Holds(nemos))
      return InvalidInput(
          "{}: {} is NeMo's, whose configurations are not read, expected a launch script with flags of "
          "Megatron-LM (--tensor-model-parallel-size …)",
          settings.source(), nemos);
  return Ok();
}

// Commands without any of Megatron's flags. Variables may stand for them.
Status RefuseOtherCommands(const LaunchCommand& command) {
  const Settings& settings = command.settings;
  const std::string source = settings.source();
  const auto holds = [&](const char* name) { return settings.Holds(name); };
  constexpr const char* kMegatrons[] = {
      "num_layers",       "hidden_size",      "num_attention_heads",
      "seq_length",       "micro_batch_size", "global_batch_size",
      "use_mcore_models", "train_iters",      "tensor_model_parallel_size",
      "yaml_cfg",         "deepspeed_config", "pipeline_model_parallel_size"};
  if (const Setting* job = settings.Peek("job.config_file"))
    return InvalidInput("{}: {} is torchtitan's, expected its TOML file{}", source, job->shown,
                        job->values.size() == 1 ? ", " + WithUnknownShown(job->values[0]) : "");
  if (std::any_of(std::begin(kMegatrons), std::end(kMegatrons), holds) || !command.left_out.empty() ||
      command.program.starts_with("pretrain_"))
    return Ok();
  return InvalidInput(
      "{}: {}has neither flags of Megatron-LM (--num-layers …) nor of Hugging Face's Trainer "
      "(--model_name_or_path …), expected a command of one of these; --from PROGRAM says that it is",
      source, command.program.empty() ? "" : command.program + " ");
}

Result<NamedFile> ReadsNothing(const std::string& path) { return InvalidInput("{}: cannot be read", path); }

class Import {
 public:
  Import(const ImportRequest& request, Draft& draft)
      : request_(request), draft_(draft), read_(request.read ? request.read : ReadsNothing) {}

  // The program whose settings they were.
  Result<SourceProgram> Run() {
    const auto ends = [&](std::string_view end) { return request_.source.ends_with(end); };
    if (!request_.command.empty()) return OfCommand(ReadLaunchCommand(request_.command, request_.source));
    if (Is(SourceProgram::kTorchtitan) || (!request_.program && ends(".toml"))) {
      WT_ASSIGN_OR_RETURN(Settings settings, ReadTomlSettings(request_.text, request_.source));
      WT_RETURN_IF_ERROR(ImportTorchtitan(settings, draft_));
      return SourceProgram::kTorchtitan;
    }
    if (Is(SourceProgram::kDeepSpeed) || ends(".json") || ends(".yaml") || ends(".yml"))
      return OfKeys(ends(".json"));
    return OfCommand(FindLaunchCommand(request_.text, request_.source, request_.definitions));
  }

 private:
  bool Is(SourceProgram program) const { return request_.program == program; }

  // JSON or YAML.
  Result<SourceProgram> OfKeys(bool is_json) {
    WT_ASSIGN_OR_RETURN(Settings settings, ReadJsonSettings(request_.text, request_.source));
    if (!request_.program) WT_RETURN_IF_ERROR(RefuseOtherFiles(settings));
    if (Is(SourceProgram::kHuggingFace) || (!request_.program && IsHuggingFace(settings))) {
      WT_RETURN_IF_ERROR(ImportHuggingFace(settings, "", read_, draft_));
      return SourceProgram::kHuggingFace;
    }
    if (Is(SourceProgram::kDeepSpeed) || (!request_.program && is_json)) {
      WT_RETURN_IF_ERROR(ImportDeepSpeed(settings, draft_));
      return SourceProgram::kDeepSpeed;
    }
    return OfCommand(ReadModelArguments(request_.text, request_.source, request_.definitions));
  }

  Result<SourceProgram> OfCommand(Result<LaunchCommand> command) {
    if (!command) return tl::unexpected(command.error());
    const bool has_recipe = !command->file.empty() && !command->settings.Holds("num_layers");
    if (has_recipe) command->settings.Add({"config", command->file, {command->file}});
    const bool is_hugging_face = has_recipe || IsHuggingFace(command->settings);
    if (Is(SourceProgram::kHuggingFace) || (!request_.program && is_hugging_face)) {
      WT_RETURN_IF_ERROR(ImportHuggingFace(command->settings, command->program, read_, draft_));
      for (const std::string& left_out : command->left_out)
        draft_.Note(fmt::format("Left out, since it is not known here: {}.", WithUnknownShown(left_out)));
      return SourceProgram::kHuggingFace;
    }
    if (!request_.program) WT_RETURN_IF_ERROR(RefuseOtherCommands(*command));
    WT_RETURN_IF_ERROR(ImportMegatron(*command, draft_));
    return SourceProgram::kMegatron;
  }

  const ImportRequest& request_;
  Draft& draft_;
  ReadNamedFile read_;
};

}  // namespace

Result<std::string> ImportScenario(const ImportRequest& request) {
  Draft draft;
  for (const Override& set : request.sets) draft.Set(set.key, std::string_view(set.value), "--set");
  draft.Set("name", std::string_view(ScenarioName(request.source)));
  WT_ASSIGN_OR_RETURN(const SourceProgram program, Import(request, draft).Run());
  draft.NoteFirst(
      fmt::format("Imported from {} ({}) by `windtunnel import`.", request.source, NameOf(program)));
  const std::string yaml = draft.Yaml();
  const auto scenario = ParseScenario(yaml, "the scenario of " + request.source, ".", {});
  if (!scenario) return tl::unexpected(scenario.error());
  return yaml;
}

}  // namespace windtunnel
