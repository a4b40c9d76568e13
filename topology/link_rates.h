// What collectives achieve over links between devices of a node and over network cards.
#pragma once

#include <string>

#include "base/result.h"
#include "base/units.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// A link between the devices of a node: what its vendor says of one direction, and what a ring achieves over it.
struct LinkRates {
  Bandwidth nominal, ring;
  bool is_nvlink = false;
  Duration latency = {};  // of a hop, beyond NCCL's own

  bool operator==(const LinkRates&) const = default;
};
// Errors: InvalidInput for a kind that devices of a node are not linked by, or no link at all.
Result<LinkRates> IntraNodeRates(const LinkSpec& link, const std::string& default_kind);

// A network card: what its vendor says of one direction, what a ring achieves over it, and the latency to another node beyond NCCL's
// own.
struct NicRates {
  Bandwidth nominal, rate;
  Duration latency;
};
// Errors: InvalidInput where the bandwidth of a network card is not named.
Result<NicRates> InterNodeRates(const LinkSpec& link);

}  // namespace windtunnel
