#include "scenarios/changed_key.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace windtunnel {
namespace {

constexpr char kSaved[] =
    "model:\n  heads: 4\n  widths: [10, 20]\n  experts:\n    count: 8\n    imbalance: 1\nbatch: {micro: 8}\n";

// "model.heads: 2 (4)"; empty when nothing changed.
std::string Changed(const std::string& now, const std::string& before = kSaved) {
  const auto changed = FindChangedKey(now, before, "model", {"model.experts.imbalance"}).value();
  return changed ? fmt::format("{}: {} ({})", changed->key, changed->now, changed->before) : "";
}

TEST(FindChangedKey, NamesTheFirstOfTheBlockWithBothValues) {
  EXPECT_EQ(Changed(kSaved), "");
  EXPECT_EQ(Changed("model: {heads: 2, widths: [10]}\n"), "model.heads: 2 (4)");
  EXPECT_EQ(Changed("model: {heads: 4, widths: [10, 30]}\n"), "model.widths: [10, 30] ([10, 20])");
  EXPECT_EQ(Changed("model: {experts: {count: 4}}\n"), "model.experts.count: 4 (8)");
  EXPECT_EQ(Changed("model: {experts: null}\n"), "model.experts: null (a block)");
  EXPECT_EQ(Changed(kSaved, "model: {experts: null}\n"), "model.experts: a block (null)");
}

TEST(FindChangedKey, LeavesOtherBlocksFreeKeysAndWhatAnOlderProgramLacked) {
  EXPECT_EQ(Changed("model: {heads: 4, experts: {count: 8, imbalance: 2}}\nbatch: {micro: 2}\n"), "");
  EXPECT_EQ(Changed(kSaved, "model: {heads: 4}\n"), "");
  EXPECT_EQ(Changed(kSaved, "batch: {micro: 8}\n"), "");
}

}  // namespace
}  // namespace windtunnel
