#include "base/text.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

TEST(LowerCase, ChangesLettersOnly) {
  EXPECT_EQ(LowerCase("FP8-E4M3 ×2"), "fp8-e4m3 ×2");
  EXPECT_EQ(LowerCase(""), "");
}

TEST(Slug, JoinsWordsByOneDash) {
  EXPECT_EQ(Slug("AMD EPYC 7R13"), "amd-epyc-7r13");
  EXPECT_EQ(Slug("  Intel(R) Xeon(R) @ 2.20GHz "), "intel-r-xeon-r-2-20ghz");
  EXPECT_EQ(Slug("?!"), "");
}

}  // namespace
}  // namespace windtunnel
