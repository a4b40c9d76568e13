#include "scenarios/suggest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "scenarios/keys.h"

namespace windtunnel {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(EditDistance("batch", "batch"), 0);
  EXPECT_EQ(EditDistance("bathc", "batch"), 1);
  EXPECT_EQ(EditDistance("btch", "batch"), 1);
  EXPECT_EQ(EditDistance("baatch", "batch"), 1);
  EXPECT_EQ(EditDistance("botch", "batch"), 1);
  EXPECT_EQ(EditDistance("", "abc"), 3);
}

RC_GTEST_PROP(EditDistance, IsSymmetricAndZeroOnlyForEqualWords,
              (const std::string& a, const std::string& b)) {
  RC_ASSERT(EditDistance(a, b) == EditDistance(b, a));
  RC_ASSERT((EditDistance(a, b) == 0) == (a == b));
}

RC_GTEST_PROP(Nearest, IsTheFirstOfThoseWithTheLeastDistance, (const std::string& word)) {
  const auto known = *rc::gen::nonEmpty<std::vector<std::string>>();
  const std::string nearest = Nearest(word, known);
  const auto first = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return EditDistance(word, a) < EditDistance(word, b);
  });
  RC_ASSERT(nearest == *first);
}

TEST(SuggestKey, PrefersANearKeyOfTheBlockThenTheSameNameElsewhere) {
  std::vector<std::string> known = {"micro", "accumulate"};
  EXPECT_EQ(SuggestKey("batch", "micros", known), "batch.micro");
  EXPECT_EQ(SuggestKey("batch", "seq_len", known), "model.seq_len");
  EXPECT_EQ(SuggestKey("", "weight_decay", {"name"}), "optimizer.weight_decay");
  EXPECT_EQ(SuggestKey("batch", "acumulation", known), "batch.accumulate");
}

TEST(JoinWithOr, ReadsAsASentence) {
  EXPECT_EQ(JoinWithOr({"a"}), "a");
  EXPECT_EQ(JoinWithOr({"a", "b"}), "a or b");
  EXPECT_EQ(JoinWithOr({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace windtunnel
