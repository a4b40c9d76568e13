// What the files that a run reads contain. Ranks and nodes compare it, since each opens a file of its own by
// that path, perhaps on another machine.
#pragma once

#include <string>

#include "scenarios/scenario.h"

namespace windtunnel {

// A line for each of the scenario's text (`data`), its schedule's file and the weights to import (empty:
// none), if there are such: size and digest. The digest is of the size and of the first and last MiB, so that
// weights of any size take no time. A file that cannot be read is described as that; who needs it says why.
std::string DescribeInputFiles(const Scenario& scenario, const std::string& import_weights);

// The digest of the scenario's text, whatever the file's name; empty for synthetic data, and if it cannot be
// read.
std::string DigestOfData(const Scenario& scenario);

}  // namespace windtunnel
