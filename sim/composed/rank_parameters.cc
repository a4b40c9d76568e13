#include "sim/composed/rank_parameters.h"

#include <cstdint>

namespace windtunnel::composed {

RankParameters::RankParameters(const RankShape& shape, Role& role) : shape_(shape) {
  size_t parameters = 0;
  for (size_t i = 0; i < shape.stages.size(); ++i) {
    const StageTemplate& stage = *shape.stages[i];
    parameters += stage.head.size() + stage.tail.size();
    for (size_t unit = 0; unit < stage.units.size(); ++unit)
      parameters += stage.units[unit].size() * static_cast<size_t>(shape.units[i][unit].count);
  }
  role.parameters.reserve(parameters);
  for (size_t i = 0; i < shape.stages.size(); ++i) {
    const StageTemplate* stage = shape.stages[i];
    first_of_stages_.push_back(static_cast<int>(role.parameters.size()));
    const auto add = [&](const std::vector<Parameter>& added) {
      role.parameters.insert(role.parameters.end(), added.begin(), added.end());
    };
    add(stage->head);
    for (size_t unit = 0; unit < stage->units.size(); ++unit)
      for (int64_t n = 0; n < shape.units[i][unit].count; ++n) add(stage->units[unit]);
    add(stage->tail);
  }
}

int RankParameters::FirstInLayers(size_t stage) const {
  return first_of_stages_[stage] + static_cast<int>(shape_.stages[stage]->head.size());
}

PartParameters RankParameters::OutsideOfLayers(size_t stage) const {
  const StageTemplate& of = *shape_.stages[stage];
  PartParameters parameters{.first = first_of_stages_[stage],
                            .heads = static_cast<int>(of.head.size()),
                            .tail = FirstInLayers(stage)};
  for (size_t unit = 0; unit < of.units.size(); ++unit)
    parameters.tail +=
        static_cast<int>(of.units[unit].size()) * static_cast<int>(shape_.units[stage][unit].count);
  return parameters;
}

void RankParameters::ForEachCall(bool is_first, const OnCall& on_call, const AfterPass& after) const {
  for (const BackwardPass which : is_first ? shape_.passes.first : shape_.passes.last) {
    const auto i = static_cast<size_t>(which.chunk);
    const StageTemplate& stage = *shape_.stages[i];
    const StagePass& pass =
        (is_first ? stage.first_backward : stage.backward)[static_cast<size_t>(which.kind)];
    const PartParameters outside = OutsideOfLayers(i);
    for (const GradientCalls& calls : pass.before.gradients) on_call(calls, outside);
    PartParameters in_unit{.first = outside.tail};
    for (size_t unit = stage.units.size(); unit-- > 0;) {
      for (int64_t n = 0; n < shape_.units[i][unit].count; ++n) {
        in_unit.first -= static_cast<int>(stage.units[unit].size());
        for (const GradientCalls& calls : pass.units[unit].gradients) on_call(calls, in_unit);
      }
    }
    for (const GradientCalls& calls : pass.after.gradients) on_call(calls, outside);
    after(which);
  }
}

void RankParameters::ForEachUse(const OnUse& on_use) const {
  const auto use = [&](const Part& part, const PartParameters& parameter) {
    for (std::vector<int> parameters : part.values) {
      for (int& local : parameters) local = parameter(local);
      on_use(parameters);
    }
  };
  for (size_t i = 0; i < shape_.stages.size(); ++i) {
    const StageTemplate& stage = *shape_.stages[i];
    const PartParameters outside = OutsideOfLayers(i);
    use(stage.forward.before, outside);
    PartParameters in_unit{.first = FirstInLayers(i)};
    for (size_t unit = 0; unit < stage.units.size(); ++unit) {
      for (int64_t n = 0; n < shape_.units[i][unit].count; ++n) {
        use(stage.forward.units[unit], in_unit);
        in_unit.first += static_cast<int>(stage.units[unit].size());
      }
    }
    use(stage.forward.after, outside);
  }
}

}  // namespace windtunnel::composed
