// Fully sharded data parallel, PyTorch's versions 1 and 2, as operators.
//
// Between steps every rank holds a shard of each unit's parameters (fp32), gradients and optimizer state. A
// unit's parameters are all-gathered before its forward, dropped after it (unless it is the root, or keeps
// them), gathered again before its backward, and its gradients reduce-scattered after it. All-gathers and
// reduce-scatters of a group share one stream, so their order in the program is their order on the wire:
//
//   backward_pre    AG(i-1) before the operators of unit i's backward, RS(i) after them
//   backward_post   AG(i-1) after them, before RS(i)
//   none            AG(i-1) at the beginning of unit i-1's own backward, behind RS(i)
//
// If a pipeline's schedule separates weight gradients from input gradients, the backward of inputs gathers
// and drops a unit as any backward does, and computing weight gradients needs no parameters. A unit is then
// reduced when the step's last gradient of its parameters is there: in a backward (after the unit's) or among
// weight gradients.
//
// Version 2 may keep more than a shard after forward: with reshard_after_forward: N each of N ranks keeps a
// part of the gathered parameters, in the gathered type, and backward (or the next micro-batch's forward)
// gathers these N parts (to_sharded_post_forward of _fsdp_param.py).
//
// With optimizer.in_backward a unit's shard is updated once its reduction is waited for, and its gradient
// dropped (torchtitan's early_step_in_backward, whose hooks FSDP 2 calls behind the reduction).
//
// A reduction is waited for when the next unit's gradients are complete, so that at most two units' gradients
// exist whole. PyTorch's version 2 does the same. Its version 1 leaves that to the allocator and the host.
// Waiting for it here makes no difference where a unit's parameters are gathered again in backward, behind
// the reduction on the wire, but may where they stay (shard_grad_op, no_shard).
//
// Version 1 gathers into a flat parameter, of which the unit's tensors are views, and gradients are written
// into a flat gradient. Version 2 gathers parts of single tensors, copies them out into whole tensors (twice
// the unit for a moment), and packs gradients for the reduction. An all-gather begins after the copy-out
// before it; in forward after the one before that, since there a gathered buffer is kept until the next
// copy-out (wait_for_unshard of _fsdp_param_group.py).
//
// Gradients that a backward does not reduce stay whole: in version 1 in the parameters' type, in version 2 in
// the reduction's (to_accumulated_grad_if_needed), to which each backward's gradients are converted and added
// one by one.
//
// precision.fp8_param_gather (torchao's enable_fsdp_float8_all_gather, with its scales computed in one
// all-reduce behind the optimizer: precompute_float8_dynamic_scale_for_fsdp): each rank converts its shards
// of weights of fp8 products, and a unit's parts of all types are gathered together, as bytes
// (torchao/float8/fsdp_utils.py).
//
// Frozen parameters (version 2 only) are sharded and gathered with the others of their unit, and have no
// gradients. Where nothing of a unit is trained, nothing is reduced (foreach_reduce of _fsdp_collectives.py
// gets the parameters that have gradients).
//
// If ranks share experts, a layer's experts are a unit of their own, sharded over the ranks that have the
// same ones (torchtitan's mesh dp_mod_ep); their gradients are shares of the same mean over all data ranks.
// Units of both kinds are gathered, and reduced, one after the other in program order, as on FSDP 2's single
// stream for each, although they use different groups.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "plan/data_parallel.h"
#include "plan/fsdp_units.h"
#include "plan/optimizer_steps.h"

namespace windtunnel {

// The state of a unit while a program is built.
struct UnitState {
  std::string name;
  std::vector<int> parameters;
  CollectiveStream* shard_axis = nullptr;  // the ranks that it is divided among
  CollectiveStream* replicate = nullptr;   // the ranks that hold the same shard
  ShardLayout layout;

