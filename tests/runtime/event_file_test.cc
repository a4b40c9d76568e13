#include "runtime/event_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace windtunnel {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The CRC-32C of these nine characters is 0xe3069283 (the check value of the CRC catalogue; RFC 3720,
// appendix B.4, has similar ones). Rotated right by 15: 0x2507c60d; plus 0xa282ead8: 0xc78ab0e5.
TEST(EventFile, CrcsAreMaskedAsTensorFlowsRecordsHaveThem) {
  EXPECT_EQ(MaskedCrc32c("123456789", 9), 0xc78ab0e5u);
  EXPECT_EQ(MaskedCrc32c("", 0), 0xa282ead8u);
}

// wall_time (field 1, 8 bytes), then file_version (field 3, 13 characters): 9 + 2 + 13 = 24 bytes of data.
TEST(EventFile, BeginsWithItsVersion) {
  auto events = EventFile::Create(testing::TempDir() + "/version");
  ASSERT_TRUE(events) << events.error().message;
  const std::string bytes = Read(events->path());
  ASSERT_EQ(bytes.size(), 8 + 4 + 24 + 4u);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(12 + 9, 15),
            "\x1a\x0d"
            "brain.Event:2");
}

// The bytes that step 7 with one scalar adds to a file.
std::string RecordOf(const std::string& tag, double value) {
  auto events = EventFile::Create(testing::TempDir() + "/" + tag);
  if (!events) return events.error().message;
  const size_t before = Read(events->path()).size();
  EXPECT_TRUE(events->Write(7, {{tag, value}}));
  return Read(events->path()).substr(before);
}

TEST(EventFile, AStepIsInTheFileAsSoonAsItIsWritten) {
  const std::string record = RecordOf("grad_norm", 1.5);
  ASSERT_GT(record.size(), 12 + 9 + 4u);
  // Data: wall_time (9 bytes), step 7, summary: a value of tag and float (1.5 is 0x3fc00000).
  EXPECT_EQ(record.substr(12 + 9, record.size() - 12 - 9 - 4), std::string("\x10\x07\x2a\x12\x0a\x10\x0a\x09"
                                                                           "grad_norm\x15\0\0\xc0\x3f",
                                                                           22));
}

// Zero must be written: TensorBoard shows nothing for a tag without a value.
TEST(EventFile, ZeroIsAValue) {
  EXPECT_NE(RecordOf("loss", 0).find(std::string("loss\x15\0\0\0\0", 9)), std::string::npos);
}

TEST(EventFile, FilesOfOneDirectoryAndSecondHaveNamesOfTheirOwn) {
  const std::string directory = testing::TempDir() + "/several";
  auto first = EventFile::Create(directory);
  auto second = EventFile::Create(directory);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->path(), second->path());
  EXPECT_TRUE(std::filesystem::path(first->path()).filename().string().starts_with("events.out.tfevents."));
}

// session_log (field 7) with status START (field 1, 1), at step 40.
TEST(EventFile, ARestartVoidsWhatOtherFilesHaveOfLaterSteps) {
  auto events = EventFile::Create(testing::TempDir() + "/restart");
  ASSERT_TRUE(events);
  const size_t before = Read(events->path()).size();
  ASSERT_TRUE(events->WriteRestart(40));
  const std::string record = Read(events->path()).substr(before);
  EXPECT_EQ(record.substr(12 + 9, record.size() - 12 - 9 - 4), "\x10\x28\x3a\x02\x08\x01");
}

TEST(EventFile, WhatCannotBeWrittenIsNamed) {
  const auto events = EventFile::Create("/dev/null/logs");
  ASSERT_FALSE(events);
  EXPECT_EQ(events.error().kind, ErrorKind::kFailed);
  EXPECT_NE(events.error().message.find("/dev/null/logs"), std::string::npos) << events.error().message;
}

}  // namespace
}  // namespace windtunnel
