#include "cost_models/profile.h"

#include <system_error>

#include "base/digest.h"
#include "base/read_file.h"
#include "base/write_file.h"

namespace windtunnel {
namespace {

bool SameIdentity(const KernelEntry& a, const KernelEntry& b) { return a.key == b.key && a.ranks == b.ranks; }
bool SameIdentity(const CollectiveEntry& a, const CollectiveEntry& b) {
  return a.op == b.op && a.backend == b.backend && a.ranks == b.ranks && a.bytes == b.bytes;
}
bool SameIdentity(const OutsideAllocatorEntry& a, const OutsideAllocatorEntry& b) {
  return a.backend == b.backend && a.ranks == b.ranks;
}

template <typename Entry>
void ReplaceOrAdd(std::vector<Entry>& entries, Entry entry) {
  for (Entry& existing : entries) {
    if (SameIdentity(existing, entry)) {
      existing = std::move(entry);
      return;
    }
  }
  entries.push_back(std::move(entry));
}

}  // namespace

const KernelEntry* Profile::FindKernel(const std::string& key, int ranks) const {
  for (const KernelEntry& entry : kernels) {
    if (entry.ranks == ranks && entry.key == key) return &entry;
  }
  return nullptr;
}

const CollectiveEntry* Profile::FindCollective(const std::string& op, const std::string& backend, int ranks,
                                               Bytes bytes) const {
  for (const CollectiveEntry& entry : collectives) {
    if (entry.bytes == bytes && entry.ranks == ranks && entry.op == op && entry.backend == backend)
      return &entry;
  }
  return nullptr;
}

void Profile::Put(KernelEntry entry) { ReplaceOrAdd(kernels, std::move(entry)); }
void Profile::Put(CollectiveEntry entry) { ReplaceOrAdd(collectives, std::move(entry)); }
void Profile::Put(OutsideAllocatorEntry entry) { ReplaceOrAdd(outside_allocator, std::move(entry)); }

Result<Profile> LoadProfile(const std::string& path) {
  WT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, "a hardware profile"));
  return ParseProfile(text, path);
}

Status SaveProfile(const Profile& profile, const std::string& path) {
  if (const std::error_code error = WriteOutput(path, ProfileJson(profile)))
    return Failed("{}: the profile cannot be written: {}", path, error.message());
  return Ok();
}

std::string ProfileDigest(const Profile& profile) {
  const std::string framework = profile.framework ? profile.framework->digest : "";  // of its file
  return "sha256:" + Sha256Hex(ProfileJson(profile) + framework);
}

}  // namespace windtunnel
