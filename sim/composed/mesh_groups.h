// One group of each axis of a mesh, without the others: of those that lie alike the first.
#pragma once

#include <vector>

#include "base/result.h"
#include "plan/step_program.h"
#include "scenarios/scenario.h"

namespace windtunnel::composed {

// The axes that the composed evaluator knows, numbered in a way of its own.
inline constexpr AxisId kWorldAxis = 0, kDataAxis = 1, kTensorAxis = 2, kContextAxis = 3, kPipelineAxis = 4,
                        kEmbeddingAxis = 5, kMessageAxis = 6, kMessageBeyondAxis = 7, kExpertAxis = 8,
                        kExpertDataAxis = 9, kExpertPartAxis = 10;

struct MeshGroups {
  // data: of all with the same weights, contexts and replicas. expert_data: of those of them with the same experts, where ranks share them.
  // expert_part: of the expert group those of one tensor rank, where tensor ranks have experts of their own.
  Group world, data, tensor, context, expert, expert_data, expert_part, pipeline, embedding;
  // Of two pipeline ranks: each and the next one; and the last and the first.
  std::vector<Group> messages;

  const Group& Of(AxisId axis) const;
};

// Unsupported where groups of an axis (but for messages) do not lie alike across nodes.
Result<MeshGroups> MeshGroupsOf(const Scenario& scenario);

}  // namespace windtunnel::composed
