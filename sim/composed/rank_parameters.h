// The parameters of a pipeline rank's stages, and the calls of a strategy that the model makes for them.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "plan/step_program.h"
#include "sim/composed/backward_kind.h"
#include "sim/composed/rank_strategy.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

// Maps the indices of parameters in a Part (StageTemplate) to those in the rank's role.
struct PartParameters {
  int first = 0;
  // From this index on they are those behind the stage's layers, which begin at `tail`.
  int heads = std::numeric_limits<int>::max();
  int tail = 0;

  int operator()(int local) const { return local < heads ? first + local : tail + local - heads; }
};

class RankParameters {
 public:
  // Adds them to `role`. `shape` must outlive it.
  RankParameters(const RankShape& shape, Role& role);

  // The first of each stage of the rank.
  const std::vector<int>& first_of_stages() const { return first_of_stages_; }

  // Calls `on_call` for each operator that writes gradients in the first or last backwards of the rank's
  // stages (RankShape::passes), and `after` after each pass.
  using OnCall = std::function<void(const GradientCalls& calls, const PartParameters& parameter)>;
  using AfterPass = std::function<void(BackwardPass pass)>;
  void ForEachCall(
      bool is_first, const OnCall& on_call, const AfterPass& after = [](BackwardPass) {}) const;

  // Calls `on_use` for each operator before which values are requested, in a forward of each stage, with the
  // parameters in the role.
  using OnUse = std::function<void(const std::vector<int>& parameters)>;
  void ForEachUse(const OnUse& on_use) const;

 private:
  // Of a stage: the first parameter in its layers; those outside of them.
  int FirstInLayers(size_t stage) const;
  PartParameters OutsideOfLayers(size_t stage) const;

  const RankShape& shape_;
  std::vector<int> first_of_stages_;
};

}  // namespace windtunnel::composed
