// Which configurations of a search are legal, and which of several equal ones is counted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "scenarios/scenario.h"
#include "sim/search/configuration.h"
#include "sim/search/space.h"

namespace windtunnel {

// Search's own reasons are the same text for many configurations, so that they can be counted. The loader's
// check has the last word.
class Legality {
 public:
  // `base` is the scenario without `search`, and `ranges` is that block. All must outlive it.
  Legality(const Scenario& base, const SearchSpec& ranges, const ChooseStages& choose);

  // Why the configuration is too large for the integers or the memory of later steps; null if it is not.
  const char* WhyTooLarge(const Configuration& c) const;

  // Nothing if the loader would accept the configuration, and no other is equal to it. Then its layers have
  // been given to its stages, and it has no shard size where it takes none.
  std::optional<std::string> WhyIllegal(Configuration& c);

 private:
  const char* WhyIllegalHere(Configuration& c);
  const char* WhyIllegalCluster(const Configuration& c) const;
  const char* WhyIllegalModel(const Configuration& c) const;
  const char* WhyIllegalTensor(const Configuration& c) const;
  const char* WhyIllegalModules(const Configuration& c) const;
  const char* WhyIllegalGraphs(const Configuration& c) const;
  const char* WhyIllegalLatents(const Configuration& c) const;
  const char* WhyIllegalPattern(const Configuration& c) const;
  const char* WhyIllegalGates(const Configuration& c) const;
  const char* WhyIllegalContext(const Configuration& c) const;
  const char* WhyIllegalData(const Configuration& c) const;
  const char* WhyIllegalShards(const Configuration& c) const;
  const char* WhyRepeatedKey(const Configuration& c) const;
  const char* WhyRepeatedExperts(const Configuration& c) const;
  const char* WhyIllegalPipeline(const Configuration& c);
  std::string WhyNotRun(const Configuration& c) const;
  const char* AssignLayers(Configuration& c) const;
  const char* WhyRepeatedLayers(const Configuration& c) const;

  const Scenario& base_;
  const SearchSpec& ranges_;
  const ChooseStages& choose_;
  const int64_t global_batch_;
  // By what a schedule depends on; empty if it runs.
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t, bool>, std::string> why_not_;
};

}  // namespace windtunnel
