// What a configuration of a search takes: the step's time and the memory of its fullest rank, equal to what Predict says of the same
// scenario, to the picosecond and the byte. But where groups share cards (SharesCards, cost_models/cost_model.h) and a step is composed, its time
// leaves that out.
//
//   Evaluator evaluator(scenario, profile);
//   const Evaluation evaluation = evaluator.Evaluate(space.legal[i]);   // from any thread
#pragma once

#include <memory>
#include <string>

#include "base/units.h"
#include "cost_models/profile.h"
#include "sim/search/space.h"

namespace windtunnel {

struct Evaluation {
  // kInfeasible: needs more memory than the device has; its time is not known. kRefused: cannot be predicted, `reason` says why.
  enum class Outcome : uint8_t { kFeasible, kInfeasible, kRefused };
  Outcome outcome = Outcome::kRefused;
  Duration step_time = {};      // Prediction::p50
  bool is_lower_bound = false;  // which leaves out what groups take from each other on network cards
  // The largest MemoryPeak::requested over roles, and what is outside the allocator.
  Bytes memory = {};
  std::string reason = {};
};

struct EvaluatorOptions {
  bool composes = true;  // false: operator by operator always, as Predict
  // Of what is infeasible, too, the whole peak. False: a peak is followed until it is more than the device has.
  bool follows_peaks = false;
};

class Evaluator {
 public:
  // Both outlive it.
  Evaluator(const Scenario& base, const Profile& profile, const EvaluatorOptions& options = {});
  ~Evaluator();

  Evaluation Evaluate(const Configuration& configuration) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace windtunnel