  // Parameters that are trained come first, and so do their parts of the shard. Packed ones come last, from
  // `dense` on, and have a shard of their own, in elements that hold several numbers (kNf4): each weight's in
  // whole elements.
  size_t trained = 0, dense = 0;
  int64_t trained_shard = 0;
  Slice packed;                        // in the memory that the values are in; buffer -1: none
  std::vector<int64_t> packed_starts;  // by place behind `dense`
  bool has_packed() const { return packed.buffer >= 0; }

  int ranks() const { return shard_axis->ranks(); }
  int64_t padded() const { return layout.shard * ranks(); }
  // The elements that a reduction takes.
  int64_t padded_gradients() const { return trained_shard * ranks(); }
  bool is_trained() const { return trained > 0; }

  // Whether some of its parameters are gathered in fp8 (Parameter::is_factor) and the others in 16 bits: as
  // bytes, then. Not if a single rank has the unit.
  bool has_factors = false;
  bool gathers_bytes() const { return has_factors || (has_packed() && ranks() > 1); }

  Slice values;    // the shard, fp32; in host memory with offload: param
  Slice frozen;    // of the shard what is frozen, in the gathered type, unless `values` has that type as well
  Slice master;    // with offload: optimizer, what the optimizer updates; in host memory
  Slice gradient;  // of what is trained of the shard, fp32; in the memory that the values are in

  // Parameters in flight or in use.
  bool is_gathered = false, is_unpacked = false, backward_begun = false;
  OpIndex gather = -1;
  Slice whole;                 // the gathered buffer
  Slice packed_here;           // of a single rank: the packed weights on the device
  std::vector<Slice> tensors;  // whole parameters, for compute
  Slice kept;  // with reshard_after_forward: N, this rank's part after forward; buffer -1: none

  // Gradients before the reduction; empty if there are none yet.
  Slice flat_gradient;
  std::vector<Slice> tensor_gradients;
  std::vector<Slice> accumulated;  // version 2: of earlier micro-batches, whole, in the reduction's type

  // The reduction under way; buffer -1: none.
  Slice arriving;
  OpIndex scattered = -1, reduced = -1;
  bool gradient_alive = false, gradient_holds = false;
  int64_t incomplete = 0;  // parameters whose gradients are not complete in this step
  int target = -1;         // among those of the optimizer
};

class Fsdp : public DataParallel {
 public:
  Fsdp(const StrategyContext& context, const std::vector<FsdpUnit>& units);

  void Initialize(ProgramBuilder& b) override;
  void BeginStep(ProgramBuilder& b, int64_t step) override;
  void BeginForward() override { in_backward_ = in_weights_ = false; }
  void BeginBackward(bool is_last) override;
  void BeginBackwardWeights() override;
  void EndBackward() override;
  Slice ReducedGradient(int index) override;
  void Update(ProgramBuilder& b, bool first) override;
  void Restore(ProgramBuilder& b) override { CopyFromMasters(b, -1); }
  void BeginEvaluation(ProgramBuilder& b) override;

  void BeforeForward(ModuleId module) override;
  void AfterForward(ModuleId module) override;
  void BeforeBackward(ModuleId module) override;
  void AfterBackward(ModuleId module) override;

  Slice Values(int index) override;
  int64_t NumbersInRun(int index) const override;
  Slice Gradient(int index) override;
  bool HoldsValue(int index) const override { return holds_[index]; }
  void Ready(int index, bool is_last) override;
  void Wrote(int index) override { holds_[index] = true; }

 private:
  static constexpr int kNoUnit = -1;
  int UnitOf(ModuleId module) const { return unit_of_module_[module]; }
  bool converts() const { return type_ != updated_; }
  bool offloads_parameters() const { return spec_.offload == Offload::kParam; }
  // Whether gradients are written where the optimizer reads them: nothing is sharded, and one reduction per
  // step sums them in place.
  bool ReducesInPlace(const UnitState& unit) const;

  void MakeBuffers(UnitState& unit);
  void InitializeUnit(ProgramBuilder& b, UnitState& unit);
  Slice WholeFirstValues(ProgramBuilder& b, const UnitState& unit);
  void OrderBackward(const std::vector<Module>& modules, ModuleId module);

