#include "base/write_file.h"

#include <gtest/gtest.h>
#include <limits.h>

#include "base/read_file.h"

namespace windtunnel {
namespace {

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
