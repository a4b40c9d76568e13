// A hardware profile as a table: the machine, then every cost with its spread.
#pragma once

#include <string>
#include <vector>

#include "cost_models/profile.h"
#include "cost_models/profile_check.h"
#include "reports/ink.h"

namespace windtunnel {

std::string ProfileTable(const Profile& profile, Ink ink);
// One line per finding.
std::string FindingsTable(const std::vector<ProfileFinding>& findings, Ink ink);

}  // namespace windtunnel
