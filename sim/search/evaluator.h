// What a configuration of a search takes: the step's time and the memory of its fullest rank. Both equal
// Predict's for the same scenario, to the picosecond and the byte. The exception is the time of a composed
// step if groups share cards (SharesCards, cost_models/cost_model.h): it is computed as if they did not.
//
//   Evaluator evaluator(scenario, profile);
//   const Evaluation evaluation = evaluator.Evaluate(space.legal[i]);   // from any thread
#pragma once

#include <memory>
#include <string>

#include "base/units.h"
#include "cost_models/profile.h"
#include "sim/search/configuration.h"

namespace windtunnel {

struct Evaluation {
  // kInfeasible: needs more memory than the device has; its time is not known. kRefused: cannot be predicted,
  // `reason` says why.
  enum class Outcome : uint8_t { kFeasible, kInfeasible, kRefused };
  Outcome outcome = Outcome::kRefused;
  Duration step_time = {};      // Prediction::p50
  bool is_lower_bound = false;  // it ignores that groups share network cards
  // The largest MemoryPeak::requested over roles, plus what is outside the allocator.
  Bytes memory = {};
  std::string reason = {};
};

struct EvaluatorOptions {
  // True: finds the whole peak even if it is infeasible. False: follows a peak only until it exceeds the
  // device's memory.
  bool follows_peaks = false;
};

class Evaluator {
 public:
  // `base` and `profile` must outlive it.
  Evaluator(const Scenario& base, const Profile& profile, const EvaluatorOptions& options = {});
  ~Evaluator();

  Evaluation Evaluate(const Configuration& configuration) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace windtunnel
