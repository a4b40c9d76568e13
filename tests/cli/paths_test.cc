#include "cli/paths.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace windtunnel {
namespace {

namespace fs = std::filesystem;

// A user's directory that is not the process's, as under `bazel run`.
class Paths : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(user_);
    setenv("BUILD_WORKING_DIRECTORY", user_.c_str(), 1);
  }
  void TearDown() override { unsetenv("BUILD_WORKING_DIRECTORY"); }

  fs::path user_ = fs::path(testing::TempDir()) / "user";
};

TEST_F(Paths, AreRelativeToWhereTheUserStands) {
  std::ofstream(user_ / "a.yaml") << "x";
  ASSERT_TRUE(EnterUserDirectory());
  EXPECT_TRUE(fs::exists("a.yaml"));
}

TEST_F(Paths, FollowTheUserOutsideTheCheckout) {
  setenv("WINDTUNNEL_USER_DIRECTORY", user_.c_str(), 1);
  setenv("BUILD_WORKING_DIRECTORY", "/", 1);
  ASSERT_TRUE(EnterUserDirectory());
  EXPECT_EQ(fs::current_path(), fs::canonical(user_));
  unsetenv("WINDTUNNEL_USER_DIRECTORY");
}

TEST_F(Paths, SayWhenTheUsersDirectoryIsGone) {
  setenv("BUILD_WORKING_DIRECTORY", "/no/such/directory", 1);
  const Status status = EnterUserDirectory();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "/no/such/directory: cannot be entered: No such file or directory");
}

TEST_F(Paths, OfTheCacheFollowXdg) {
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(CacheDirectory().value(), "/x/windtunnel");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/h", 1);
  EXPECT_EQ(CacheDirectory().value(), "/h/.cache/windtunnel");
  unsetenv("HOME");
  EXPECT_EQ(CacheDirectory().error().kind, ErrorKind::kInvalidInput);
}

TEST_F(Paths, ThatCannotBeWrittenAreFailures) {
  ASSERT_TRUE(EnterUserDirectory());
  EXPECT_TRUE(WriteText("out.txt", "text\n"));
  std::ifstream file(user_ / "out.txt");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "text\n");
  Status status = WriteText("no/such/directory/out.txt", "");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kFailed);
  EXPECT_EQ(status.error().message, "no/such/directory/out.txt: cannot write: No such file or directory");
}

}  // namespace
}  // namespace windtunnel