  void Gather(UnitState& unit);
  void ForgetProgram();
  Slice GatherSource(UnitState& unit, OpIndex& ready);
  void LimitAllGathers();
  void FinishGather(UnitState& unit);
  void DropForwardWhole();
  std::vector<int64_t> KeptElements(const UnitState& unit) const;
  bool IsGatheredAsFactor(const UnitState& unit, size_t place) const;
  std::vector<int64_t> BytesOfParts(const UnitState& unit) const;
  void MakePacked(UnitState& unit, MemorySpace space);
  // The operator that copies a unit's packed shard between host and device.
  Copy CopyOfPacked(const UnitState& unit, Copy::Crosses crosses) const;
  void InitializePacked(ProgramBuilder& b, UnitState& unit);
  Slice PackedShard(const UnitState& unit, size_t place) const;
  Slice ShardAsBytes(UnitState& unit, OpIndex& ready);
  OpIndex SendDense(UnitState& unit, Slice to);
  Slice ConvertShard(UnitState& unit, OpIndex& ready);
  void FindMagnitudes(ProgramBuilder& b);
  void KeepPart(UnitState& unit);
  void Reshard(UnitState& unit);
  void PrefetchBackward(int unit);

  std::vector<Slice> TensorsIn(const UnitState& unit, Slice flat) const;
  Slice FlatGradient(UnitState& unit);
  static std::vector<int64_t> TrainedShards(const UnitState& unit);
  void Accumulate(UnitState& unit);
  void ReduceNext(int unit);
  void Reduce(UnitState& unit);
  Slice ReductionInput(UnitState& unit, OpIndex& ready);
  Slice ReductionOutput(UnitState& unit, Slice input);
  void BelongsToReductions(const UnitState& unit, Slice temporary);
  void AllocGradient(UnitState& unit);
  void AwaitScatter(UnitState& unit);
  void Settle(UnitState& unit);
  void UpdateInBackward(UnitState& unit);
  std::vector<OptimizerTarget> Targets();
  void CopyFromMasters(ProgramBuilder& b, OpIndex after);

  Role& role_;
  DataParallelSpec spec_;
  DType type_, updated_, reduce_;  // of gathered parameters; of shards and optimizer state; on the wire
  int64_t micro_batches_;
  CollectiveStream &data_, &reshard_;
  StreamId copies_, host_;
  // reshards_without_sync_: whether units are resharded after a backward under no_sync. Version 1 does what
  // it does after forward. Version 2 reshards (post_backward of _fsdp_param_group.py), except in pipelines,
  // whose stages tell it not to (set_reshard_after_backward); if a rank has more stages than PyTorch's
  // schedules keep, it does as version 1.
  bool reshards_after_forward_, reshards_without_sync_, splits_backward_;
  bool evaluates_ = false;  // no backward follows
  Fp8Recipe recipe_;
  std::vector<UnitState> units_;
  std::vector<bool> is_root_;  // by module
  std::vector<int> unit_of_module_, unit_of_parameter_, place_in_unit_;
  std::vector<int> backward_order_, place_in_backward_;
  // By unit, the root module of its stage. Each stage is an FSDP of its own and prefetches its own units
  // only.
  std::vector<int> stage_of_unit_;
  std::vector<bool> holds_;
  OptimizerSteps optimizer_;
  const bool updates_in_backward_;
  bool is_first_step_ = false;

  ProgramBuilder* b_ = nullptr;
  bool syncs_ = false, is_last_backward_ = false, in_backward_ = false, in_weights_ = false;
  int last_reduced_ = kNoUnit;  // the unit whose reduce-scatter may be under way
  // Version 2: the operator that the next all-gather comes after; forward's last copy-out, and its input.
  OpIndex gathers_after_ = -1, forward_unpacked_ = -1;
  Slice forward_whole_;
  OpIndex last_gather_ = -1, last_scatter_ = -1, last_sum_ = -1;
  std::deque<OpIndex> released_;  // version 1: the last uses of dropped units, for the rate limiter
};

}  // namespace windtunnel
