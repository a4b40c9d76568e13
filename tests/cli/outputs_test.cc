#include "cli/outputs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace windtunnel {
namespace {

namespace fs = std::filesystem;

class Outputs : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/outputs";
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }
  static std::string ErrorOf(const Options& options) {
    const Status status = CheckOutputFiles(options);
    return status ? "" : status.error().message;
  }
  std::string directory_;
};

TEST_F(Outputs, ThatCanBeWrittenAreLeftAsTheyAre) {
  Options options;
  options.json = PathOf("new.json");
  options.html = PathOf("old.html");
  std::ofstream(options.html) << "old";
  EXPECT_EQ(ErrorOf(options), "");
  EXPECT_FALSE(fs::exists(options.json));
  EXPECT_EQ(fs::file_size(options.html), 3u);
}

TEST_F(Outputs, AreNeitherOneFileNorOneThatIsRead) {
  Options options;
  options.files = {PathOf("s.yaml")};
  std::ofstream(options.files[0]) << "x";
  options.svg = directory_ + "/../outputs/s.yaml";
  EXPECT_EQ(ErrorOf(options), "--svg is " + options.svg + ", which the command reads, expected another file");
  options.svg = options.trace = PathOf("both");
  EXPECT_EQ(ErrorOf(options), "--trace and --svg are both " + options.svg + ", expected different files");
  fs::create_symlink(options.files[0], PathOf("link"));
  fs::create_hard_link(options.files[0], PathOf("hard"));
  for (const char* name : {"link", "hard"}) {
    options.svg = PathOf(name);
    EXPECT_NE(ErrorOf(options).find("which the command reads"), std::string::npos) << name;
  }
  // Neither file exists yet.
  options.svg = "not there yet";
  options.trace = "./not there yet";
  EXPECT_EQ(ErrorOf(options), "--trace and --svg are both not there yet, expected different files");
}

TEST_F(Outputs, MayBePipesDevicesAndStandardOutput) {
  Options options;
  options.json = "-";
  options.svg = "/dev/null";
  options.trace = PathOf("pipe");
  ASSERT_EQ(mkfifo(options.trace.c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf(options), "");
}

TEST_F(Outputs, ADirectoryIsMadeAndLeftEmpty) {
  EXPECT_TRUE(CheckOutputDirectory("--export", ""));
  EXPECT_TRUE(CheckOutputDirectory("--export", PathOf("a/b")));
  EXPECT_TRUE(fs::is_empty(PathOf("a/b")));
  std::ofstream(PathOf("file")) << "x";
  EXPECT_NE(CheckOutputDirectory("--export", PathOf("file/b")).error().message.find("--export: "),
            std::string::npos);
}

}  // namespace
}  // namespace windtunnel
