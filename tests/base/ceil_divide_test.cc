#include "base/ceil_divide.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

TEST(CeilDivide, CountsThePartsThatHoldAll) {
  EXPECT_EQ(CeilDivide(0, 4), 0);
  EXPECT_EQ(CeilDivide(1, 4), 1);
  EXPECT_EQ(CeilDivide(8, 4), 2);
  EXPECT_EQ(CeilDivide(9, 4), 3);
  EXPECT_EQ(CeilDivide(int64_t{3} << 40, 2), int64_t{3} << 39);  // beyond 32 bits
}

}  // namespace
}  // namespace windtunnel
