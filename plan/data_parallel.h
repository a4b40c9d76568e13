// A data-parallel strategy: who holds parameters, gradients and optimizer state, and what is communicated when. Each is written
// once, as operators, for both executors.
#pragma once

#include <memory>

#include "plan/collectives.h"
#include "plan/model.h"

namespace windtunnel {

// Over which ranks parameters and their optimizer states are spread.
struct StateRanks {
  CollectiveStream& all;        // data-parallel ranks that hold the same values
  CollectiveStream& shard;      // those that one copy of the states is sharded over
  CollectiveStream& replicate;  // those that hold the same shard
};

// What a strategy is built from. All outlive it.
struct StrategyContext {
  const Scenario& scenario;
  Role& role;
  const std::vector<Module>& modules;
  StateRanks dense;          // of what all data-parallel ranks have
  StateRanks of_experts;     // of experts, where ranks share them
  CollectiveStream&
      reshard;  // those of `dense.shard` that keep a copy among them from forward to backward (FSDP 2)
  CollectiveStream& tensor;  // ranks that have parts of the same weights
  CollectiveStream& expert;  // ranks of the data axis that have different experts
  StreamId copies;  // casts and copies from and to the host: the compute stream, where the host computes
  StreamId host;    // for HostWait; -1 where the host computes
  std::vector<CollectiveStream*>
      model_parts;               // over which the parts of one model are spread: pipeline stages
  bool splits_backward = false;  // some gradients of weights are made apart from those of inputs
  int pipeline_rank = 0;
  std::vector<int> first_parameters = {};  // of each of the rank's stages, in the model's order

  const StateRanks& RanksOf(const Parameter& parameter) const {
    return parameter.is_of_experts() ? of_experts : dense;
  }
};

// Over which ranks the norm of sharded gradients is summed: they hold all parts of the model's, and each part of what is not of experts
// `dense_copies` times.
struct NormRanks {
  std::vector<CollectiveStream*> axes;
  int dense_copies = 1;
};
NormRanks NormRanksOf(const StrategyContext& context);

// Its hooks are for the parameters and modules of all stages of the rank.
class DataParallel : public ParameterHooks {
 public:
  // As ModelHooks::Ready; `is_last`: this was the parameter's last micro-batch of the step, in all of the rank's stages that use it.
  virtual void Ready(int index, bool is_last) = 0;

  // Allocates what lives from the start, gives parameters their first values and makes ranks agree on them.
  virtual void Initialize(ProgramBuilder& b) = 0;
  // Starts a step: zero_grad.
  virtual void BeginStep(ProgramBuilder& b, int64_t step) = 0;
  // Around the forward and the backward of one micro-batch in one stage; forwards and backwards of several micro-batches and stages
  // follow each other in any order, but do not overlap.
  virtual void BeginForward() {}
  // `is_last`: of this stage in this step, but for gradients of weights that it leaves.
  virtual void BeginBackward(bool is_last) = 0;
  // Instead of BeginBackward: gradients of weights alone, that a backward of the micro-batch left. It has no hooks of modules.
  virtual void BeginBackwardWeights() {}
  virtual void EndBackward() = 0;
  // Between two actions of a pipeline's schedule: the reduction of the gradients of the rank's stage number `stage`, whose last backward is
  // over, may begin, where a strategy leaves it to the schedule.
  virtual void ReduceStage(int /*stage*/) {}
  // Where the optimizer finds this rank's part of a gradient, after the last EndBackward.
  virtual Slice ReducedGradient(int index) = 0;
  // Clips and updates.
  virtual void Update(ProgramBuilder& b, bool first) = 0;
  // Makes from the values between steps what else holds them (Role::restore).
  virtual void Restore(ProgramBuilder&) {}
  // Starts a program that has no backward: parameters are as BeginStep would have them, gradients are left alone.
  virtual void BeginEvaluation(ProgramBuilder&) {}
  // Steps that differ from the steady one.
  virtual int64_t startup_steps() const { return 1; }
};

// Parameters whole on every rank: one device, or DistributedDataParallel.
std::unique_ptr<DataParallel> MakeReplicated(const StrategyContext& context);
std::unique_ptr<DataParallel> MakeZero(const StrategyContext& context);
// Whether the framework's pipelines say when their stages reduce gradients (plan/zero.cc).
bool AlignsReductions(const Scenario& scenario);
// InvalidInput for a wrap policy that names no module or splits tied weights, and for tied weights in two stages whose shards do not
// line up (version 1).
Result<std::unique_ptr<DataParallel>> MakeFsdp(const StrategyContext& context);

// This rank's part, of `elements` elements, of a buffer that `shard`'s ranks divide among them; all of it with one rank.
Slice OwnShard(const CollectiveStream& shard, Slice whole, int64_t elements);

// A copy, or what scales one, on the stream for copies, which is the compute stream where the host computes: then what comes before on it
// needs no waiting.
OpIndex AddBeside(ProgramBuilder& b, StreamId stream, OpKind kind, std::string name, Slice from, Slice to,
                  std::vector<OpIndex> after);

// Makes the first values of parameters `indices` into `places` (fp32).
void AddInitialValues(ProgramBuilder& b, const std::vector<int>& indices, const std::vector<Slice>& places);

}  // namespace windtunnel
