// Helpers of the tests of scenarios/: parse text named "s.yaml" and return the scenario or the errors.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scenarios/load.h"

namespace windtunnel {

// A complete model in one line, so that a test's own text starts in line 2.
inline constexpr char kMlp[] = "model: {preset: mlp-10-100-10}\n";
// A model that tensor ranks can split.
inline constexpr char kGpt[] = "model: {preset: gpt2-124m, vocab: 50304}\n";

inline Result<Scenario> Parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  std::vector<Override> overrides;
  for (const std::string& set : sets) {
    Result<Override> item = ParseOverride(set);
    if (!item) return tl::unexpected(item.error());
    overrides.push_back(*item);
  }
  return ParseScenario(text, "s.yaml", "/somewhere", overrides);
}

// The scenario; fails the test if there is an error.
inline Scenario Parsed(const std::string& text, const std::vector<std::string>& sets = {}) {
  Result<Scenario> scenario = Parse(text, sets);
  if (!scenario) ADD_FAILURE() << scenario.error().message << "\nin\n" << text;
  return scenario.value_or(Scenario{});
}

// The error's message; expects that the error is InvalidInput.
inline std::string MessageOf(const std::string& text, const std::vector<std::string>& sets = {}) {
  Result<Scenario> scenario = Parse(text, sets);
  if (scenario) return "(no error)";
  EXPECT_EQ(scenario.error().kind, ErrorKind::kInvalidInput);
  return scenario.error().message;
}

// All errors, one per line.
inline std::string MistakesOf(const std::string& text, const std::vector<std::string>& sets = {}) {
  const Result<Scenario> scenario = Parse(text, sets);
  if (scenario) return "(no error)";
  std::string lines = scenario.error().message;
  for (const std::string& other : scenario.error().others) lines += "\n" + other;
  return lines;
}

}  // namespace windtunnel
