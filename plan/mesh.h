// The device mesh: each rank's place in tensor, context, data and pipeline parallelism, and the groups.
//
// Neighbouring ranks differ in their tensor place first, then context, data and pipeline (Megatron's order
// "tp-cp-ep-dp-pp"), so that the ranks that communicate most are closest:
//   rank = tensor + T (context + C (data + D pipeline))
// Ranks that differ only in context and data place hold the same part of the weights, and their gradients are
// added up. They form the groups of the data axis.
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
  int copies() const { return context_ * data_; }  // the size of the data axis
  int world_size() const { return tensor_ * copies() * pipeline_; }

  MeshPlace PlaceOf(int rank) const;

  Axis TensorAxis() const;
  Axis PipelineAxis() const;
  Axis ContextAxis() const;
  // `size` neighbouring ranks of the data axis. With `with_tensor_ranks` (tensor ranks have different
  // experts), `size` neighbouring ranks including the tensor ranks.
  Axis ExpertAxis(int size, bool with_tensor_ranks) const;
  Axis DataAxis() const;
  // Part of the data axis: groups of `size` of its ranks, `stride` of its ranks apart. size x stride must
  // divide copies().
  Axis DataAxis(std::string name, int size, int stride) const;
  // Pairs of ranks that differ only in their pipeline rank, `from` first; other ranks are in no group.
  Axis PairAxis(std::string name, int from, int to) const;

 private:
  int tensor_ = 1, context_ = 1, data_ = 1, pipeline_ = 1;
};

}  // namespace windtunnel
