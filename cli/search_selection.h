// The configurations that a search's report names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/costs.h"
#include "reports/search_report.h"
#include "sim/search/evaluator.h"
#include "sim/search/space.h"

namespace windtunnel {

// The overrides that make `made` of the file of `scenario`: `given` on the command line, and what the
// configuration changes. Errors: OverridesThatMake's.
Result<std::vector<Override>> OverridesFor(std::vector<Override> given, const Scenario& made,
                                           const Scenario& scenario);

// Compares the best configurations with predictions in full. Predicted in full are the best configuration,
// and all configurations that the report names with --full, or if that takes only a second or two. A
// configuration is struck off if its allocator's fragmentation does not let it fit the device, or if it
// cannot be predicted in full; also, unless nothing else is left, if it fits only by giving back cached
// memory in every step, which its step time does not contain. If collectives share network cards, the best
// takes longer in full than the evaluator said; then the next best is predicted, too, until the best one is
// best as predicted in full.
class Selection {
 public:
  // `given`: the command line's overrides.
  Selection(const Options& options, const Scenario& scenario, const SearchSpace& space, const Costs& costs,
            std::vector<Override> given, const std::vector<Evaluation>& evaluations);

  // Adds the Pareto front, the best configurations, and the counts of those struck off. Errors: Failed if
  // interrupted.
  Status Select(SearchReport& report);

 private:
  struct Verified {
    // Nothing: this machine had too little memory to predict it in full.
    std::optional<FoundPrediction> predicted;
    Duration step_time;
    Bytes memory;
    bool fits = true;
    bool is_tight = false;  // fits only by giving back cached memory in every step
  };

  std::vector<Choice> Top() const;
  std::vector<Choice> ToVerify(const std::vector<Choice>& front, const std::vector<Choice>& top) const;
  bool AreQuick(const std::vector<Choice>& choices) const;
  // Returns whether any configuration's values changed.
  Result<bool> Verify(const std::vector<Choice>& choices);
  std::vector<Choice>::iterator ChoiceOf(int64_t id);
  void Strike(int64_t id) { choices_.erase(ChoiceOf(id)); }
  // Returns whether it changes what is known of the configuration.
  bool Apply(int64_t id, const Verified& verified);
  Result<Verified> PredictInFull(int64_t id, int threads) const;
  // The evaluator's values, for a configuration that cannot be predicted in full here.
  Verified AsComposed(int64_t id, const std::string& why);
  FoundConfiguration Found(const Choice& choice) const;

  const Options& options_;
  const Scenario& scenario_;
  const SearchSpace& space_;
  const Costs& costs_;
  std::vector<Choice> choices_;
  // The choices whose step times are lower bounds, since the evaluator left something out.
  std::set<int64_t> lower_bounds_;
  const std::vector<Override> given_;
  std::map<int64_t, Verified> verified_;
  std::map<std::string, int64_t> refused_;  // by reason
  int64_t fragmented_ = 0;
  std::vector<Choice> tight_;  // struck off
};

}  // namespace windtunnel
