// The options of Slurm's sbatch and srun as settings.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "scenarios/importers/settings.h"

namespace windtunnel {

struct SlurmOptions {
  std::vector<Setting> settings;
  size_t words = 0;  // how many words they are
};

// The options that `words` begin with, by their long names: "nodes" is 2 in "--nodes=2", "--nodes 2", "-N 2"
// and "-N2". Other short options than those of nodes and tasks are left out. The devices of "--gres=gpu:8"
// are "gpus_per_node", without their kind ("h100:8").
SlurmOptions ReadSlurmOptions(std::span<const std::string> words);

}  // namespace windtunnel
