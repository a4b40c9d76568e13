// A file of another program. The first byte chooses whose. What is imported loads as a scenario
// (ImportScenario checks it), and so again from what it printed.
#include <string>

#include "base/check.h"
#include "scenarios/importers/importer.h"
#include "scenarios/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace windtunnel;
  if (size < 1) return 0;
  ImportRequest request;
  constexpr SourceProgram kPrograms[] = {SourceProgram::kMegatron,    SourceProgram::kDeepSpeed,
                                         SourceProgram::kTorchtitan,  SourceProgram::kMegatron,
                                         SourceProgram::kHuggingFace, SourceProgram::kHuggingFace};
  constexpr const char* kNames[] = {"f.sh", "f.json", "f.toml", "f.yaml", "f.sh", "f.yaml"};
  request.program = kPrograms[data[0] % 6];
  request.source = kNames[data[0] % 6];
  request.text.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  request.sets = {{"cluster.device", "h100-sxm-80g"}, {"cluster.network", "dgx-h100"}};
  if (request.program != SourceProgram::kMegatron) request.sets.push_back({"cluster.nodes", "2"});
  if (request.program != SourceProgram::kMegatron) request.sets.push_back({"cluster.devices_per_node", "8"});
  // A recipe's files are the recipe.
  request.read = [&](const std::string&) -> Result<NamedFile> { return NamedFile{"/a", request.text}; };
  if (request.program == SourceProgram::kDeepSpeed) request.sets.push_back({"model.preset", "llama3-8b"});
  const auto yaml = ImportScenario(request);
  if (!yaml) {
    WT_CHECK(!yaml.error().message.empty());
    return 0;
  }
  WT_CHECK(ParseScenario(*yaml, "again.yaml", "/nonexistent", {}).has_value());
  return 0;
}
