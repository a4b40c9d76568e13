#include "runtime/rank_environment.h"

#include <gtest/gtest.h>

#include <map>

namespace windtunnel {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<RankEnvironment>> Read(const Variables& variables) {
  return ReadRankEnvironment([&](const char* name) -> const char* {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(RankEnvironment, ReadsTorchrunsContract) {
  auto read = Read({{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"LOCAL_WORLD_SIZE", "4"},
                    {"MASTER_ADDR", "node0"},
                    {"MASTER_PORT", "12345"}});
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(*read);
  EXPECT_EQ((*read)->rank, 5);
  EXPECT_EQ((*read)->world_size, 8);
  EXPECT_EQ((*read)->local_rank, 1);
  EXPECT_EQ((*read)->local_world_size, 4);
  EXPECT_EQ((*read)->master_addr, "node0");
  EXPECT_EQ((*read)->master_port, 12345);
}

TEST(RankEnvironment, AProcessOfNoJobIsNoRank) {
  auto read = Read({{"MASTER_ADDR", "node0"}, {"LOCAL_RANK", "x"}});
  ASSERT_TRUE(read);
  EXPECT_FALSE(*read);
}

TEST(RankEnvironment, DefaultsAreThoseOfOneNode) {
  auto read = Read({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->local_rank, 1);
  EXPECT_EQ((*read)->local_world_size, 2);
  EXPECT_EQ((*read)->master_addr, "127.0.0.1");
  EXPECT_EQ((*read)->master_port, 29500);
}

TEST(RankEnvironment, NamesTheVariableItsValueAndWhatWasExpected) {
  const std::pair<Variables, const char*> cases[] = {
      {{{"RANK", "0"}, {"WORLD_SIZE", "x"}}, "WORLD_SIZE is 'x', expected a positive integer"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE is '0', expected a positive integer"},
      {{{"RANK", "0"}, {"WORLD_SIZE", ""}}, "WORLD_SIZE is '', expected a positive integer"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2.0"}}, "WORLD_SIZE is '2.0', expected a positive integer"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}},
       "WORLD_SIZE is '99999999999', expected a positive integer"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is '2', expected a rank below WORLD_SIZE = 2"},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is '-1', expected a rank below WORLD_SIZE = 2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}},
       "MASTER_PORT is '70000', expected a port, 1 to 65535"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "one"}},
       "LOCAL_RANK is 'one', expected a rank below LOCAL_WORLD_SIZE = 2"},
      {{{"RANK", "0"}},
       "RANK is set but WORLD_SIZE is not: a rank of a job needs both, any other process neither"},
  };
  for (const auto& [variables, message] : cases) {
    auto read = Read(variables);
    ASSERT_FALSE(read) << message;
    EXPECT_EQ(read.error().kind, ErrorKind::kInvalidInput);
    EXPECT_EQ(read.error().message, message);
  }
}

}  // namespace
}  // namespace windtunnel
