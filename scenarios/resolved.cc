#include "base/digest.h"
#include "base/read_file.h"
#include "scenarios/load.h"
#include "scenarios/printer.h"

namespace windtunnel {

YamlNode ResolvedTree(Scenario scenario) {
  YamlNode tree;
  Printer printer(tree);
  Describe(printer, scenario);
  return tree;
}

std::string ResolvedYaml(const Scenario& scenario) { return YamlOf(ResolvedTree(scenario)); }

std::string ScenarioDigest(const Scenario& scenario) {
  Scenario copy = scenario;
  copy.name.clear();
  copy.description.clear();
  copy.model.preset.clear();  // the same dimensions spelled out are the same model
  copy.run.warmup = RunSpec{}.warmup;
  copy.run.steps = RunSpec{}.steps;
  copy.tolerance = ToleranceSpec{};
  std::string text = ResolvedYaml(copy);
  if (const std::string& schedule = scenario.parallel.pipeline.schedule; schedule.ends_with(".csv"))
    if (const auto rows = ReadFile(schedule, "a pipeline schedule")) text += *rows;
  return "sha256:" + Sha256Hex(text);
}

}  // namespace windtunnel
