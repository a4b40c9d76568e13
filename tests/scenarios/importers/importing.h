// Helpers of the importers' tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scenarios/importers/importer.h"
#include "scenarios/load.h"

namespace windtunnel {

// `text` is a file of that name. `sets` are "KEY=VALUE".
inline Result<std::string> Import(const std::string& name, const std::string& text,
                                  const std::vector<std::string>& sets) {
  ImportRequest request;
  request.source = name;
  request.text = text;
  for (const std::string& set : sets) request.sets.push_back(ParseOverride(set).value());
  return ImportScenario(request);
}

// The remark behind the first line of the scenario that begins with "KEY:" or "KEY: VALUE"; empty if there is
// none.
inline std::string RemarkOf(const std::string& line, const std::string& yaml) {
  const size_t at = yaml.find(" " + line);
  const std::string found = at == std::string::npos ? "" : yaml.substr(at, yaml.find('\n', at) - at);
  const size_t mark = found.find("  # ");
  return mark == std::string::npos ? "" : found.substr(mark + 4);
}

// The scenario; fails the test if there is an error.
inline Scenario Imported(const std::string& name, const std::string& text,
                         const std::vector<std::string>& sets) {
  const Result<std::string> yaml = Import(name, text, sets);
  if (!yaml) {
    ADD_FAILURE() << yaml.error().message;
    return {};
  }
  return ParseScenario(*yaml, "s.yaml", "/somewhere", {}).value();
}

// All mistakes, one per line.
inline std::string MistakesOf(const std::string& name, const std::string& text,
                              const std::vector<std::string>& sets) {
  const Result<std::string> yaml = Import(name, text, sets);
  if (yaml) return "(no error)";
  std::string lines = yaml.error().message;
  for (const std::string& other : yaml.error().others) lines += "\n" + other;
  return lines;
}

}  // namespace windtunnel
