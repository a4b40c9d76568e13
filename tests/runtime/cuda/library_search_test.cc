// Where CUDA's libraries are looked for, in directory trees made for the test.
#include "runtime/cuda/library_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "runtime/cuda/shared_library.h"

namespace windtunnel::cuda {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class LibrarySearch : public testing::Test {
 protected:
  LibrarySearch() {
    std::string name = (fs::temp_directory_path() / "windtunnel-libraries-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    places_.root = name;
  }
  ~LibrarySearch() override { fs::remove_all(root_); }

  std::string Put(const std::string& path) {
    const fs::path file = root_ / fs::path(path).relative_path();
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "not a library";
    return file.string();
  }
  void Set(const std::string& name, const std::string& value) { places_.environment[name] = value; }
  std::vector<std::string> Find(const std::string& name) { return FindLibraries({name}, places_); }

  fs::path root_;
  SearchPlaces places_;
};

TEST_F(LibrarySearch, NothingIsFoundWhereNothingIs) { EXPECT_TRUE(Find("libnccl.so.2").empty()); }

TEST_F(LibrarySearch, LdLibraryPathGoesFirstThenTheToolkitThenPip) {
  const std::string pip = Put("/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
  const std::string toolkit = Put("/usr/local/cuda/lib64/libnccl.so.2");
  const std::string given = Put("/given/libnccl.so.2");
  Put("/venv/bin/python3");
  Set("LD_LIBRARY_PATH", (root_ / "nowhere").string() + ":" + (root_ / "given").string());
  Set("PATH", (root_ / "venv/bin").string());
  EXPECT_THAT(Find("libnccl.so.2"), ElementsAre(given, toolkit, pip));
}

TEST_F(LibrarySearch, CudaHomeGoesBeforeTheUsualPlace) {
  const std::string usual = Put("/usr/local/cuda/lib64/libcublasLt.so.13");
  const std::string home = Put("/opt/cuda-13.1/lib64/libcublasLt.so.13");
  Set("CUDA_HOME", (root_ / "opt/cuda-13.1").string());
  EXPECT_THAT(Find("libcublasLt.so.13"), ElementsAre(home, usual));
}

// CUDA 13's packages share a folder, CUDA 12's have one each.
TEST_F(LibrarySearch, BothLayoutsOfPipsPackagesAreKnown) {
  const std::string thirteen = Put("/a/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
  const std::string twelve = Put("/a/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12");
  Set("VIRTUAL_ENV", (root_ / "a").string());
  EXPECT_THAT(Find("libcublasLt.so.13"), ElementsAre(thirteen));
  EXPECT_THAT(Find("libcublasLt.so.12"), ElementsAre(twelve));
}

TEST_F(LibrarySearch, APython3ThatIsALinkLeadsToWhereItPoints) {
  Put("/real/bin/python3.12");
  const std::string library = Put("/real/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9");
  fs::create_directories(root_ / "bin");
  fs::create_symlink(root_ / "real/bin/python3.12", root_ / "bin/python3");
  Set("PATH", (root_ / "bin").string());
  EXPECT_THAT(Find("libcudnn.so.9"), ElementsAre(library));
}

TEST_F(LibrarySearch, TheUsersAndTheSystemsPackagesAreLookedAt) {
  const std::string user = Put("/home/me/.local/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2");
  const std::string pyenv =
      Put("/home/me/.pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
  const std::string system = Put("/usr/local/lib/python3.11/dist-packages/nvidia/nccl/lib/libnccl.so.2");
  const std::string debian = Put("/usr/lib/x86_64-linux-gnu/libnccl.so.2");
  Set("HOME", (root_ / "home/me").string());
  EXPECT_THAT(Find("libnccl.so.2"), ElementsAre(user, pyenv, system, debian));
}

TEST_F(LibrarySearch, ADirectoryIsLookedAtOnce) {
  const std::string file = Put("/given/libx.so");
  Set("LD_LIBRARY_PATH", (root_ / "given").string() + ":" + (root_ / "given/").string());
  EXPECT_THAT(Find("libx.so"), ElementsAre(file));
}

TEST_F(LibrarySearch, WhatIsNoLibraryIsRefusedWithItsNameAndTheSearchGoesOn) {
  const std::string bad = Put("/given/libwindtunnel-test.so");
  Set("LD_LIBRARY_PATH", (root_ / "given").string());
  const auto opened = SharedLibrary::Open("Test", {"libwindtunnel-test.so"}, places_,
                                          [](const SharedLibrary&) { return Ok(); });
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("Test was not found ("));
  EXPECT_THAT(opened.error().message, HasSubstr(bad));
  EXPECT_THAT(opened.error().message, HasSubstr("CUDA_HOME"));
}

// Uses the C library, which every machine has.
TEST_F(LibrarySearch, AWrongVersionIsRefusedWithTheReason) {
  const auto opened =
      SharedLibrary::Open("Test", {"libc.so.6"}, places_, [](const SharedLibrary& library) -> Status {
        EXPECT_NE(library.Find("malloc"), nullptr);
        return Failed("is version 1.0, expected 2.x");
      });
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("libc.so.6: is version 1.0, expected 2.x"));
}

TEST_F(LibrarySearch, AMissingFunctionIsNamed) {
  const auto opened =
      SharedLibrary::Open("Test", {"libc.so.6"}, places_, [](const SharedLibrary& library) -> Status {
        void (*function)() = nullptr;
        return library.Load("no_such_function", function);
      });
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("libc.so.6 has no no_such_function"));
}

TEST(LibraryVersion, AreWrittenAsPeopleWriteThem) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(21805), "2.18.5");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
  EXPECT_EQ(CublasVersionText(130002), "13.0.2");
  EXPECT_EQ(CublasVersionText(120405), "12.4.5");
  EXPECT_EQ(CudnnVersionText(91002), "9.10.2");
  EXPECT_EQ(CudnnVersionText(8907), "8.9.7");
}

}  // namespace
}  // namespace windtunnel::cuda
