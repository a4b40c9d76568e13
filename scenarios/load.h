// Reading scenario files. The reader is strict: an unknown key, a duplicate key, a value of the wrong type or
// out of range, or a world size that does not match the cluster is an error "FILE:LINE:COLUMN: what is wrong,
// what was expected", and an unknown key names the nearest known one.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "scenarios/overrides.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Reads `path`, applies the overrides in order, expands presets and checks the whole. If `device` is not
// empty, a scenario of this machine (cluster.device: cpu) is read as one of `device` instead, with that
// device's defaults. The file is read once, so it may be a pipe. Errors: InvalidInput with the place, further
// mistakes in Error::others. The place of an override is "--set KEY=VALUE".
Result<Scenario> LoadScenario(const std::string& path, const std::vector<Override>& overrides,
                              const std::string& device = "");

// The same for text (YAML or JSON); `name` stands for the file in messages, and relative paths in it are
// resolved against `directory`, those in overrides against the current directory.
Result<Scenario> ParseScenario(const std::string& text, const std::string& name, const std::string& directory,
                               const std::vector<Override>& overrides);

// Likewise, but a scenario of this machine is read as one of `device`, as in LoadScenario.
Result<Scenario> ParseScenarioFor(const std::string& device, const std::string& text, const std::string& name,
                                  const std::string& directory, std::vector<Override> overrides);

// Every key with its value, defaults included, in a fixed order: what `explain --resolved` prints.
// ParseScenario of it gives the same scenario.
std::string ResolvedYaml(const Scenario& scenario);
// The same before it is text. (The members that describe.h visits are not const: the reader fills them in.)
YamlNode ResolvedTree(Scenario scenario);

// "sha256:…" of the resolved scenario without its name, description, preset name, run counts and tolerance,
// but with the rows of a schedule file.
std::string ScenarioDigest(const Scenario& scenario);

}  // namespace windtunnel
