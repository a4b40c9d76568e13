#include "scenarios/load.h"

#include <filesystem>
#include <iterator>
#include <utility>

#include "base/read_file.h"
#include "scenarios/checks.h"
#include "scenarios/defaults.h"
#include "scenarios/hugging_face.h"
#include "scenarios/known_names.h"
#include "scenarios/overrides.h"
#include "scenarios/presets.h"
#include "scenarios/reader.h"
#include "scenarios/words.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

// The names of places' sources: the file and the overrides.
class Sources {
 public:
  Sources(const std::string& name, const std::vector<Override>& overrides)
      : name_(name), overrides_(overrides) {}

  std::string Format(const Place& place) const {
    if (place.source == 0) return At(name_, place);
    return OverrideName(overrides_[static_cast<size_t>(place.source) - 1]);
  }
  tl::unexpected<Error> Report(const Problems& problems) const {
    std::vector<std::string> mistakes;
    for (const Problem& problem : problems.InOrder())
      mistakes.push_back(fmt::format("{}: {}", Format(problem.place), problem.message));
    Error error{ErrorKind::kInvalidInput, std::move(mistakes.front())};
    error.others.assign(std::make_move_iterator(mistakes.begin() + 1),
                        std::make_move_iterator(mistakes.end()));
    return tl::unexpected(std::move(error));
  }

 private:
  const std::string& name_;
  const std::vector<Override>& overrides_;
};

// The model that the scenario's single keys override: a preset's, a configuration's, or the defaults. A wrong
// preset is left to the reader, which reports it.
Result<ModelSpec> BaseModel(const YamlNode& root, const std::string& directory, const Sources& sources) {
  const YamlNode* preset = root.FindPath("model.preset");
  const YamlNode* config = root.FindPath("model.config");
  if (preset != nullptr && config != nullptr) {
    return InvalidInput("{}: model.config beside model.preset, expected one of them",
                        sources.Format(config->place));
  }
  if (preset != nullptr) {
    for (const std::string& name : ModelPresetNames()) {
      if (preset->is_scalar() && preset->text == name) return ModelPreset(name);
    }
  }
  if (config == nullptr) return ModelSpec{};
  Reading<std::string> path = ReadText(*config);
  if (!path || path->empty()) {
    return InvalidInput("{}: model.config is {}, expected the path of a config.json",
                        sources.Format(config->place), Found(*config));
  }
  const YamlNode* seq_len = root.FindPath("model.seq_len");
  const Reading<int64_t> tokens = seq_len != nullptr ? ReadInteger(*seq_len) : tl::unexpected(std::string());
  Result<ModelSpec> model = ReadHuggingFaceConfig(ResolvedPath(*path, directory, config->place),
                                                  tokens ? std::optional<int64_t>(*tokens) : std::nullopt);
  if (model) return model;
  return tl::unexpected(
      Error{model.error().kind,
            fmt::format("{}: model.config: {}", sources.Format(config->place), model.error().message)});
}

// The framework whose programs stand in for those of a framework profile. Its word is the profile's `base`,
// or the beginning of it ("pytorch_fsdp1").
Result<Framework> BaseOfProfile(const std::string& path) {
  WT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, "a framework profile"));
  WT_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, path));  // JSON is YAML
  if (!root.is_block())
    return InvalidInput("{}: the file is {}, expected a framework profile", At(path, root.place),
                        Found(root));
  const YamlNode* base = root.Find("base");
  if (base == nullptr) return Framework::kWindtunnel;
  std::optional<Framework> found;
  size_t length = 0;
  for (const auto& [word, framework] : Words<Framework>::table) {
    const bool is_it = base->text == word || base->text.starts_with(std::string(word) + "_");
    if (!base->is_scalar() || !is_it || word.size() < length) continue;
    found = framework;
    length = word.size();
  }
  if (found) return *found;
  return InvalidInput("{}: base is {}, expected the name of a known framework", At(path, base->place),
                      Found(*base));
}

// Sets `framework` of a scenario whose `framework` is a file.
Status CompleteFramework(const YamlNode& root, const Sources& sources, Scenario& scenario) {
  if (scenario.framework_file.empty()) return Ok();
  const auto base = BaseOfProfile(scenario.framework_file);
  if (!base)
    return InvalidInput("{}: framework: {}", sources.Format(root.FindPath("framework")->place),
                        base.error().message);
  scenario.framework = *base;
  return Ok();
}

Result<YamlNode> ReadTree(const std::string& text, const std::string& name,
                          const std::vector<Override>& overrides) {
  WT_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(text, name));
  if (root.is_null()) return InvalidInput("{}: the file is empty, expected a scenario", At(name, Place{}));
  if (!root.is_block()) {
    return InvalidInput("{}: the file is {}, expected a block of \"key: value\" lines", At(name, root.place),
                        Found(root));
  }
  WT_RETURN_IF_ERROR(ApplyOverrides(root, overrides));
  return root;
}

}  // namespace

Result<Scenario> ParseScenario(const std::string& text, const std::string& name, const std::string& directory,
                               const std::vector<Override>& overrides) {
  WT_ASSIGN_OR_RETURN(YamlNode root, ReadTree(text, name, overrides));
  Sources sources(name, overrides);
  Scenario scenario;
  Problems problems;
  WT_ASSIGN_OR_RETURN(scenario.model, BaseModel(root, directory, sources));
  if (const YamlNode* config = root.FindPath("model.config"); config != nullptr && config->is_scalar())
    scenario.model_config.path = ResolvedPath(config->text, directory, config->place);
  Reader(root, "", directory, problems).Read(scenario);
  if (!problems.empty()) return sources.Report(problems);
  // A profile file of the user's, relative to the scenario. Other devices are names.
  std::string& device = scenario.cluster.device;
  if (NamesProfileFile(device))
    device = ResolvedPath(device, directory, root.FindPath("cluster.device")->place);
  WT_RETURN_IF_ERROR(CompleteFramework(root, sources, scenario));
  CompleteDefaults(root, name, scenario);
  CheckScenario(scenario, root, problems);
  if (!problems.empty()) return sources.Report(problems);
  return scenario;
}

Result<Scenario> ParseScenarioFor(const std::string& device, const std::string& text, const std::string& name,
                                  const std::string& directory, std::vector<Override> overrides) {
  WT_ASSIGN_OR_RETURN(Scenario scenario, ParseScenario(text, name, directory, overrides));
  if (device.empty() || scenario.cluster.device != "cpu") return scenario;
  overrides.push_back({"cluster.device", device});
  // A link between processes of one machine does not apply to that device.
  if (scenario.cluster.network.intra_node.kind == "loopback")
    overrides.push_back({"cluster.network.intra_node", "null"});
  return ParseScenario(text, name, directory, overrides);
}

Result<Scenario> LoadScenario(const std::string& path, const std::vector<Override>& overrides,
                              const std::string& device) {
  WT_ASSIGN_OR_RETURN(std::string text, ReadFile(path, "a scenario file"));
  std::string directory = std::filesystem::path(path).parent_path().string();
  WT_ASSIGN_OR_RETURN(Scenario scenario, ParseScenarioFor(device, text, path, directory, overrides));
  scenario.source_file = path;
  return scenario;
}

}  // namespace windtunnel
