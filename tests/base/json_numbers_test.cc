#include "base/json_numbers.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

using Json = nlohmann::json;

TEST(WholeNumber, IsWhatTheTypeHolds) {
  EXPECT_EQ(WholeNumber<int64_t>(Json(-5)), -5);
  EXPECT_EQ(WholeNumber<int>(Json(7u)), 7);
  EXPECT_EQ(WholeNumber<uint64_t>(Json(UINT64_MAX)), UINT64_MAX);
  EXPECT_EQ(WholeNumbers<int64_t>(Json::parse("[1, -2, 3]")), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(WholeNumbers<int64_t>(Json::array()), std::vector<int64_t>());
}

// 1e194 as int64_t is undefined.
TEST(WholeNumber, RefusesFractionsAndWhatDoesNotFit) {
  for (const char* text : {"1e194", "1.5", "2.0", "18446744073709551615", "\"1\"", "null", "true", "[1]"})
    EXPECT_THROW(WholeNumber<int64_t>(Json::parse(text)), Json::type_error) << text;
  EXPECT_THROW(WholeNumber<int>(Json(int64_t{1} << 40)), Json::type_error);
  EXPECT_THROW(WholeNumber<uint32_t>(Json(-1)), Json::type_error);
  for (const char* text : {"1", "{}", "[1, 2.5]", "[1e300]"})
    EXPECT_THROW(WholeNumbers<int64_t>(Json::parse(text)), Json::type_error) << text;
}

}  // namespace
}  // namespace windtunnel
