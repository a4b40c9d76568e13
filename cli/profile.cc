#include "cost_models/profile_check.h"
#include "cost_models/profile_merge.h"

#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/notes.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "reports/profile_table.h"

namespace windtunnel {
namespace {

// "1,234 kernels, 12 collectives; of this machine and its libraries"
std::string WhatItIs(const Costs& costs) {
  const Profile& profile = costs.profile;
  if (profile.hardware) return fmt::format("a datasheet of {}", profile.hardware->description);
  return fmt::format(
      "{} kernels, {} collectives; {}", profile.kernels.size(), profile.collectives.size(),
      costs.of_this_machine ? "of this machine and its libraries" : "not of this machine and its libraries");
}

}  // namespace

Result<int> ProfileShowCommand(const Options& options) {
  for (const std::string& file : options.files) {
    WT_ASSIGN_OR_RETURN(Costs costs, LoadCostsOf(file));
    const std::string table = ProfileTable(costs.profile, StandardInk());
    WT_RETURN_IF_ERROR(Print((file == options.files.front() ? "" : "\n") + table));
  }
  return 0;
}

Result<int> ProfileMergeCommand(const Options& options) {
  WT_RETURN_IF_ERROR(CheckOutputFiles(options));
  std::vector<NamedProfile> profiles;
  for (const std::string& file : options.files) {
    WT_ASSIGN_OR_RETURN(Costs costs, LoadCostsOf(file));
    profiles.push_back({costs.path, std::move(costs.profile)});
  }
  WT_ASSIGN_OR_RETURN(const MergedProfile merged, MergeProfiles(profiles));
  for (size_t i = 0; i < profiles.size(); ++i)
    Note(options, fmt::format("{} entries are of {} ({})", merged.entries_from[i], profiles[i].name,
                              profiles[i].profile.created));
  WT_RETURN_IF_ERROR(WriteText(options.out.empty() ? "-" : options.out, ProfileJson(merged.profile)));
  return 0;
}

Result<int> ProfileCheckCommand(const Options& options) {
  int status = 0;
  const Ink ink = StandardInk();
  for (const std::string& file : options.files) {
    WT_ASSIGN_OR_RETURN(Costs costs, LoadCostsOf(file));
    const std::vector<ProfileFinding> findings = CheckProfile(costs.profile);
    WT_RETURN_IF_ERROR(Print(
        fmt::format("{}: well formed, {}\n{}", costs.path, WhatItIs(costs), FindingsTable(findings, ink))));
    if (!findings.empty() && findings.front().impossible) status = kOutsideTolerance;
  }
  return status;
}

}  // namespace windtunnel
