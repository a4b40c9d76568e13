// ZeRO-1 and ZeRO-2 (Rajbhandari et al. 2020), with parameters and gradients in contiguous buckets as
// Megatron's distributed optimizer has them: in reverse registration order, closed at BucketCap, padded to a
// multiple of the shard group.
//
// A full bucket of gradients is reduce-scattered while backward goes on (and all-reduced over the replicas of
// the shard, if any). Each rank updates its shard of the bucket, and an all-gather spreads the new values.
//   zero1  keeps whole gradients until the end of the step; the shard is summed in place. All micro-batches
//          add to them, and only the last one reduces. With sync: every_micro_batch each reduces, and
//          gradients are handled as in zero2
//   zero2  keeps only the shard of the sum; a bucket's gradients live until it is reduced, in every
//          micro-batch
// Megatron-Core's pipelines (1f1b, interleaved) reduce on all stages at the same time (--align-grad-reduce,
// on by default). Otherwise, as communication slows computation down, the stages would delay one another
// (megatron/core/pipeline_parallel/schedules.py):
//   1f1b         the first stage reduces bucket by bucket in its last backward; the others all at once, in
//                the bubble after their last backward
//   interleaved  pipeline rank r reduces a stage r backwards after the stage's last one; the rest at the end
// Only the first stage of the first rank has more than one bucket then (distributed_data_parallel.py,
// disable_bucketing).
// overlap_param_gather: the all-gathers run in the next step's forward (Megatron's --overlap-param-gather):
// the first bucket's begins with the step, each other one's when the bucket before it is first needed.
// Frameworks differ from Windtunnel's own implementation: they all-gather values after the whole update, and
//   megatron, megatron_core  keep zero1's gradients from step to step (grad_data is made once)
//   deepspeed, pytorch, pytorch_compile   are DeepSpeed's engine (runtime/zero/stage_1_and_2.py):
//     - gradients are copied into a bucket of reduce_bucket_size elements, and a bucket ends before a gradient
//       that would not fit
//     - whole buckets are summed in an all-reduce, of which each rank takes its shard
//       (use_multi_rank_bucket_allreduce: twice a reduce-scatter's traffic)
//     - overlap: false (overlap_comm): zero2 still reduces in backward, which waits for each bucket; zero1
//       reduces behind it
//     - pipelines reduce behind their last backward (pipe/engine.py, _exec_reduce_grads)
// precision.fp8_param_gather (Transformer Engine, tensor/utils.py, quantize_master_weights; Megatron-Core,
// param_and_grad_buffer.py): weights of fp8 products are in buckets of their own. After the update each rank
// rounds its masters to 16 bits, all agree on the largest magnitudes in one all-reduce (except for delayed
// scaling, which has them from earlier steps), and each converts its shard, which is gathered in fp8. mxfp8
// needs two forms, so shards are gathered in 16 bits into the gradients' buffers, and converted whole
// (reuse_grad_buf_for_mxfp8_param_ag). Transformer Engine (megatron_core) sums gradients of its weights into
// the bucket within the product, and hands autograd a placeholder in their place, of which it keeps one for
// each shape of weight for good (pytorch/module/base.py, get_dummy_wgrad). Frozen parameters are in no
// bucket: every rank has them whole, in the type that the model computes with. With 16-bit parameters the
// optimizer's fp32 masters are sharded as well. offload: optimizer keeps masters and state in host memory:
// the gradients' shard is copied there, and the new values are copied back.
#pragma once

#include <string>
#include <vector>

#include "plan/data_parallel.h"
#include "plan/optimizer_steps.h"

namespace windtunnel {

struct ZeroBucket {
  std::vector<int> parameters;
  CollectiveStream* shard_axis = nullptr;  // the ranks that its states are sharded over
  CollectiveStream* replicate = nullptr;   // the ranks that hold the same shard
  CollectiveStream* all = nullptr;         // the ranks that hold the same values
  int64_t elements = 0, shard = 0;         // without padding; the size of one rank's shard
  Slice values, own_values;                // the whole bucket; this rank's shard of it
  Slice master;          // fp32 shard, if the optimizer does not update the values themselves
  Slice whole_gradient;  // zero1: persistent; else of the current micro-batch (buffer -1: none yet)
  Slice own_gradient;    // the shard of the sum
  Slice arriving;        // the destination of the reduction in flight
  Slice for_update;      // own_gradient as the optimizer reads it: fp32, on the host with offload
  bool whole_alive = false, own_alive = false, own_holds = false;
  bool is_of_factors = false;  // its values are factors of products (Parameter::is_factor)
  bool is_gathered = true;     // in this step; else the first use of its values waits for them
  OpIndex gather = -1;
  int pending = 0;       // parameters whose gradients are not ready
  OpIndex reduced = -1;  // the last operator of the reduction in flight
};

class Zero : public DataParallel {
 public:
  explicit Zero(const StrategyContext& context);

  void Initialize(ProgramBuilder& b) override;
  void BeginStep(ProgramBuilder& b, int64_t step) override;
  void BeginBackward(bool) override {}
  void EndBackward() override;
  Slice ReducedGradient(int index) override;
  void Update(ProgramBuilder& b, bool first) override;
  void Restore(ProgramBuilder& b) override;
  void BeginEvaluation(ProgramBuilder& b) override;

