#include "cost_models/profile_merge.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace windtunnel {
namespace {

std::string Versions(const Profile& profile) {
  std::string text;
  for (const auto& [library, version] : profile.libraries)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", library, version);
  return text.empty() ? "none" : text;
}

Status CheckAlike(const NamedProfile& a, const NamedProfile& b) {
  for (const NamedProfile* one : {&a, &b}) {
    if (one->profile.hardware)
      return InvalidInput("{} is a datasheet: it has no measurements to merge", one->name);
  }
  if (a.profile.device != b.profile.device || a.profile.fingerprint != b.profile.fingerprint)
    return InvalidInput("{} is of another machine than {} ({} {} and {} {}): their costs cannot be mixed",
                        b.name, a.name, b.profile.device, b.profile.fingerprint, a.profile.device,
                        a.profile.fingerprint);
  if (a.profile.libraries != b.profile.libraries)
    return InvalidInput("{} is of other library versions than {} ({}; and {}): their costs cannot be mixed",
                        b.name, a.name, Versions(b.profile), Versions(a.profile));
  return Ok();
}

bool HasDrift(const Profile& profile) {
  return std::any_of(profile.common_mode.begin(), profile.common_mode.end(), [](double x) { return x != 1; });
}

void PutAll(const Profile& from, Profile& into) {
  for (const KernelEntry& entry : from.kernels) into.Put(entry);
  for (const CollectiveEntry& entry : from.collectives) into.Put(entry);
  for (const OutsideAllocatorEntry& entry : from.outside_allocator) into.Put(entry);
  for (const auto& [ranks, dispatch] : from.dispatch) into.dispatch[ranks] = dispatch;
  if (HasDrift(from)) into.common_mode = from.common_mode;
}

// Puts the entries into `merged`, and returns how many are new to it. Called from the newest profile on.
int64_t CountNew(const Profile& from, Profile& merged) {
  const auto entries = [](const Profile& p) {
    return static_cast<int64_t>(p.kernels.size() + p.collectives.size() + p.outside_allocator.size() +
                                p.dispatch.size());
  };
  const int64_t before = entries(merged);
  PutAll(from, merged);
  return entries(merged) - before;
}

}  // namespace

Result<MergedProfile> MergeProfiles(const std::vector<NamedProfile>& profiles) {
  WT_CHECK(!profiles.empty());
  for (const NamedProfile& one : profiles) WT_RETURN_IF_ERROR(CheckAlike(profiles.front(), one));
  std::vector<size_t> by_age(profiles.size());
  std::iota(by_age.begin(), by_age.end(), 0);
  // ISO 8601 dates sort as text.
  std::stable_sort(by_age.begin(), by_age.end(), [&](size_t a, size_t b) {
    return profiles[a].profile.created < profiles[b].profile.created;
  });
  MergedProfile merged{profiles[by_age.back()].profile};
  merged.profile.kernels.clear();
  merged.profile.collectives.clear();
  merged.profile.outside_allocator.clear();
  merged.profile.dispatch.clear();
  merged.profile.common_mode.fill(1);
  for (size_t index : by_age) PutAll(profiles[index].profile, merged.profile);
  Profile counted;
  merged.entries_from.resize(profiles.size());
  for (auto index = by_age.rbegin(); index != by_age.rend(); ++index)
    merged.entries_from[*index] = CountNew(profiles[*index].profile, counted);
  return merged;
}

}  // namespace windtunnel
