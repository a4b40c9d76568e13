// Where a model drops elements: the random numbers of one use of dropout.
#pragma once

#include <cstdint>
#include <string_view>

namespace windtunnel {

// Which elements are dropped follows from run.seed, the step, this site, and an element's place in the batch
// of all replicas and in the whole model (runtime/dropout_mask.h). So it does not depend on how these are
// divided among ranks, and recomputation drops the same elements again. It does not affect the cost, except
// that an operator that drops within its kernel has to make the numbers.
struct DropoutSite {
  double share = 0;  // of elements that become zero; the others are scaled by 1 / (1 - share). 0: no dropout
  uint64_t stream = 0;  // of random numbers
  int32_t micro_batch = 0;

  bool drops() const { return share > 0; }
};

// The site's stream follows from its name, which is unique in the model (FNV-1a), and, if a micro-batch comes
// by several times, from the number of the visit.
constexpr DropoutSite DropoutSiteOf(double share, std::string_view name, int micro_batch, int visit = 0) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  const auto mix = [&](uint64_t word) { hash = (hash ^ word) * 0x100000001B3ULL; };
  for (const char c : name) mix(static_cast<unsigned char>(c));
  if (visit > 0) mix(static_cast<uint64_t>(visit));
  return {share, hash, micro_batch};
}

}  // namespace windtunnel
