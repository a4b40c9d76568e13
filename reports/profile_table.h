// A hardware profile for people: the machine, then every cost with its spread.
#pragma once

#include <string>

#include "cost_models/profile.h"
#include "reports/ink.h"

namespace windtunnel {

std::string ProfileTable(const Profile& profile, Ink ink);

}  // namespace windtunnel
