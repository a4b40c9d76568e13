#include "sim/composed/rank_streams.h"

#include <cstdint>

namespace windtunnel::composed {

RankStreams::RankStreams(const Scenario& scenario, const RankShape& shape, const MeshGroups& groups,
                         Role& role)
    : groups_(groups), role_(role) {
  const ParallelSpec& parallel = scenario.parallel;
  const int64_t world = groups.world.ranks.size();
  Add(StreamKind::kCompute, "compute", kCompute);
  alone_ = std::make_unique<CollectiveStream>(role, kWorldAxis, 1, "");
  data_ = AddCollectives(kDataAxis, kData, "data");
  tensor_ = AddCollectives(kTensorAxis, kTensor, "tensor");
  expert_ = AddCollectives(kExpertAxis, kExpert, "expert");
  expert_part_ = parallel.TensorRanksHaveExperts()
                     ? AddCollectives(kExpertPartAxis, kExpertPart, "expert part")
                     : expert_;
  expert_data_ = AddCollectives(kExpertDataAxis, kExpertData, "expert data");
  world_ = data_->ranks() == world         ? data_
           : parallel.tensor.size == world ? tensor_
                                           : AddCollectives(kWorldAxis, kWorld, "world");
  const bool has_pipeline = parallel.pipeline.size > 1;
  const bool meets_stages = scenario.optimizer.clip_norm > 0 || scenario.precision.scales_loss();
  pipeline_ =
      has_pipeline && meets_stages ? AddCollectives(kPipelineAxis, kPipeline, "pipeline") : alone_.get();
  const bool has_embedding =
      has_pipeline && scenario.model.SharesEmbedding() && (shape.has_first || shape.has_last);
  embedding_ = has_embedding ? AddCollectives(kEmbeddingAxis, kEmbedding, "embedding") : alone_.get();
}

StreamId RankStreams::Add(StreamKind kind, const char* name, LocalStream local) {
  role_.streams.push_back(Stream{kind, name, -1});
  local_.push_back(local);
  axes_.push_back(-1);
  return static_cast<StreamId>(role_.streams.size()) - 1;
}

CollectiveStream* RankStreams::AddCollectives(AxisId axis, LocalStream local, const char* name) {
  const int ranks = static_cast<int>(groups_.Of(axis).ranks.size());
  collectives_.push_back(std::make_unique<CollectiveStream>(role_, axis, ranks, name));
  if (ranks > 1) {
    local_.push_back(local);
    axes_.push_back(axis);
  }
  return collectives_.back().get();
}

void RankStreams::SizeScratch() {
  for (auto& collectives : collectives_) collectives->SizeScratch();
}

}  // namespace windtunnel::composed
