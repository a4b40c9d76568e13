#include "runtime/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>

namespace windtunnel {
namespace {

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

// Writes the format by hand: the header's length, the header, the values.
std::string Write(const std::string& name, const std::string& header, const std::string& values,
                  std::optional<uint64_t> length = std::nullopt) {
  const uint64_t bytes = length.value_or(header.size());
  std::ofstream file(PathOf(name), std::ios::binary);
  file.write(reinterpret_cast<const char*>(&bytes), 8);
  file << header << values;
  return PathOf(name);
}

std::string MessageOf(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  if (file) return "no error";
  EXPECT_EQ(file.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
  return file.error().message;
}

TEST(Safetensors, ComeBackBitByBitWithTheirShapes) {
  const std::vector<float> a = {1.0f, -0.0f, std::bit_cast<float>(0x7fc01234u), 1e-45f, 5.0f, 6.0f},
                           b = {7.0f};
  const auto written = WriteSafetensors(
      PathOf("two"), {{"a", {2, 3}, [&] { return a; }}, {"b", {}, [&] { return b; }}}, {{"format", "pt"}});
  ASSERT_TRUE(written) << written.error().message;
  const auto file = SafetensorsFile::Open(PathOf("two"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->Find("a")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file->Find("b")->elements(), 1);
  EXPECT_EQ(file->Find("c"), nullptr);
  const auto read = file->Read("a");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(std::memcmp(read->data(), a.data(), sizeof(float) * a.size()), 0);
}

TEST(Safetensors, OfSixteenBitsAreReadAsFloats) {
  // 1, -2, the smallest subnormal, infinity.
  const uint16_t half[] = {0x3C00, 0xC000, 0x0001, 0x7C00}, brain[] = {0x3F80, 0xC000, 0x0001, 0x7F80};
  std::string values(reinterpret_cast<const char*>(half), 8);
  values.append(reinterpret_cast<const char*>(brain), 8);
  const auto file = SafetensorsFile::Open(Write(
      "sixteen",
      R"({"h":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[8,16]}})",
      values));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(*file->Read("h"), (std::vector<float>{1.0f, -2.0f, 0x1.0p-24f, INFINITY}));
  EXPECT_EQ(*file->Read("b"), (std::vector<float>{1.0f, -2.0f, 0x1.0p-133f, INFINITY}));
}

TEST(Safetensors, FilesThatCannotBeAreErrorsThatSayWhy) {
  const std::string eight(8, '\0');
  EXPECT_NE(MessageOf(PathOf("none")).find("cannot be read"), std::string::npos);
  EXPECT_NE(MessageOf(Write("short", "{}", "", 100)).find("is not a safetensors file"), std::string::npos);
  EXPECT_NE(MessageOf(Write("huge", "{}", "", ~uint64_t{0})).find("is not a safetensors file"),
            std::string::npos);
  EXPECT_NE(MessageOf(Write("json", "{x", "")).find("the header is damaged"), std::string::npos);
  EXPECT_NE(MessageOf(Write("list", "[]", "")).find("no JSON object"), std::string::npos);
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  EXPECT_NE(MessageOf(Write("deep", deep, "")).find("no JSON object"), std::string::npos);
  EXPECT_NE(MessageOf(Write("types", R"({"a":{"dtype":1}})", "")).find("damaged"), std::string::npos);
  EXPECT_NE(MessageOf(Write("offsets", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", eight))
                .find("damaged"),
            std::string::npos);
  EXPECT_NE(MessageOf(Write("end", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", eight))
                .find("cut off"),
            std::string::npos);
  EXPECT_NE(MessageOf(Write("shape", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight))
                .find("do not fit"),
            std::string::npos);
  EXPECT_NE(
      MessageOf(Write("overflow",
                      R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""))
          .find("do not fit"),
      std::string::npos);
  EXPECT_NE(MessageOf(Write("overlap",
                            R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                            R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                            eight))
                .find("share the byte"),
            std::string::npos);
}

TEST(Safetensors, AnotherTypeIsAnErrorOnlyWhereItIsRead) {
  const auto file = SafetensorsFile::Open(
      Write("integers", R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", std::string(8, '\0')));
  ASSERT_TRUE(file) << file.error().message;
  const auto read = file->Read("ids");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("'ids' is of type I64, expected F32, BF16 or F16"), std::string::npos);
}

}  // namespace
}  // namespace windtunnel
