#include "plan/mesh.h"

#include <fmt/format.h>

#include "base/check.h"

namespace windtunnel {

DeviceMesh::DeviceMesh(const ParallelSpec& parallel)
    : tensor_(static_cast<int>(parallel.tensor.size)),
      context_(static_cast<int>(parallel.context.size)),
      data_(static_cast<int>(parallel.data.size)),
      pipeline_(static_cast<int>(parallel.pipeline.size)) {}

MeshPlace DeviceMesh::PlaceOf(int rank) const {
  return {rank % tensor_, rank / tensor_ % context_, rank / (tensor_ * context_) % data_,
          rank / (tensor_ * copies())};
}

Axis DeviceMesh::TensorAxis() const { return MakeAxis("tensor", world_size(), tensor_, 1); }
Axis DeviceMesh::ContextAxis() const { return MakeAxis("context", world_size(), context_, tensor_); }
Axis DeviceMesh::ExpertAxis(int size, bool with_tensor_ranks) const {
  return with_tensor_ranks ? MakeAxis("expert", world_size(), size, 1) : DataAxis("expert", size, 1);
}
Axis DeviceMesh::PipelineAxis() const {
  return MakeAxis("pipeline", world_size(), pipeline_, tensor_ * copies());
}
Axis DeviceMesh::DataAxis() const { return DataAxis("data", copies(), 1); }
Axis DeviceMesh::DataAxis(std::string name, int size, int stride) const {
  WT_CHECK(copies() % (size * stride) == 0);
  return MakeAxis(std::move(name), world_size(), size, stride * tensor_);
}

Axis DeviceMesh::PairAxis(std::string name, int from, int to) const {
  Axis axis{
      std::move(name), {}, std::vector<int32_t>(world_size(), -1), std::vector<int32_t>(world_size(), -1)};
  const int pairs = tensor_ * copies();
  for (int pair = 0; pair < pairs; ++pair) {
    Group group{pairs == 1 ? axis.name : fmt::format("{} {}", axis.name, pair), {}};
    for (int stage : {from, to}) {
      const int rank = pair + pairs * stage;
      axis.group_of_rank[rank] = pair;
      axis.position_of_rank[rank] = static_cast<int32_t>(group.ranks.size());
      group.ranks.push_back(rank);
    }
    axis.groups.push_back(std::move(group));
  }
  return axis;
}

}  // namespace windtunnel
