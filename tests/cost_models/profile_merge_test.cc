#include "cost_models/profile_merge.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace windtunnel {
namespace {

Profile Measured(const std::string& created, const std::map<std::string, double>& kernels_us) {
  Profile profile;
  profile.name = "cpu-example";
  profile.device = "cpu";
  profile.fingerprint = "1a2b";
  profile.libraries = {{"gloo", "0.5"}};
  profile.created = created;
  for (const auto& [key, us] : kernels_us)
    profile.Put(KernelEntry{key, 2, 50, Distribution::Constant(Microseconds(us))});
  return profile;
}

double Microseconds(const Profile& profile, const std::string& key) {
  const KernelEntry* entry = profile.FindKernel(key, 2);
  return entry == nullptr ? -1 : entry->time.p50() / windtunnel::Microseconds(1);
}

std::string ErrorOf(const Profile& a, const Profile& b) {
  const auto merged = MergeProfiles({{"a.json", a}, {"b.json", b}});
  return merged ? "no error" : merged.error().message;
}

TEST(MergeProfiles, UnitesTheTablesAndTheNewerMeasurementCounts) {
  const Profile older = Measured("2024-01-01T00:00:00Z", {{"a", 1}, {"b", 1}});
  const Profile newer = Measured("2024-02-01T00:00:00Z", {{"b", 2}, {"c", 2}});
  for (bool newer_first : {false, true}) {
    const std::vector<NamedProfile> given = newer_first
                                                ? std::vector<NamedProfile>{{"new", newer}, {"old", older}}
                                                : std::vector<NamedProfile>{{"old", older}, {"new", newer}};
    const auto merged = MergeProfiles(given);
    ASSERT_TRUE(merged);
    EXPECT_EQ(Microseconds(merged->profile, "a"), 1);
    EXPECT_EQ(Microseconds(merged->profile, "b"), 2);
    EXPECT_EQ(Microseconds(merged->profile, "c"), 2);
    EXPECT_EQ(merged->profile.created, newer.created);
    EXPECT_EQ(merged->entries_from,
              newer_first ? (std::vector<int64_t>{2, 1}) : (std::vector<int64_t>{1, 2}));
  }
}

TEST(MergeProfiles, OfTwoEquallyOldTheLaterOneCounts) {
  const std::string day = "2024-01-01T00:00:00Z";
  const auto merged = MergeProfiles({{"a", Measured(day, {{"k", 1}})}, {"b", Measured(day, {{"k", 2}})}});
  ASSERT_TRUE(merged);
  EXPECT_EQ(Microseconds(merged->profile, "k"), 2);
}

TEST(MergeProfiles, TheDriftIsTheNewestThatWasMeasured) {
  Profile older = Measured("2024-01-01T00:00:00Z", {{"a", 1}});
  older.common_mode[7] = 1.25;
  const Profile newer = Measured("2024-02-01T00:00:00Z", {{"b", 2}});
  const auto merged = MergeProfiles({{"a", older}, {"b", newer}});
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->profile.common_mode[7], 1.25);
}

TEST(MergeProfiles, RefusesWhatIsNotOfOneMachine) {
  const Profile a = Measured("2024-01-01T00:00:00Z", {});
  Profile b = a;
  b.fingerprint = "ffff";
  EXPECT_EQ(ErrorOf(a, b),
            "b.json is of another machine than a.json (cpu ffff and cpu 1a2b): their costs cannot be mixed");
  b = a;
  b.libraries = {{"gloo", "0.6"}};
  EXPECT_EQ(ErrorOf(a, b),
            "b.json is of other library versions than a.json (gloo 0.6; and gloo 0.5): their costs cannot be "
            "mixed");
  const Profile datasheet = *ParseProfile(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g");
  EXPECT_EQ(ErrorOf(datasheet, a), "a.json is a datasheet: it has no measurements to merge");
  EXPECT_EQ(ErrorOf(a, datasheet), "b.json is a datasheet: it has no measurements to merge");
}

RC_GTEST_PROP(MergeProfiles, InAnyOrderTheSameWhereAgesDiffer, ()) {
  std::vector<NamedProfile> profiles;
  for (int month = 1; month <= 4; ++month) {
    std::map<std::string, double> kernels;
    for (int key : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 6)))
      kernels[std::to_string(key)] = month;
    profiles.push_back(
        {std::to_string(month), Measured(fmt::format("2024-0{}-01T00:00:00Z", month), kernels)});
  }
  const auto merged = MergeProfiles(profiles);
  std::rotate(profiles.begin(), profiles.begin() + *rc::gen::inRange(0, 4), profiles.end());
  const auto rotated = MergeProfiles(profiles);
  RC_ASSERT(merged && rotated);
  RC_ASSERT(ProfileJson(merged->profile) == ProfileJson(rotated->profile));
}

}  // namespace
}  // namespace windtunnel
