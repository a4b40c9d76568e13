// How many ranks there are, from the scenario's cluster.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "scenarios/importers/draft.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

// The product, or the largest number if it is larger.
int64_t Product(std::initializer_list<int64_t> factors);

// Sets cluster.nodes and cluster.devices_per_node from the flags of torchrun, deepspeed, mpirun and sbatch,
// unless `draft` has them, and returns the number of ranks; nothing if it is not known. Notes a mistake in
// `settings` for what is not said of the cluster, the device and the network among that.
std::optional<int64_t> SetCluster(Settings& settings, Draft& draft);

// The ranks of data parallelism: `world` over those of tensor, pipeline and context parallelism. Notes a
// mistake if that is no whole number.
std::optional<int64_t> DataRanks(int64_t world, int64_t tensor, int64_t pipeline, int64_t context,
                                 Settings& settings);

}  // namespace windtunnel
