#include "base/temporary_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>

namespace windtunnel {
namespace {

// Sets TMPDIR, or unsets it, for as long as it lives.
class WithTmpdir {
 public:
  explicit WithTmpdir(const char* value) {
    if (const char* had = getenv("TMPDIR")) had_ = had;
    value == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", value, 1);
  }
  ~WithTmpdir() { had_ ? setenv("TMPDIR", had_->c_str(), 1) : unsetenv("TMPDIR"); }

 private:
  std::optional<std::string> had_;
};

TEST(TemporaryDirectory, IsMadeInTmpdirForItsUserAlone) {
  const WithTmpdir tmpdir(testing::TempDir().c_str());
  const auto path = MakeTemporaryDirectory("wt-test");
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_EQ(path->find(testing::TempDir()), 0u) << *path;
  EXPECT_NE(path->find("/wt-test-"), std::string::npos) << *path;
  EXPECT_EQ(std::filesystem::status(*path).permissions(), std::filesystem::perms::owner_all);
  std::filesystem::remove(*path);
}

TEST(TemporaryDirectory, IsInTmpWhereTmpdirSaysNothing) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const WithTmpdir tmpdir(value);
    EXPECT_EQ(TemporaryPath(), "/tmp");
  }
}

TEST(TemporaryDirectory, ATmpdirThatIsNoDirectoryIsNamed) {
  const std::string file = testing::TempDir() + "/file";
  std::ofstream(file) << "text";
  for (const std::string& wrong : {std::string("/no/such"), file}) {
    const WithTmpdir tmpdir(wrong.c_str());
    const auto path = MakeTemporaryDirectory("wt-test");
    ASSERT_FALSE(path) << *path;
    EXPECT_EQ(path.error().message, fmt::format("TMPDIR is '{}', expected a directory", wrong));
    EXPECT_EQ(path.error().kind, ErrorKind::kInvalidInput);
  }
  const WithTmpdir tmpdir("/proc");  // where nobody makes a directory
  const auto path = MakeTemporaryDirectory("wt-test");
  ASSERT_FALSE(path) << *path;
  EXPECT_EQ(path.error().message.find("no directory can be made in /proc ("), 0u) << path.error().message;
  EXPECT_EQ(path.error().kind, ErrorKind::kFailed);
}

}  // namespace
}  // namespace windtunnel
