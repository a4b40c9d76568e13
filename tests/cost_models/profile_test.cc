#include "cost_models/profile.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/cost_models/without_place.h"

namespace windtunnel {
namespace {

Distribution Spread(Duration least, Duration step) {
  std::array<Duration, Distribution::kCount> values;
  for (size_t i = 0; i < Distribution::kCount; ++i) values[i] = least + step * static_cast<int64_t>(i);
  return Distribution::FromQuantiles(values);
}

Profile Example() {
  Profile profile{.name = "cpu-example",
                  .device = "cpu",
                  .fingerprint = "1a2b3c4d",
                  .machine = {{"cpu", "Example \"X\" 1.5 GHz"}, {"cores", "2"}},
                  .libraries = {{"gloo", "0.5"}},
                  .created = "2024-01-02T03:04:05Z",
                  .cores = 2,
                  .kernels = {},
                  .collectives = {},
                  .dispatch = {{2, Spread(Nanoseconds(900), Picoseconds(1))},
                               {1, Spread(Nanoseconds(800), Picoseconds(7))}},
                  .common_mode = {0.9, 0.95, 0.97, 0.98, 0.99, 1, 1.01, 1.02, 1.05, 1.1, 1.2, 1.3},
                  .outside_allocator = {},
                  .hardware = {}};
  profile.Put(KernelEntry{"gemm fp32 nn m=2 n=3 k=4", 2, 50, Spread(Picoseconds(123456789), Picoseconds(3))});
  profile.Put(KernelEntry{"copy fp32 fp32 n=10", 2, 50, Spread(Picoseconds(1), Picoseconds(1))});
  profile.Put(CollectiveEntry{.op = "all_reduce",
                              .backend = "gloo",
                              .ranks = 2,
                              .bytes = MiB(1),
                              .count = 30,
                              .time = Spread(Microseconds(500), Nanoseconds(10)),
                              .core_time = Microseconds(321.5),
                              .collective_rate_under_compute = 0.71,
                              .compute_rate_under_collective = 0.4999});
  profile.Put(CollectiveEntry{.op = "barrier",
                              .backend = "gloo",
                              .ranks = 2,
                              .bytes = Bytes(0),
                              .count = 30,
                              .time = Spread(Microseconds(20), Nanoseconds(10)),
                              .core_time = Microseconds(11),
                              .collective_rate_under_compute = {},
                              .compute_rate_under_collective = {}});
  profile.Put(OutsideAllocatorEntry{"gloo", 2, MiB(31)});
  return profile;
}

std::string ErrorOf(const std::string& json) {
  const auto profile = ParseProfile(json, "p.json");
  return profile ? "no error" : WithoutPlace(profile.error().message);
}

// The example's JSON with the first `from` replaced.
std::string Edited(const std::string& from, const std::string& to) {
  std::string text = ProfileJson(Example());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Profile, SurvivesTheWayThroughJsonToThePicosecond) {
  const std::string text = ProfileJson(Example());
  const Profile again = ParseProfile(text, "p.json").value();
  EXPECT_EQ(ProfileJson(again), text);
  EXPECT_EQ(again.FindKernel("gemm fp32 nn m=2 n=3 k=4", 2)->time.p50(), Picoseconds(123456804));
  EXPECT_EQ(again.FindKernel("gemm fp32 nn m=2 n=3 k=4", 2)->count, 50);
  const CollectiveEntry* entry = again.FindCollective("all_reduce", "gloo", 2, MiB(1));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->core_time, Picoseconds(321'500'000));
  EXPECT_EQ(entry->compute_rate_under_collective, 0.4999);
  EXPECT_FALSE(again.FindCollective("barrier", "gloo", 2, Bytes(0))->collective_rate_under_compute);
  EXPECT_EQ(again.dispatch.at(2).p10(), Picoseconds(900'003));
  EXPECT_EQ(again.machine.at("cpu"), "Example \"X\" 1.5 GHz");
}

RC_GTEST_PROP(Profile, AnyTimeUpToAnHourIsExact, ()) {
  const auto time = Picoseconds(*rc::gen::inRange<int64_t>(0, 3'600'000'000'000'000));
  Profile profile;
  profile.Put(KernelEntry{"k", 1, 1, Distribution::Constant(time)});
  RC_ASSERT(ParseProfile(ProfileJson(profile), "p").value().kernels[0].time.p50() == time);
}

TEST(Profile, EqualProfilesAreEqualText) {
  Profile reversed = Example();
  std::reverse(reversed.kernels.begin(), reversed.kernels.end());
  std::reverse(reversed.collectives.begin(), reversed.collectives.end());
  EXPECT_EQ(ProfileJson(reversed), ProfileJson(Example()));
  EXPECT_EQ(ProfileDigest(reversed), ProfileDigest(Example()));
  EXPECT_EQ(ProfileDigest(reversed).substr(0, 7), "sha256:");
}

TEST(Profile, PutReplacesTheEntryOfTheSameIdentity) {
  Profile profile = Example();
  profile.Put(KernelEntry{"copy fp32 fp32 n=10", 2, 99, Distribution::Constant(Seconds(1))});
  EXPECT_EQ(profile.kernels.size(), 2u);
  EXPECT_EQ(profile.FindKernel("copy fp32 fp32 n=10", 2)->count, 99);
  profile.Put(KernelEntry{"copy fp32 fp32 n=10", 4, 1, {}});
  EXPECT_EQ(profile.kernels.size(), 3u);
}

TEST(Profile, ShowsPercentilesAndCountBesideEveryTime) {
  const std::string line =
      R"({"key": "copy fp32 fp32 n=10", "ranks": 2, "count": 50, "time_s": {"p10": 4e-12, "p50": 6e-12, "p90": 8e-12, )"
      R"("quantiles": [1e-12,2e-12,3e-12,4e-12,5e-12,6e-12,7e-12,8e-12,9e-12,1e-11,1.1e-11,1.2e-11]}})";
  EXPECT_NE(ProfileJson(Example()).find(line), std::string::npos) << ProfileJson(Example());
}

TEST(Profile, RefusesAnotherSchemaVersion) {
  EXPECT_EQ(ErrorOf(Edited("windtunnel/profile/1", "windtunnel/profile/2")),
            "p.json: $.schema is \"windtunnel/profile/2\", expected \"windtunnel/profile/1\" or "
            "\"windtunnel/device/1\"; measure the "
            "profile again with "
            "`windtunnel calibrate`");
}

TEST(Profile, NamesAWrongFieldByItsPath) {
  EXPECT_EQ(ErrorOf(Edited("\"cores\": 2", "\"cores\": \"two\"")),
            "p.json: $.cores is string \"two\", expected a whole number of at least 1");
  EXPECT_EQ(ErrorOf(Edited("\"fingerprint\": \"1a2b3c4d\",", "")),
            "p.json: $.fingerprint is missing, expected a string");
}

TEST(Profile, NamesTheLineOfWhatIsNotJson) {
  EXPECT_EQ(ErrorOf("{\n  \"schema\": nonsense\n}").substr(0, 23), "p.json:2:14: is not JSO");
  EXPECT_EQ(ErrorOf("").substr(0, 11), "p.json:1:1:");
}

TEST(Profile, RefusesWhatNestsDeep) {
  EXPECT_EQ(ErrorOf("{\"name\": " + std::string(300'000, '[') + std::string(300'000, ']') + "}"),
            "p.json: nests deeper than 64, expected a hardware profile");
}

// The mistakes are in a list's entry, a field of the wrong type, an unknown schema, and a missing field,
// whose place is that of the object around it.
TEST(Profile, SaysWhereAMistakeStands) {
  const auto error = [](const std::string& json) { return ParseProfile(json, "p.json").error().message; };
  EXPECT_EQ(error("{\n  \"schema\": \"windtunnel/profile/1\",\n  \"name\": 3}"),
            "p.json:3:11: $.name is number 3, expected a string");
  EXPECT_EQ(error("{\n}"),
            "p.json:1:1: $.schema is missing, expected \"windtunnel/device/1\" or \"windtunnel/profile/1\"");
  EXPECT_EQ(error("{\n  \"schema\": \"windtunnel/profile/7\"}").substr(0, 25), "p.json:2:13: $.schema is ");
  const std::string text = Edited("\"count\": 50", "\"count\":\n0");
  const auto line =
      2 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find(":\n0")), '\n');
  EXPECT_EQ(error(text),
            fmt::format("p.json:{}:1: $.kernels[0].count is number 0, expected a whole number of at least 1",
                        line));
}

TEST(Profile, RefusesADuplicateKey) {
  EXPECT_EQ(ErrorOf(Edited("\"device\": \"cpu\"", "\"device\": \"cpu\", \"device\": \"cuda\"")),
            "p.json:4:20: duplicate key 'device', expected it once (it is already in line 4)");
}

TEST(Profile, RefusesAnUnknownField) {
  EXPECT_EQ(ErrorOf(Edited("\"core_time_s\"", "\"step_time_s\": 1, \"core_time_s\"")),
            "p.json: $.collectives[0].step_time_s is not a field of this schema");
}

TEST(Profile, RefusesAPercentileThatItsQuantilesContradict) {
  EXPECT_EQ(ErrorOf(Edited("\"p50\": 6e-12", "\"p50\": 5e-12")),
            "p.json: $.kernels[0].time_s.p50 is 5e-12, but the quantiles say 6e-12");
}

TEST(Profile, RefusesTwoEntriesOfOneIdentity) {
  Profile profile = Example();
  profile.outside_allocator.push_back(profile.outside_allocator[0]);
  EXPECT_EQ(ErrorOf(ProfileJson(profile)),
            "p.json: $.outside_allocator has two entries like {\"backend\": \"gloo\", \"ranks\": 2, "
            "\"bytes\": 32505856}");
}

TEST(Profile, RefusesValuesOutOfRange) {
  EXPECT_EQ(ErrorOf(Edited("\"count\": 50", "\"count\": 0")),
            "p.json: $.kernels[0].count is number 0, expected a whole number of at least 1");
  EXPECT_EQ(
      ErrorOf(Edited("\"collective_rate_under_compute\": 0.71", "\"collective_rate_under_compute\": 1.2")),
      "p.json: $.collectives[0].collective_rate_under_compute is number 1.2, expected a number in (0, 1]");
  EXPECT_NE(ErrorOf(Edited("[1e-12,2e-12", "[3e-12,2e-12")).find("expected 12 ascending times"),
            std::string::npos);
  EXPECT_EQ(ErrorOf("[]"), "p.json: $ is array [], expected an object");
  EXPECT_NE(ErrorOf(Edited("\"count\": 50", "\"count\": 1e999")).find("p.json: has a number out of range"),
            std::string::npos);
}

TEST(Profile, IsSavedAndLoaded) {
  const std::string path = ::testing::TempDir() + "/profile_test.json";
  ASSERT_TRUE(SaveProfile(Example(), path));
  EXPECT_EQ(ProfileJson(LoadProfile(path).value()), ProfileJson(Example()));
  std::remove(path.c_str());
  const auto missing = LoadProfile(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::kInvalidInput);
  EXPECT_EQ(missing.error().message,
            path + ": cannot be read (No such file or directory), expected a hardware profile");
}

TEST(Profile, IsSavedThroughALink) {
  const std::string file = ::testing::TempDir() + "/linked.json", link = ::testing::TempDir() + "/link.json";
  std::filesystem::create_symlink(file, link);
  ASSERT_TRUE(SaveProfile(Example(), link));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(ProfileJson(LoadProfile(file).value()), ProfileJson(Example()));
}

TEST(Profile, SavingWhereThereIsNoDirectoryFails) {
  const auto saved = SaveProfile(Example(), ::testing::TempDir() + "/no/such/directory/p.json");
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().kind, ErrorKind::kFailed);
}

}  // namespace
}  // namespace windtunnel
