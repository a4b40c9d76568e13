// Conditions that must hold between keys, and how their tests are written: suites of
//   INSTANTIATE_TEST_SUITE_P(Model, Conflicts, testing::Values(Conflict{text, message}, …));
#pragma once

#include <string>

#include "tests/scenarios/testing.h"

namespace windtunnel {

struct Conflict {
  std::string text;
  std::string message;
};

class Conflicts : public testing::TestWithParam<Conflict> {};

TEST_P(Conflicts, AreReportedWithBothSides) { EXPECT_EQ(MessageOf(GetParam().text), GetParam().message); }

inline std::string Gpt(const std::string& rest) { return kGpt + rest; }
inline std::string Mlp(const std::string& rest) { return kMlp + rest; }
inline std::string Experts(const std::string& rest) {
  return "model: {preset: gpt2-124m, vocab: 50304, experts: {count: 8, top_k: 2}}\n" + rest;
}
inline std::string Dropless(const std::string& rest) {
  return "model: {preset: gpt2-124m, vocab: 50304, experts: {count: 8, top_k: 2, capacity_factor: 0}}\n" +
         rest;
}

}  // namespace windtunnel
