#include "sim/search/state_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace windtunnel {
namespace {

std::string PathOf(const char* name) { return ::testing::TempDir() + "/" + name; }

std::string TextOf(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

const Evaluation kFeasible{
    .outcome = Evaluation::Outcome::kFeasible, .step_time = Seconds(2), .memory = Bytes(300)};
const Evaluation kLowerBound{.outcome = Evaluation::Outcome::kFeasible,
                             .step_time = Seconds(1),
                             .is_lower_bound = true,
                             .memory = Bytes(200)};
const Evaluation kRefused{.outcome = Evaluation::Outcome::kRefused, .reason = "no such\nschedule"};

TEST(StateFile, HasWhatWasAppendedWhenItIsOpenedAgain) {
  const std::string path = PathOf("again");
  {
    StateFile state = StateFile::Open(path, "key").value();
    ASSERT_TRUE(state.Append(7, kFeasible));
    ASSERT_TRUE(state.Append(3, kRefused));
    ASSERT_TRUE(state.Append(5, kLowerBound));
  }
  ASSERT_TRUE(StateFile::Open(path, "key"));
  const auto known = StateFile::Read(path, "key").value();
  ASSERT_EQ(known.size(), 3u);
  EXPECT_FALSE(known.at(7).is_lower_bound);
  EXPECT_TRUE(known.at(5).is_lower_bound);
  EXPECT_EQ(known.at(5).outcome, Evaluation::Outcome::kFeasible);
  EXPECT_EQ(known.at(7).outcome, Evaluation::Outcome::kFeasible);
  EXPECT_EQ(known.at(7).step_time, Seconds(2));
  EXPECT_EQ(known.at(7).memory, Bytes(300));
  EXPECT_EQ(known.at(3).outcome, Evaluation::Outcome::kRefused);
  EXPECT_EQ(known.at(3).reason, "no such schedule");
}

TEST(StateFile, DropsALineThatWasCutShortAndGoesOnInItsPlace) {
  const std::string path = PathOf("torn");
  { ASSERT_TRUE(StateFile::Open(path, "key").value().Append(7, kFeasible)); }
  const std::string whole = TextOf(path);
  Write(path, whole + "8 f 12345");
  {
    StateFile state = StateFile::Open(path, "key").value();
    EXPECT_EQ(StateFile::Read(path, "key").value().size(), 1u);
    ASSERT_TRUE(state.Append(9, kFeasible));
  }
  EXPECT_EQ(StateFile::Read(path, "key").value().size(), 2u);
}

TEST(StateFile, SaysThatItIsADirectory) {
  const std::string path = ::testing::TempDir();
  EXPECT_EQ(StateFile::Open(path, "key").error().message,
            path + ": is a directory, expected the state of a search");
}

// A truncated header does not count as one.
TEST(StateFile, BeginsAnewInAFileWithoutAWholeHeader) {
  const std::string path = PathOf("header");
  Write(path, "windtunnel-search-st");
  ASSERT_TRUE(StateFile::Open(path, "key"));
  EXPECT_EQ(TextOf(path), "windtunnel-search-state 2 key\n");
}

// Two searches that append to one file would leave neither of them a whole line.
TEST(StateFile, IsOneSearchsAtATime) {
  const std::string path = PathOf("locked");
  {
    const StateFile first = StateFile::Open(path, "key").value();
    const auto second = StateFile::Open(path, "key");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().kind, ErrorKind::kInvalidInput);
    EXPECT_EQ(second.error().message, path +
                                          ": is being written by another search, expected a file of its own, "
                                          "or to wait until that one has ended");
    EXPECT_TRUE(StateFile::Read(path, "key"));
  }
  EXPECT_TRUE(StateFile::Open(path, "key"));
}

TEST(StateFile, LeavesFilesOfOthersAlone) {
  const std::string path = PathOf("other");
  { ASSERT_TRUE(StateFile::Open(path, "key").value().Append(7, kFeasible)); }
  for (const std::string& text : {TextOf(path), std::string("some notes"), std::string("{}\n")}) {
    Write(path, text);
    const auto state = StateFile::Open(path, "another key");
    ASSERT_FALSE(state) << text;
    EXPECT_EQ(state.error().kind, ErrorKind::kInvalidInput);
    EXPECT_EQ(TextOf(path), text);
  }
}

TEST(StateFile, RefusesLinesThatItDidNotWrite) {
  const std::string path = PathOf("lines");
  { ASSERT_TRUE(StateFile::Open(path, "key").value().Append(7, kFeasible)); }
  Write(path, TextOf(path) + "8 x 1 1 \n");
  const auto state = StateFile::Open(path, "key");
  ASSERT_FALSE(state);
  EXPECT_NE(state.error().message.find(":3:1:"), std::string::npos) << state.error().message;
}

}  // namespace
}  // namespace windtunnel
