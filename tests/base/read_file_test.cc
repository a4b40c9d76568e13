#include "base/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

namespace windtunnel {
namespace {

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(ReadFile, GivesAllBytesAndNoneOfAnEmptyFile) {
  std::string text(200'000, 'x');
  text.replace(0, 5, "a\0b\r\n", 5);
  EXPECT_EQ(ReadFile(Write("whole", text)).value(), text);
  EXPECT_EQ(ReadFile(Write("empty", "")).value(), "");
}

TEST(ReadFile, ReadsAPipe) {
  const std::string path = testing::TempDir() + "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "through"; });
  EXPECT_EQ(ReadFile(path).value(), "through");
  writer.join();
}

TEST(ReadFile, SaysWhatIsThereInsteadOfAFile) {
  const auto missing = ReadFile("/no/file", "a profile");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message,
            "/no/file: cannot be read (No such file or directory), expected a profile");
  EXPECT_EQ(missing.error().kind, ErrorKind::kInvalidInput);
  EXPECT_EQ(ReadFile("/tmp").error().message, "/tmp: is a directory, expected a file");
}

}  // namespace
}  // namespace windtunnel
