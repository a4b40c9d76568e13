// The streams of a pipeline rank: those of its strategy and of the axes that it communicates on.
#pragma once

#include <memory>
#include <vector>

#include "plan/collectives.h"
#include "plan/step_program.h"
#include "scenarios/scenario.h"
#include "sim/composed/mesh_groups.h"
#include "sim/composed/rank_strategy.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

// As RoleCompiler adds them, for the strategies that are composed.
class RankStreams {
 public:
  // Adds them to `role`.
  RankStreams(const Scenario& scenario, const RankShape& shape, const MeshGroups& groups, Role& role);

  StreamId Add(StreamKind kind, const char* name, LocalStream local);

  // Of a stream of the role: the queue that it is, and its axis; -1: none.
  LocalStream LocalOf(StreamId stream) const { return local_[stream]; }
  AxisId AxisOf(StreamId stream) const { return axes_[stream]; }

  // Stands for all axes with a single rank.
  CollectiveStream& alone() const { return *alone_; }
  CollectiveStream& world() const { return *world_; }
  CollectiveStream& data() const { return *data_; }
  CollectiveStream& tensor() const { return *tensor_; }
  CollectiveStream& expert() const { return *expert_; }
  CollectiveStream& expert_part() const { return *expert_part_; }
  CollectiveStream& expert_data() const { return *expert_data_; }
  CollectiveStream& pipeline() const { return *pipeline_; }
  CollectiveStream& embedding() const { return *embedding_; }

  // Sets the size of all scratch, once the program exists.
  void SizeScratch();

 private:
  CollectiveStream* AddCollectives(AxisId axis, LocalStream local, const char* name);

  const MeshGroups& groups_;
  Role& role_;
  std::vector<LocalStream> local_;  // by stream of the role
  std::vector<AxisId> axes_;
  std::vector<std::unique_ptr<CollectiveStream>> collectives_;
  std::unique_ptr<CollectiveStream> alone_;
  CollectiveStream *world_ = nullptr, *data_ = nullptr, *tensor_ = nullptr, *expert_ = nullptr,
                   *expert_part_ = nullptr, *expert_data_ = nullptr, *pipeline_ = nullptr,
                   *embedding_ = nullptr;
};

}  // namespace windtunnel::composed
