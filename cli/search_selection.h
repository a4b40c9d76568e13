// What a search's report names.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/costs.h"
#include "cli/session.h"
#include "reports/search_report.h"
#include "scenarios/difference.h"
#include "sim/search/evaluator.h"

namespace windtunnel {

// The best configuration is predicted in full (with --full the whole Pareto front; where that takes a second or two, all that is named): what the
// evaluator said is held against it, and what its allocator's fragments do not let into the device, or cannot be predicted so, is struck off.
// Where collectives share cards, the best takes longer in full than the evaluator said; then the next best is predicted, too, until one is the
// best as it is predicted.
class Selection {
 public:
  // `given` are the command line's overrides.
  Selection(const Options& options, const Scenario& scenario, const SearchSpace& space, const Costs& costs,
            std::vector<Override> given, const std::vector<Evaluation>& evaluations);

  // Adds the Pareto front, the best ones, and what was struck off. Errors: Failed when interrupted.
  Status Select(SearchReport& report);

 private:
  struct Verified {
    std::string predicted;  // empty: there was no memory to predict it in full
    Duration step_time;
    Bytes memory;
    bool fits = true;
  };

  std::vector<Choice> Top() const;
  std::vector<Choice> ToVerify(const std::vector<Choice>& front, const std::vector<Choice>& top) const;
  bool AreQuick(const std::vector<Choice>& choices) const;
  // Whether anything turned out otherwise.
  Result<bool> Verify(const std::vector<Choice>& choices);
  std::vector<Choice>::iterator ChoiceOf(int64_t id);
  void Strike(int64_t id) { choices_.erase(ChoiceOf(id)); }
  // Whether it changes what is known.
  bool Apply(int64_t id, const Verified& verified);
  Result<Verified> PredictInFull(int64_t id, int threads) const;
  // What is known of one that there is no memory for.
  Verified AsComposed(int64_t id);
  FoundConfiguration Found(const Choice& choice) const;

  const Options& options_;
  const Scenario& scenario_;
  const SearchSpace& space_;
  const Costs& costs_;
  std::vector<Choice> choices_;
  std::set<int64_t> lower_bounds_;  // of them, those whose step times the evaluator left something out of
  const std::vector<Override> given_;
  std::map<int64_t, Verified> verified_;
  std::map<std::string, int64_t> refused_;  // by reason
  int64_t fragmented_ = 0;
};

}  // namespace windtunnel
