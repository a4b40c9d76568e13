// One group of each axis of a mesh: the first, which stands for the others, since they have the same layout.
#pragma once

#include <vector>

#include "base/result.h"
#include "plan/step_program.h"
#include "scenarios/scenario.h"

namespace windtunnel::composed {

// The axes that the composed evaluator knows. Their numbers are its own, not those of a plan.
inline constexpr AxisId kWorldAxis = 0, kDataAxis = 1, kTensorAxis = 2, kContextAxis = 3, kPipelineAxis = 4,
                        kEmbeddingAxis = 5, kMessageAxis = 6, kMessageBeyondAxis = 7, kExpertAxis = 8,
                        kExpertDataAxis = 9, kExpertPartAxis = 10;

struct MeshGroups {
  // data: all ranks with the same weights, over contexts and replicas. expert_data: those of them with the
  // same experts, if ranks share experts. expert_part: the ranks of the expert group with one tensor rank, if
  // tensor ranks have experts of their own.
  Group world, data, tensor, context, expert, expert_data, expert_part, pipeline, embedding;
  // Pairs of pipeline ranks: each with the next one, and the last with the first.
  std::vector<Group> messages;

  const Group& Of(AxisId axis) const;
};

// Unsupported if groups of an axis (except messages) have different layouts across nodes.
Result<MeshGroups> MeshGroupsOf(const Scenario& scenario);

}  // namespace windtunnel::composed
