// What the tests of Hugging Face's configurations share.
#pragma once

#include <fstream>
#include <string>

#include "scenarios/hugging_face.h"
#include "tests/scenarios/testing.h"

namespace windtunnel {

// Writes a configuration into the test's directory and returns the file's path.
inline std::string Write(const std::string& text) {
  std::string path = testing::TempDir() + "/config.json";
  std::ofstream(path) << text;
  return path;
}

inline std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

inline ModelSpec ModelOf(const std::string& config) {
  Write(config);
  Result<Scenario> scenario =
      ParseScenario("model: {config: config.json}\n", "s.yaml", testing::TempDir(), {});
  if (!scenario) ADD_FAILURE() << scenario.error().message;
  return scenario.value_or(Scenario{}).model;
}

// The preset's model as the loader completes it, without the preset's name.
inline ModelSpec PresetModel(const std::string& name) {
  ModelSpec model = Parsed("model: {preset: " + name + "}\n").model;
  model.preset.clear();
  return model;
}

}  // namespace windtunnel