  Slice Values(int index) override {
    if (bucket_of_[index] < 0) return frozen_[index].values;
    AwaitValues(bucket_of_[index]);
    return ValuesOf(Of(index), index);
  }
  Slice Gradient(int index) override;
  bool HoldsValue(int index) const override { return holds_[index]; }
  void Ready(int index, bool is_last) override;
  void Wrote(int index) override { holds_[index] = true; }
  void ReduceStage(int stage) override;

 private:
  enum class Launches { kInBackward, kBlockingBackward, kWithSchedule, kBehindBackwards };
  Launches LaunchesOf(const StrategyContext& context) const;
  // Which of the rank's stages the parameter belongs to; 0 if reductions are not aligned.
  int StageOf(int parameter) const;
  Bytes CapOf(int stage, Bytes cap) const {
    return is_aligned_ && (pipeline_rank_ > 0 || stage > 0) ? Bytes::Max() : cap;
  }
  ZeroBucket& Of(int parameter) { return buckets_[bucket_of_[parameter]]; }
  Slice SliceOf(Slice whole, int parameter) const {
    return Slice{whole.buffer, offset_[parameter], role_.parameters[parameter].elements};
  }
  // Buffers of factors have their scales, too.
  Slice ValuesOf(const ZeroBucket& bucket, int parameter) const {
    const Slice values = SliceOf(bucket.values, parameter);
    if (!bucket.is_of_factors) return values;
    return Slice{values.buffer, FactorBytes(recipe_, values.offset), FactorBytes(recipe_, values.elements)};
  }
  bool gathers_in_16_bits(const ZeroBucket& bucket) const {
    return bucket.is_of_factors && recipe_ == Fp8Recipe::kMxfp8;
  }
  // Else gradients are converted or copied into it.
  bool writes_into_bucket() const { return type_ == reduce_ && (keeps_whole_ || !is_deepspeeds_); }
  // Whether buffers of whole gradients live across steps.
  bool keeps_buffers() const {
    return keeps_whole_ && (framework_ == Framework::kMegatron || framework_ == Framework::kMegatronCore);
  }
  bool gathers_beside_update() const { return framework_ == Framework::kWindtunnel; }

  std::vector<std::vector<int>> InBuckets(Bytes cap) const;
  void MakeBuckets(const StrategyContext& context);
  void MakeFrozen(const StrategyContext& context);
  void MakePlaceholders();
  void MakeBuffers(ZeroBucket& bucket, const std::string& name);
  void InitializeBucket(ProgramBuilder& b, ZeroBucket& bucket);
  void BeginValues(bool are_gathered);
  void Gather(int index, std::vector<OpIndex> after);
  void AwaitValues(int index);
  Slice WholeGradient(ZeroBucket& bucket);
  void BeginReduction();
  void LaunchReady();
  void LaunchNext();
  void Launch(ZeroBucket& bucket, const std::string& name);
  Slice Reduced(ZeroBucket& bucket, const std::string& name);
  void Settle(ZeroBucket& bucket);
  std::vector<OptimizerTarget> Targets();
  void CopyGradients(const char* where, MemorySpace space);
  OpIndex CopyFromMaster(ProgramBuilder& b, size_t bucket, OpIndex after);
  void ConvertMasters(ProgramBuilder& b);
  void AgreeOnMagnitudes(ProgramBuilder& b, const std::vector<size_t>& buckets,
                         const std::vector<Slice>& rounded, std::vector<Slice>& magnitudes);
  OpIndex GatherIn16Bits(int index, std::vector<OpIndex> after);
  void ConvertGathered(ZeroBucket& bucket);

  Role& role_;
  Framework framework_;
  DType type_, reduce_;
  Fp8Recipe recipe_;
  std::vector<int> trained_;
  bool is_deepspeeds_, keeps_whole_, gathers_late_, offloads_;
  int64_t bucket_elements_ = 0;  // is_deepspeeds_: of the buffer that a bucket is in
  // DeepSpeed's first stage: where gradients are copied to be reduced, two if that overlaps with backward.
  // They live all the time here; there, from the beginning of backward, which is when memory is fullest, to
  // its end.
  std::vector<Slice> reduce_buckets_;
  std::vector<BufferId> placeholders_, placeholder_of_;  // by shape; by parameter, -1: none (empty: no such)
  Launches launches_;
  bool is_aligned_ = false;
  int pipeline_rank_;
  std::vector<int> first_parameters_;  // by stage of the rank
  MemorySpace space_;                  // of the optimizer's state
  CollectiveStream &data_, &expert_data_;
  StreamId copies_;
  std::vector<ZeroBucket> buckets_;
  std::vector<int> bucket_of_;  // by parameter; -1: frozen
  // By parameter: its values, whole on every rank, and the ranks that have the same. Buffer -1: not frozen.
  struct Frozen {
    Slice values;
    CollectiveStream* all = nullptr;
  };
  std::vector<Frozen> frozen_;
  std::vector<int64_t> offset_;   // of each parameter in its bucket
  std::vector<Slice> gradient_;   // of each parameter in this micro-batch, when it is converted
  std::vector<bool> holds_;       // whether the place that the model writes holds a value
  std::vector<bool> slot_holds_;  // the same of the bucket's slot, when gradients are converted
  OptimizerSteps optimizer_;
  ProgramBuilder* b_ = nullptr;
  size_t ready_ = 0;  // parameters whose gradients are in the buckets of the current reduction
  size_t next_ = 0;   // the next bucket to reduce
};

}  // namespace windtunnel
