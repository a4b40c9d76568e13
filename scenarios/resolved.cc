#include "base/digest.h"
#include "scenarios/load.h"
#include "scenarios/printer.h"

namespace windtunnel {

std::string ResolvedYaml(const Scenario& scenario) {
  std::string yaml;
  Scenario copy = scenario;  // describe.h's members are not const: the reader fills them in
  Printer printer(yaml, 0);
  Describe(printer, copy);
  return yaml;
}

std::string ScenarioDigest(const Scenario& scenario) {
  Scenario copy = scenario;
  copy.name.clear();
  copy.description.clear();
  copy.model.preset.clear();  // the same dimensions spelled out are the same model
  copy.run.warmup = RunSpec{}.warmup;
  copy.run.steps = RunSpec{}.steps;
  copy.tolerance = ToleranceSpec{};
  return "sha256:" + Sha256Hex(ResolvedYaml(copy));
}

}  // namespace windtunnel
