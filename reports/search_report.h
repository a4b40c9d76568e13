// What `windtunnel search` found, as a table and as JSON (schema "windtunnel/search/1", docs/contract.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "reports/ink.h"
#include "reports/outcome.h"
#include "scenarios/overrides.h"
#include "sim/search/pareto.h"
#include "sim/search/space.h"

namespace windtunnel {

// What is predicted of a configuration: the result's `predicted` block, or the known part of it, and the
// numbers of it that tables show.
struct FoundPrediction {
  std::string json;  // the block, as JSON text
  Throughput throughput;
  std::optional<double> mfu;
  // The device memory that the allocator reserves, with what is outside it; only in a whole block.
  std::optional<Bytes> reserved;

  bool is_in_full() const { return reserved.has_value(); }
};

// A configuration with its prediction.
struct FoundConfiguration {
  Choice choice;
  Configuration configuration;
  Scenario scenario;                // with the configuration applied
  std::vector<Override> overrides;  // turn the scenario's file into `scenario` when it is loaded
  FoundPrediction predicted;
  // Whether the step time leaves out the contention of collectives of different groups for network cards
  // (SharesCards).
  bool is_lower_bound = false;
};

struct SearchReport {
  std::string scenario, scenario_digest, profile, profile_digest;
  std::vector<std::string> subject;  // lines: the model, and what else all configurations have in common
  std::string profile_option, framework_option;  // --profile and --framework-profile; empty: not given
  Bytes device_memory{};                         // 0: not known
  int64_t combinations = 0, legal = 0;
  std::map<std::string, int64_t> illegal, refused;  // by reason
  int64_t evaluated = 0, infeasible = 0;
  int64_t fragmented = 0;  // evaluated, but the allocator's segments do not fit (Predict's `fits` is false)
  // Fit only by giving back cached memory in every step; reported only if nothing else is left.
  int64_t tight = 0;
  // If no configuration fits, the one that needs least.
  struct Least {
    Bytes memory;
    std::string configuration;
  };
  std::optional<Least> least = {};
  int64_t resumed = 0;  // those of the evaluated, infeasible and refused that were known from the state file
  double configurations_per_s = 0, configurations_per_cpu_s = 0, wall_s = 0;
  double full_s = 0;                       // spent on predicting the best in full; not part of wall_s
  std::vector<FoundConfiguration> pareto;  // the best first
  std::vector<FoundConfiguration> top;     // the fastest, as many as were asked for
};

inline constexpr char kSearchSchema[] = "windtunnel/search/1";

std::string SearchJson(const SearchReport& report);
// `verbose`: with the reasons why combinations were left out.
std::string SearchTable(const SearchReport& report, bool verbose, Ink ink);

// One line: the best.
std::string SearchVerdict(const SearchReport& report, Ink ink);

// The whole block. REQUIRES: outcome.prediction.
FoundPrediction PredictedInFull(const Outcome& outcome);
// The part of that block that follows from a step time alone. Reads only the plan's scenario, world size and
// model statistics.
FoundPrediction Composed(const Plan& plan, const Profile& profile, Duration step);

}  // namespace windtunnel
