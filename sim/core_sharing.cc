#include "sim/core_sharing.h"

namespace windtunnel {
namespace {

constexpr double kUnset = -1;

// The part of the core that claims at their demand leave over, divided by the weight of the other claims.
double Level(std::span<const CoreClaim> claims) {
  double left = 1, weight = 0;
  for (const CoreClaim& claim : claims) {
    if (claim.share == kUnset) weight += claim.weight;
    else left -= claim.share;
  }
  return weight > 0 ? left / weight : 0;
}

}  // namespace

void ShareCore(std::span<CoreClaim> claims) {
  for (CoreClaim& claim : claims) claim.share = kUnset;
  // Each round satisfies the claims whose demand lies below the level that an equal split would reach; what
  // they leave raises the level for the rest, so no claim satisfied earlier has to give anything back.
  for (bool satisfied_any = true; satisfied_any;) {
    satisfied_any = false;
    const double level = Level(claims);
    for (CoreClaim& claim : claims) {
      if (claim.share != kUnset || claim.demand > claim.weight * level) continue;
      claim.share = claim.demand;
      satisfied_any = true;
    }
  }
  const double level = Level(claims);
  for (CoreClaim& claim : claims) {
    if (claim.share == kUnset) claim.share = claim.weight * level;
  }
}

}  // namespace windtunnel
