#include "base/write_file.h"

#include <gtest/gtest.h>
#include <limits.h>
#include <unistd.h>

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

}  // namespace
}  // namespace windtunnel
