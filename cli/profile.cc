#include <algorithm>

#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/paths.h"
#include "cli/session.h"
#include "reports/profile_table.h"
#include "runtime/live.h"

namespace windtunnel {
namespace {

// Adds what `from` holds to `into`, replacing entries of the same identity.
void MergeInto(const Profile& from, Profile& into) {
  for (const KernelEntry& entry : from.kernels) into.Put(entry);
  for (const CollectiveEntry& entry : from.collectives) into.Put(entry);
  for (const OutsideAllocatorEntry& entry : from.outside_allocator) into.Put(entry);
  for (const auto& [ranks, dispatch] : from.dispatch) into.dispatch[ranks] = dispatch;
  bool measured =
      std::any_of(from.common_mode.begin(), from.common_mode.end(), [](double x) { return x != 1; });
  if (measured) into.common_mode = from.common_mode;
  into.created = std::max(into.created, from.created);  // ISO 8601 orders as text
}

// Names the entry whose cost cannot be one, or nothing.
std::string FindBadCost(const Profile& profile) {
  for (const KernelEntry& entry : profile.kernels)
    if (entry.time.values().front() <= Duration()) return entry.key;
  for (const CollectiveEntry& entry : profile.collectives)
    if (entry.time.values().front() <= Duration()) return entry.op;
  return "";
}

}  // namespace

Result<int> ProfileShowCommand(const Options& options) {
  for (const std::string& file : options.files) {
    WT_ASSIGN_OR_RETURN(Costs costs, LoadNamedCosts(file));
    fmt::print("{}", ProfileTable(costs.profile, StandardInk()));
  }
  return 0;
}

Result<int> ProfileMergeCommand(const Options& options) {
  WT_ASSIGN_OR_RETURN(Costs merged, LoadNamedCosts(options.files.front()));
  if (merged.profile.hardware)
    return InvalidInput("{} is a datasheet: it has no measurements to merge", merged.path);
  for (size_t i = 1; i < options.files.size(); ++i) {
    WT_ASSIGN_OR_RETURN(Costs next, LoadNamedCosts(options.files[i]));
    if (!IsOfThisMachine(next.profile, merged.profile))
      return InvalidInput(
          "{} is of another machine or other library versions than {}: their costs cannot be mixed",
          next.path, merged.path);
    MergeInto(next.profile, merged.profile);
  }
  WT_RETURN_IF_ERROR(WriteText(options.out.empty() ? "-" : options.out, ProfileJson(merged.profile)));
  return 0;
}

Result<int> ProfileCheckCommand(const Options& options) {
  for (const std::string& file : options.files) {
    WT_ASSIGN_OR_RETURN(Costs costs, LoadNamedCosts(file));
    if (std::string bad = FindBadCost(costs.profile); !bad.empty())
      return InvalidInput("{}: the time of '{}' is not positive", costs.path, bad);
    if (costs.profile.hardware) {
      fmt::print("{}: well formed, a datasheet of {}\n", costs.path, costs.profile.hardware->description);
      continue;
    }
    fmt::print("{}: well formed, {} kernels, {} collectives; {}\n", costs.path, costs.profile.kernels.size(),
               costs.profile.collectives.size(),
               costs.of_this_machine ? "of this machine and its libraries"
                                     : "not of this machine and its libraries");
  }
  return 0;
}

}  // namespace windtunnel
