// A data-parallel strategy: which ranks hold parameters, gradients and optimizer state, and what is
// communicated when. Each strategy is written once, as operators, for both executors.
#pragma once

#include <memory>
#include <optional>

#include "plan/collectives.h"
#include "plan/model_hooks.h"

namespace windtunnel {

// The ranks over which parameters and their optimizer states are spread.
struct StateRanks {
  CollectiveStream& all;        // data-parallel ranks that hold the same values
  CollectiveStream& shard;      // those that one copy of the states is sharded over
  CollectiveStream& replicate;  // those that hold the same shard
};

// What a strategy is built from. All of it outlives the strategy.
struct StrategyContext {
  const Scenario& scenario;
  Role& role;
  const std::vector<Module>& modules;
  StateRanks dense;       // of parameters that all data-parallel ranks have
  StateRanks of_experts;  // of experts, where ranks share them
  // Ranks of `dense.shard` that together keep a copy of the parameters from forward to backward (FSDP 2).
  CollectiveStream& reshard;
  CollectiveStream& tensor;  // ranks that have parts of the same weights
  CollectiveStream& expert;  // ranks of the data axis that have different experts
  StreamId copies;  // for casts and copies from and to the host; the compute stream where the host computes
  StreamId host;    // for HostWait; -1 where the host computes
  StreamId reductions =
      kComputeStream;  // for what ZeRO-3 does to gradients, where that is beside computation
  std::vector<CollectiveStream*> model_parts;  // axes that one model is spread over: pipeline stages
  bool splits_backward = false;  // some weight gradients are computed apart from input gradients
  int pipeline_rank = 0;
  std::optional<int> data_rank = {};  // of the only rank that the role is of (SharesUpdates)
  std::vector<int> first_parameters = {};  // the first of each of the rank's stages, in the model's order

  const StateRanks& RanksOf(const Parameter& parameter) const {
    return parameter.is_of_experts() ? of_experts : dense;
  }
};

// The ranks over which the norm of sharded gradients is summed. Together they hold all gradients of the
// model; each part that does not belong to experts they hold `dense_copies` times.
struct NormRanks {
  std::vector<CollectiveStream*> axes;
  int dense_copies = 1;
};
NormRanks NormRanksOf(const StrategyContext& context);

// The hooks are called for the parameters and modules of all stages of the rank.
class DataParallel : public ParameterHooks {
 public:
  // As ModelHooks::Ready. `is_last`: its last micro-batch of the step, in all the rank's stages that use it.
  virtual void Ready(int index, bool is_last) = 0;

  // Allocates what lives from the start, initialises parameters and makes ranks agree on them.
  virtual void Initialize(ProgramBuilder& b) = 0;
  // Starts a step: zero_grad.
  virtual void BeginStep(ProgramBuilder& b, int64_t step) = 0;
  // Called around the forward and the backward of one micro-batch in one stage. Forwards and backwards of
  // several micro-batches and stages follow each other in any order, but do not overlap.
  virtual void BeginForward() {}
  // `is_last`: the stage's last backward in this step; only weight gradients that it defers may follow.
  virtual void BeginBackward(bool is_last) = 0;
  // Instead of BeginBackward, where only weight gradients are computed, which a backward of the micro-batch
  // deferred. No module hooks are called.
  virtual void BeginBackwardWeights() {}
  virtual void EndBackward() = 0;
  // Called between two actions of a pipeline's schedule: the last backward of the rank's stage number `stage`
  // is over, so the reduction of its gradients may begin, if the strategy leaves that to the schedule.
  virtual void ReduceStage(int /*stage*/) {}
  // Where the optimizer finds this rank's part of a gradient, after the last EndBackward.
  virtual Slice ReducedGradient(int index) = 0;
  // Clips gradients and updates parameters.
  virtual void Update(ProgramBuilder& b, bool first) = 0;
  // Copies the values between steps to whatever else holds them (Role::restore).
  virtual void Restore(ProgramBuilder&) {}
  // Starts a program without a backward: parameters are as after BeginStep, gradients are left alone.
  virtual void BeginEvaluation(ProgramBuilder&) {}
  // The number of first steps that differ from the steady one.
  virtual int64_t startup_steps() const { return 1; }
  // How many programs these have; the last one is that of all further of these steps.
  virtual int64_t startup_programs() const { return startup_steps(); }
  // Whether later programs depend on the first step's, which must then be built first.
  virtual bool learns() const { return false; }
};

// Every rank holds all parameters: one device, or DistributedDataParallel.
std::unique_ptr<DataParallel> MakeReplicated(const StrategyContext& context);
std::unique_ptr<DataParallel> MakeZero(const StrategyContext& context);
std::unique_ptr<DataParallel> MakeZero3(const StrategyContext& context);
// Whether the framework's pipeline schedule decides when stages reduce gradients (plan/zero.cc).
bool AlignsReductions(const Scenario& scenario);
// InvalidInput for a wrap policy that names no module or splits tied weights, and for weights tied between
// two stages whose shards do not line up (version 1).
Result<std::unique_ptr<DataParallel>> MakeFsdp(const StrategyContext& context);

// This rank's part (`elements` elements) of a buffer that `shard`'s ranks share; with one rank all of it.
Slice OwnShard(const CollectiveStream& shard, Slice whole, int64_t elements);

// Adds a copy, or the scaling of one, on the stream for copies. Where the host computes, that is the compute
// stream; then operators of `after` on it need no dependency.
OpIndex AddBeside(ProgramBuilder& b, StreamId stream, OpKind kind, std::string name, Slice from, Slice to,
                  std::vector<OpIndex> after);

// A buffer for a parameter's values, in `type` unless they are packed.
Slice ValuesBuffer(Role& role, const Parameter& parameter, DType type);

// Writes the initial values of parameter `index` into `place`, in its type or packed.
void AddFrozenValues(ProgramBuilder& b, int index, Slice place);
// Writes the initial values of parameters `indices` into `places` (fp32).
void AddInitialValues(ProgramBuilder& b, const std::vector<int>& indices, const std::vector<Slice>& places);

}  // namespace windtunnel
