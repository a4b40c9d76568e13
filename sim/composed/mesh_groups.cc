#include "sim/composed/mesh_groups.h"

#include "base/check.h"

namespace windtunnel::composed {
namespace {

Group Ranks(const char* name, int64_t count, int64_t stride) {
  Group group{name, {}};
  for (int64_t i = 0; i < count; ++i) group.ranks.push_back(static_cast<int>(i * stride));
  return group;
}

}  // namespace

const Group& MeshGroups::Of(AxisId axis) const {
  switch (axis) {
    case kWorldAxis:
      return world;
    case kDataAxis:
      return data;
    case kTensorAxis:
      return tensor;
    case kContextAxis:
      return context;
    case kExpertAxis:
      return expert;
    case kExpertDataAxis:
      return expert_data;
    case kExpertPartAxis:
      return expert_part;
    case kPipelineAxis:
      return pipeline;
    default:
      WT_CHECK_EQ(axis, kEmbeddingAxis);
      return embedding;
  }
}

Result<MeshGroups> MeshGroupsOf(const Scenario& scenario) {
  const ParallelSpec& parallel = scenario.parallel;
  const int64_t tensor = parallel.tensor.size, context = parallel.context.size;
  const bool of_tensor = parallel.TensorRanksHaveExperts();
  const int64_t experts = parallel.expert.size, part = parallel.ExpertDataRanks();
  const int64_t copies = context * parallel.data.size, pipeline = parallel.pipeline.size;
  const int64_t stage = tensor * copies, world = stage * pipeline;
  const int64_t node = std::max<int64_t>(scenario.cluster.devices_per_node, 1);
  // Either each node has whole stages; or stages consist of whole nodes, and tensor groups divide nodes or
  // nodes divide tensor groups, and likewise for context and expert groups.
  const bool has_whole_stages = world <= node || node % stage == 0;
  const auto divides = [node](int64_t ranks) { return node % ranks == 0 || ranks % node == 0; };
  const bool has_whole_nodes =
      stage % node == 0 && divides(tensor) && divides(tensor * context) && divides(tensor * part);
  if (!has_whole_stages && !has_whole_nodes) return Unsupported("groups that do not lie alike");
  MeshGroups groups;
  groups.world = Ranks("world", world, 1);
  groups.data = Ranks("data", copies, tensor);
  groups.tensor = Ranks("tensor", tensor, 1);
  groups.context = Ranks("context", context, tensor);
  groups.expert = Ranks("expert", experts, of_tensor ? 1 : tensor);
  groups.expert_data = Ranks("expert data", part > 1 ? copies / part : 1, tensor * part);
  groups.expert_part = Ranks("expert part", of_tensor ? part : 1, tensor);
  groups.pipeline = Ranks("pipeline", pipeline, stage);
  groups.embedding = Ranks("embedding", 2, stage * (pipeline - 1));
  for (int64_t rank = 0; rank < pipeline; ++rank) {
    const int64_t next = (rank + 1) % pipeline;
    groups.messages.push_back({"message", {static_cast<int>(rank * stage), static_cast<int>(next * stage)}});
  }
  return groups;
}

}  // namespace windtunnel::composed
