// The device mesh: which rank does what in tensor, context, data and pipeline parallelism, and the groups that follow.
//
// Ranks that are next to each other share the tensor axis, then the context axis, then the data axis, then the pipeline (Megatron's
// order "tp-cp-ep-dp-pp"), so that what talks most is closest: rank = tensor + T (context + C (data + D pipeline)).
// The ranks that hold the same part of the weights, whose gradients are added up, are those of one tensor and pipeline place, of all
// contexts and replicas: the data axis has them all.
//
//   DeviceMesh mesh(scenario.parallel);            // pipeline 2, data 2: ranks 0 1 are the first stage's, 2 3 the second's
//   mesh.PlaceOf(3);                               // {.tensor = 0, .context = 0, .data = 1, .pipeline = 1}
//   mesh.PairAxis("pipeline 0>1", 0, 1).groups;    // {0, 2}, {1, 3}
#pragma once

#include <string>

#include "plan/step_program.h"
#include "scenarios/scenario.h"

namespace windtunnel {

struct MeshPlace {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
};

class DeviceMesh {
 public:
  DeviceMesh() = default;
  explicit DeviceMesh(const ParallelSpec& parallel);

  int tensor() const { return tensor_; }
  int context() const { return context_; }
  int data() const { return data_; }
  int pipeline() const { return pipeline_; }
  int copies() const { return context_ * data_; }  // ranks of the data axis
  int world_size() const { return tensor_ * copies() * pipeline_; }

  MeshPlace PlaceOf(int rank) const;
  int RankAt(const MeshPlace& place) const;

  Axis TensorAxis() const;
  Axis PipelineAxis() const;
  Axis ContextAxis() const;
  // Ranks of the data axis that are next to each other; with tensor ranks, that have experts of their own, all of theirs.
  Axis ExpertAxis(int size, bool with_tensor_ranks) const;
  Axis DataAxis() const;
  // Part of the data axis: groups of `size` of its ranks, `stride` of its ranks apart. size x stride must divide copies().
  Axis DataAxis(std::string name, int size, int stride) const;
  // Pairs of ranks at the same place of two pipeline ranks, `from` before `to` in their group; other ranks are in none.
  Axis PairAxis(std::string name, int from, int to) const;

 private:
  int tensor_ = 1, context_ = 1, data_ = 1, pipeline_ = 1;
};

}  // namespace windtunnel
