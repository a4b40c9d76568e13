// Ranks tell by a line whether the files that they read are alike.
#include "runtime/input_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

std::string Directory(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::filesystem::create_directories(path);
  return path;
}

std::string Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string OfData(const std::string& path) {
  Scenario s = TinyGpt(2);
  s.data = path;
  return DescribeInputFiles(s, "");
}

TEST(InputFiles, AreNotDescribedWhereNoneIsRead) { EXPECT_EQ(DescribeInputFiles(TinyGpt(2), ""), ""); }

TEST(InputFiles, AreAlikeWithTheSameContents) {
  const std::string text(3 << 20, 'a');
  const std::string own = OfData(Write(Directory("a") + "/text", text));
  EXPECT_EQ(OfData(Write(Directory("b") + "/text", text)), own);
  EXPECT_EQ(own.substr(0, 18), "contents of data: ");
  std::string other = text;
  other.back() = 'b';
  EXPECT_NE(OfData(Write(Directory("b") + "/text", other)), own);
  EXPECT_NE(OfData(Write(Directory("b") + "/text", text + "a")), own);
  EXPECT_NE(OfData(Write(Directory("b") + "/text", "")), own);
  EXPECT_EQ(OfData(Directory("b") + "/none"), "contents of data: cannot be read\n");
}

TEST(InputFiles, OfDirectoriesAreAllTheirFiles) {
  const auto weights = [](const std::string& name, const std::string& second) {
    const std::string path = Directory(name);
    Write(path + "/1.safetensors", "one");
    Write(path + "/2.safetensors", second);
    return DescribeInputFiles(TinyGpt(2), path);
  };
  EXPECT_EQ(weights("c", "two"), weights("d", "two"));
  EXPECT_NE(weights("c", "two"), weights("d", "six"));
}

}  // namespace
}  // namespace windtunnel
