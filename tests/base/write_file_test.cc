#include "base/write_file.h"

#include <gtest/gtest.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include "base/read_file.h"

namespace windtunnel {
namespace {

TEST(WriteAll, WritesWhatAPipeTakesOnlyInParts) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string text(1 << 20, 'x');  // a pipe holds 64 KiB
  std::string read_back;
  std::thread reader([&] {
    char part[4096];
    for (ssize_t bytes = 1; bytes > 0;) {
      bytes = read(ends[0], part, sizeof part);
      if (bytes > 0) read_back.append(part, static_cast<size_t>(bytes));
    }
  });
  EXPECT_FALSE(WriteAll(ends[1], text));
  close(ends[1]);
  reader.join();
  close(ends[0]);
  EXPECT_EQ(read_back, text);
  EXPECT_EQ(WriteAll(-1, "x"), std::errc::bad_file_descriptor);
}

// The file that takes its place in the end has a name of its own, for which there must be room.
TEST(ReplaceFile, WritesFilesWithNamesOfAnyLength) {
  for (const size_t length : {size_t{1}, size_t{240}, size_t{250}, size_t{NAME_MAX}}) {
    const std::string path = testing::TempDir() + "/" + std::string(length, 'n');
    EXPECT_FALSE(ReplaceFile(path, "old"));
    EXPECT_FALSE(ReplaceFile(path, "new"));
    EXPECT_EQ(ReadFile(path).value(), "new") << length;
  }
  EXPECT_TRUE(ReplaceFile(testing::TempDir() + "/" + std::string(NAME_MAX + 1, 'n'), "x"));
}

TEST(WriteOutput, ReplacesFilesAndWritesThroughLinksAndDevices) {
  namespace fs = std::filesystem;
  const std::string file = testing::TempDir() + "/file", link = testing::TempDir() + "/link",
                    device = testing::TempDir() + "/device";
  EXPECT_FALSE(WriteOutput(file, "a file"));
  EXPECT_EQ(ReadFile(file).value(), "a file");
  fs::create_symlink(file, link);
  EXPECT_FALSE(WriteOutput(link, "text"));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(ReadFile(file).value(), "text");
  fs::create_symlink("/dev/null", device);
  EXPECT_FALSE(WriteOutput(device, "nothing"));
  EXPECT_TRUE(fs::is_character_file(device));
  EXPECT_EQ(WriteOutput(testing::TempDir() + "/no/such/file", "x"), std::errc::no_such_file_or_directory);
}

TEST(WriteOutput, WritesIntoAPipe) {
  const std::string path = testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string read_back(4, '\0');
  std::thread reader([&] { std::ifstream(path).read(read_back.data(), 4); });
  EXPECT_FALSE(WriteOutput(path, "text"));
  reader.join();
  EXPECT_EQ(read_back, "text");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

}  // namespace
}  // namespace windtunnel
