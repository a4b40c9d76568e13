// The programs of one role: the ranks that hold the same pipeline stages, or all ranks without a pipeline; a
// single rank where ranks share the optimizer's update.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plan/axes.h"
#include "plan/data_parallel.h"
#include "plan/pipeline_rank.h"

namespace windtunnel {

class RoleCompiler {
 public:
  // Compiles the role of pipeline rank `pipeline_rank`, or that of its data rank `data_rank` alone. `plan`
  // and `axes` must outlive it.
  RoleCompiler(const Plan& plan, const PlanAxes& axes, int pipeline_rank,
               std::optional<int> data_rank = std::nullopt);
  // To be called once. Errors: those of the strategy.
  Result<Role> Compile(const CompileOptions& options);

 private:
  // Whether the host runs the kernels. Otherwise a device does, in its own streams, and the host issues.
  bool host_computes() const { return scenario_.cluster.device == "cpu"; }
  StreamId AddStream(StreamKind kind, const char* name);
  CollectiveStream* AddCollectives(AxisId axis, const char* name, bool between_stages);
  StreamId HostStream();  // for HostWait
  void AddStreams();
  void AddStages();
  Status MakeStrategy();
  void OffloadActivations(ProgramBuilder& builder);
  Program Initialize();
  Program Step(int64_t step, std::string name, bool computes);
  Program Restore();
  Program Evaluate();

  const Plan& plan_;
  const Scenario& scenario_;
  const PlanAxes& axes_;
  const int pipeline_rank_;
  const std::optional<int> data_rank_;
  const Schedule one_piece_;  // of a plan without a pipeline
  const Schedule& schedule_;
  Role role_;
  std::vector<Stage> stages_;    // of this rank, in the order of the model
  std::vector<Module> modules_;  // of all of them
  std::vector<std::unique_ptr<CollectiveStream>> collectives_;
  CollectiveStream *world_ = nullptr, *data_ = nullptr, *shard_ = nullptr, *replicate_ = nullptr,
                   *reshard_ = nullptr;
  CollectiveStream *tensor_ = nullptr, *context_ = nullptr, *pipeline_ = nullptr, *embedding_ = nullptr;
  CollectiveStream *expert_ = nullptr, *expert_part_ = nullptr, *expert_data_ = nullptr,
                   *expert_shard_ = nullptr, *expert_replicate_ = nullptr;
  std::unique_ptr<CollectiveStream> alone_;  // stands for all axes with a single rank
  std::unique_ptr<PipelineRank> work_;
  StreamId host_ = -1;
  StreamId to_host_ = kComputeStream, to_device_ = kComputeStream;  // of activations
  std::unique_ptr<DataParallel> strategy_;
};

}  // namespace windtunnel
