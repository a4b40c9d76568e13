#include "base/result.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return InvalidInput("{} is odd, expected an even number", n);
  return n / 2;
}

Result<int> Quarter(int n) {
  WT_ASSIGN_OR_RETURN(int half, Half(n));
  return Half(half);
}

TEST(Result, PassesValuesAndErrorsOn) {
  EXPECT_EQ(*Quarter(8), 2);
  ASSERT_FALSE(Quarter(6));
  EXPECT_EQ(Quarter(6).error().message, "3 is odd, expected an even number");
  EXPECT_EQ(Quarter(6).error().kind, ErrorKind::kInvalidInput);
}

}  // namespace
}  // namespace windtunnel
