// ZeRO-1 and ZeRO-2 (Rajbhandari et al. 2020), with parameters and gradients in contiguous buckets as
// Megatron's distributed optimizer has them: in reverse registration order, closed at BucketCap, padded to a
// multiple of the shard group.
//
// A full bucket of gradients is reduce-scattered while backward goes on (and all-reduced over the replicas of
// the shard, if any). Each rank updates its shard of the bucket, and an all-gather spreads the new values.
//   zero1  keeps whole gradients until the end of the step; the shard is summed in place. All micro-batches
//          add to them, and only the last one reduces. With sync: every_micro_batch each reduces, and
//          gradients are handled as in zero2
//   zero2  keeps only the shard of the sum; a bucket's gradients live until it is reduced, in every micro-batch
// Megatron-Core's pipelines (1f1b, interleaved) reduce on all stages at the same time (--align-grad-reduce,
// on by default). Otherwise, as communication slows computation down, the stages would delay one another
// (megatron/core/pipeline_parallel/schedules.py):
//   1f1b         the first stage reduces bucket by bucket in its last backward; the others all at once, in
//                the bubble after their last backward
//   interleaved  pipeline rank r reduces a stage r backwards after the stage's last one; the rest at the end
// Only the first stage of the first rank has more than one bucket then (distributed_data_parallel.py, disable_bucketing).
// overlap_param_gather: the all-gathers run in the next step's forward (Megatron's --overlap-param-gather):
// the first bucket's begins with the step, each other one's when the bucket before it is first needed.
// Frameworks differ from Windtunnel's own implementation: they all-gather values after the whole update, and
//   megatron, megatron_core  keep zero1's gradients from step to step (grad_data is made once)
//   deepspeed                sums whole buckets in an all-reduce, of which each rank takes its shard
//                            (use_multi_rank_bucket_allreduce: twice a reduce-scatter's traffic)
//   pytorch, pytorch_compile have no other difference
// precision.fp8_param_gather (Transformer Engine, tensor/utils.py, quantize_master_weights; Megatron-Core,
// param_and_grad_buffer.py): weights of fp8 products are in buckets of their own. After the update each rank
// rounds its masters to 16 bits, all agree on the largest magnitudes in one all-reduce (except for delayed
// scaling, which has them from earlier steps), and each converts its shard, which is gathered in fp8. mxfp8
// needs two forms, so shards are gathered in 16 bits into the gradients' buffers, and converted whole
// (reuse_grad_buf_for_mxfp8_param_ag).
// With 16-bit parameters the optimizer's fp32 masters are sharded as well. offload: optimizer keeps masters and state in
// host memory: the gradients' shard is copied there, and the new values are copied back.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "plan/data_parallel.h"
#include "plan/gradient_buckets.h"
#include "plan/optimizer_steps.h"
#include "scenarios/derived.h"

namespace windtunnel {
namespace {

struct Bucket {
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
    AwaitValues(bucket_of_[index]);
    return ValuesOf(Of(index), index);
  }
  Slice Gradient(int index) override;
  bool HoldsValue(int index) const override { return holds_[index]; }
  void Ready(int index, bool is_last) override;
  void Wrote(int index) override { holds_[index] = true; }
  void ReduceStage(int stage) override;

 private:
  enum class Launches { kInBackward, kWithSchedule, kBehindBackwards };
  Launches LaunchesOf(const StrategyContext& context) const;
  // Which of the rank's stages the parameter belongs to; 0 if reductions are not aligned.
  int StageOf(int parameter) const;
  Bytes CapOf(int stage, Bytes cap) const {
    return is_aligned_ && (pipeline_rank_ > 0 || stage > 0) ? Bytes::Max() : cap;
  }
  Bucket& Of(int parameter) { return buckets_[bucket_of_[parameter]]; }
  Slice SliceOf(Slice whole, int parameter) const {
    return Slice{whole.buffer, offset_[parameter], role_.parameters[parameter].elements};
  }
  // Buffers of factors have their scales, too.
  Slice ValuesOf(const Bucket& bucket, int parameter) const {
    const Slice values = SliceOf(bucket.values, parameter);
    if (!bucket.is_of_factors) return values;
    return Slice{values.buffer, FactorBytes(recipe_, values.offset), FactorBytes(recipe_, values.elements)};
  }
  bool gathers_in_16_bits(const Bucket& bucket) const {
    return bucket.is_of_factors && recipe_ == Fp8Recipe::kMxfp8;
  }
  bool writes_into_bucket() const { return type_ == reduce_; }  // else gradients are converted into it
  // Whether buffers of whole gradients live across steps.
  bool keeps_buffers() const {
    return keeps_whole_ && (framework_ == Framework::kMegatron || framework_ == Framework::kMegatronCore);
  }
  bool gathers_beside_update() const { return framework_ == Framework::kWindtunnel; }
  bool sums_whole_buckets() const { return framework_ == Framework::kDeepspeed; }

  std::vector<std::vector<int>> InBuckets(Bytes cap) const;
  void MakeBuckets(const StrategyContext& context);
  void MakeBuffers(Bucket& bucket, const std::string& name);
  void InitializeBucket(ProgramBuilder& b, Bucket& bucket);
  void BeginValues(bool are_gathered);
  void Gather(int index, std::vector<OpIndex> after);
  void AwaitValues(int index);
  Slice WholeGradient(Bucket& bucket);
  void BeginReduction();
  void LaunchReady();
  void LaunchNext();
  void Launch(Bucket& bucket, const std::string& name);
  void Settle(Bucket& bucket);
  std::vector<OptimizerTarget> Targets();
  void CopyGradients(const char* where, MemorySpace space);
  OpIndex CopyFromMaster(ProgramBuilder& b, size_t bucket, OpIndex after);
  void ConvertMasters(ProgramBuilder& b);
  void AgreeOnMagnitudes(ProgramBuilder& b, const std::vector<size_t>& buckets,
                         const std::vector<Slice>& rounded, std::vector<Slice>& magnitudes);
  OpIndex GatherIn16Bits(int index, std::vector<OpIndex> after);
  void ConvertGathered(Bucket& bucket);

  Role& role_;
  OptimizerSpec optimizer_spec_;
  Framework framework_;
  DType type_, reduce_;
  Fp8Recipe recipe_;
  bool keeps_whole_, gathers_late_, offloads_;
  Launches launches_;
  bool is_aligned_ = false;
  int pipeline_rank_;
  std::vector<int> first_parameters_;  // by stage of the rank
  MemorySpace space_;                  // of the optimizer's state
  CollectiveStream &data_, &expert_data_, &tensor_;
  NormRanks norm_ranks_;
  StreamId copies_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;
  std::vector<int64_t> offset_;   // of each parameter in its bucket
  std::vector<Slice> gradient_;   // of each parameter in this micro-batch, when it is converted
  std::vector<bool> holds_;       // whether the place that the model writes holds a value
  std::vector<bool> slot_holds_;  // the same of the bucket's slot, when gradients are converted
  std::unique_ptr<OptimizerSteps> optimizer_;
  ProgramBuilder* b_ = nullptr;
  size_t ready_ = 0;  // parameters whose gradients are in the buckets of the current reduction
  size_t next_ = 0;   // the next bucket to reduce
};

Zero::Zero(const StrategyContext& context)
    : role_(context.role),
      optimizer_spec_(context.scenario.optimizer),
      framework_(context.scenario.framework),
      type_(TypesOf(context.scenario.precision).storage),
      reduce_(TypeOf(context.scenario.precision.reduce)),
      recipe_(context.scenario.precision.fp8_recipe),
      data_(context.dense.all),
      expert_data_(context.of_experts.all),
      tensor_(context.tensor),
      norm_ranks_(NormRanksOf(context)),
      copies_(context.copies) {
  const DataParallelSpec& spec = context.scenario.parallel.data;
  // A single replica reduces nothing, whenever it were to.
  const bool reduces = IsSharded(spec.kind) || data_.ranks() > 1;
  keeps_whole_ =
      spec.kind != DataParallelKind::kZero2 && (!reduces || spec.sync == GradientSync::kLastMicroBatch);
  pipeline_rank_ = context.pipeline_rank;
  first_parameters_ = context.first_parameters;
  is_aligned_ = AlignsReductions(context.scenario) && data_.ranks() > 1;
  launches_ = LaunchesOf(context);
  gathers_late_ = spec.overlap_param_gather;
  offloads_ = spec.offload != Offload::kNone;
  space_ = offloads_ ? MemorySpace::kHost : MemorySpace::kDevice;
  const size_t parameters = role_.parameters.size();
  gradient_.resize(parameters);
  holds_.resize(parameters);
  slot_holds_.resize(parameters);
  MakeBuckets(context);
}

Zero::Launches Zero::LaunchesOf(const StrategyContext& context) const {
  if (!context.scenario.parallel.data.overlap) return Launches::kBehindBackwards;
  if (!is_aligned_) return Launches::kInBackward;
  if (first_parameters_.size() > 1) return Launches::kWithSchedule;
  return pipeline_rank_ == 0 ? Launches::kInBackward : Launches::kBehindBackwards;
}

int Zero::StageOf(int parameter) const {
  if (!is_aligned_) return 0;
  const auto behind = std::upper_bound(first_parameters_.begin(), first_parameters_.end(), parameter);
  return static_cast<int>(behind - first_parameters_.begin()) - 1;
}

// Parameters from the last to the first, in buckets, with separate buckets for experts' parameters and, in
// each stage first, for weights that are stored in fp8. A weight
// that two stages share has its own bucket: then its shards are the same in both, and the gradients can be
// summed shard by shard.
std::vector<std::vector<int>> Zero::InBuckets(Bytes cap) const {
  std::vector<std::vector<int>> buckets;
  std::vector<int> run;
  auto end_run = [&] {
    std::vector<Bytes> sizes;
    for (int parameter : run) sizes.push_back(SizeOf(reduce_) * role_.parameters[parameter].elements);
    const Bytes limit = run.empty() ? cap : CapOf(StageOf(run.front()), cap);
    for (const std::vector<int>& positions : AssignBuckets(sizes, {limit})) {
      buckets.emplace_back();
      for (int position : positions) buckets.back().push_back(run[position]);
    }
    run.clear();
  };
  std::vector<int> order(role_.parameters.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const int of_a = StageOf(a), of_b = StageOf(b);
    return of_a != of_b ? of_a > of_b : role_.parameters[a].is_factor > role_.parameters[b].is_factor;
  });
  for (const int parameter : order) {
    const Parameter& next = role_.parameters[parameter];
    const bool is_of_others =
        !run.empty() && (role_.parameters[run.back()].is_of_experts() != next.is_of_experts() ||
                         role_.parameters[run.back()].is_factor != next.is_factor ||
                         StageOf(run.back()) != StageOf(parameter));
    if (is_of_others) end_run();
    if (!next.is_shared) {
      run.push_back(parameter);
      continue;
    }
    end_run();
    buckets.push_back({parameter});
  }
  end_run();
  return buckets;
}

void Zero::MakeBuckets(const StrategyContext& context) {
  const int count = static_cast<int>(role_.parameters.size());
  bucket_of_.resize(count);
  offset_.resize(count);
  for (const std::vector<int>& parameters : InBuckets(BucketCap(context.scenario, SizeOf(reduce_)))) {
    Bucket bucket;
    for (int parameter : parameters) {
      bucket.parameters.push_back(parameter);
      bucket_of_[parameter] = static_cast<int>(buckets_.size());
      offset_[parameter] = bucket.elements;
      bucket.elements += role_.parameters[parameter].elements;
    }
    const Parameter& first = role_.parameters[bucket.parameters.front()];
    bucket.is_of_factors = first.is_factor;
    const StateRanks& of_states = context.RanksOf(first);
    bucket.shard_axis = &of_states.shard;
    bucket.replicate = &of_states.replicate;
    bucket.all = &of_states.all;
    const int ranks = bucket.shard_axis->ranks();
    bucket.shard = (bucket.elements + ranks - 1) / ranks;
    MakeBuffers(bucket, fmt::format("bucket {}", buckets_.size()));
    buckets_.push_back(std::move(bucket));
  }
}

void Zero::MakeBuffers(Bucket& bucket, const std::string& name) {
  const int64_t padded = bucket.shard * bucket.shard_axis->ranks();
  if (bucket.is_of_factors)
    bucket.values = NewBuffer(role_, name + " parameters", FactorBytes(recipe_, padded),
                              Category::kParameters, FactorType(recipe_));
  else bucket.values = NewBuffer(role_, name + " parameters", padded, Category::kParameters, type_);
  bucket.own_values = OwnShard(*bucket.shard_axis, bucket.values, bucket.shard);
  if (offloads_ || type_ != DType::kFloat32) {
    bucket.master =
        NewBuffer(role_, name + " masters", bucket.shard, Category::kOptimizer, DType::kFloat32, space_);
  }
  if (keeps_whole_) {
    bucket.whole_gradient = NewBuffer(role_, name + " gradients", padded, Category::kGradients, reduce_);
    bucket.own_gradient = OwnShard(*bucket.shard_axis, bucket.whole_gradient, bucket.shard);
  } else {
    bucket.own_gradient = NewBuffer(role_, name + " gradients (shard)", bucket.shard, Category::kGradients);
  }
  for (int parameter : bucket.parameters) {
    Placement& place = role_.parameters[parameter].values;
    // Between steps, all values but the rank's own shard are stale.
    const bool is_stale = gathers_late_ && bucket.shard_axis->ranks() > 1;
    if (bucket.master.buffer < 0 && is_stale)
      place = {bucket.values.buffer, 0, bucket.shard, offset_[parameter], bucket.shard_axis->axis(), true};
    else if (bucket.master.buffer < 0) place = {bucket.values.buffer, offset_[parameter], 0, 0, 0};
    else if (bucket.shard_axis->ranks() == 1) place = {bucket.master.buffer, offset_[parameter], 0, 0, 0};
    else place = {bucket.master.buffer, 0, bucket.shard, offset_[parameter], bucket.shard_axis->axis()};
  }
}

void Zero::Initialize(ProgramBuilder& b) {
  for (Bucket& bucket : buckets_) InitializeBucket(b, bucket);
}

void Zero::InitializeBucket(ProgramBuilder& b, Bucket& bucket) {
  // A copy, since adding temporaries moves the role's buffers.
  const std::string name = role_.buffers[bucket.values.buffer].name;
  b.Alloc(bucket.values.buffer);
  Slice first = bucket.values;  // the initial values in fp32
  if (type_ != DType::kFloat32)
    first = b.Temporary(name + " (fp32)", bucket.values.elements, Category::kParameters);
  std::vector<Slice> places;
  for (int parameter : bucket.parameters) places.push_back(SliceOf(first, parameter));
  if (const int64_t padding = first.elements - bucket.elements; padding > 0) {
    b.Add(Fill{padding}, name, {}, {Slice{first.buffer, bucket.elements, padding}});
  }
  AddInitialValues(b, bucket.parameters, places);
  if (bucket.master.buffer >= 0) {
    b.Alloc(bucket.master.buffer);
    b.Add(Copy{.elements = bucket.shard,
               .crosses = offloads_ ? Copy::Crosses::kToHost : Copy::Crosses::kNothing},
          name, {OwnShard(*bucket.shard_axis, first, bucket.shard)}, {bucket.master});
  }
  if (bucket.is_of_factors) b.Add(Fp8Cast{first.elements, 1, recipe_}, name, {first}, {bucket.values});
  else if (type_ != DType::kFloat32)
    b.Add(Copy{.elements = first.elements, .to = type_}, name, {first}, {bucket.values});
  if (keeps_buffers()) b.Alloc(bucket.whole_gradient.buffer);
  const OpIndex broadcast = bucket.all->Broadcast(b, bucket.values, name, {b.LastCompute()});
  b.Carries(broadcast, bucket.parameters);
}

void Zero::BeginStep(ProgramBuilder& b, int64_t step) {
  b_ = &b;
  for (Bucket& bucket : buckets_) {
    if (step > 0 && !keeps_buffers())
      b.Free(keeps_whole_ ? bucket.whole_gradient.buffer : bucket.own_gradient.buffer);
    bucket.whole_alive = bucket.own_alive = bucket.own_holds = false;
  }
  BeginValues(!gathers_late_ || step == 0);
  holds_.assign(holds_.size(), false);
  slot_holds_.assign(slot_holds_.size(), false);
}

void Zero::BeginEvaluation(ProgramBuilder& b) {
  b_ = &b;
  BeginValues(!gathers_late_);
}

// Forward begins with the last bucket's parameters.
void Zero::BeginValues(bool are_gathered) {
  for (Bucket& bucket : buckets_) {
    bucket.is_gathered = are_gathered;
    bucket.gather = -1;
  }
  if (!are_gathered) Gather(static_cast<int>(buckets_.size()) - 1, {});
}

void Zero::BeginReduction() {
  next_ = 0;
  for (Bucket& bucket : buckets_) bucket.pending = static_cast<int>(bucket.parameters.size());
}

void Zero::Gather(int index, std::vector<OpIndex> after) {
  Bucket& bucket = buckets_[index];
  if (gathers_in_16_bits(bucket)) bucket.gather = GatherIn16Bits(index, std::move(after));
  else
    bucket.gather = bucket.shard_axis->AllGather(*b_, bucket.own_values, bucket.values,
                                                 fmt::format("bucket {}", index), std::move(after));
  b_->Carries(bucket.gather, bucket.parameters);
}

// Makes the next compute operator wait for the bucket's values, and starts the next bucket's all-gather.
void Zero::AwaitValues(int index) {
  Bucket& bucket = buckets_[index];
  if (bucket.is_gathered) return;
  bucket.is_gathered = true;
  if (bucket.gather < 0) Gather(index, {});
  b_->WaitBeforeNextCompute(bucket.gather);
  if (gathers_in_16_bits(bucket)) ConvertGathered(bucket);
  for (int next = index; next-- > 0;) {
    if (buckets_[next].is_gathered || buckets_[next].gather >= 0) continue;
    return Gather(next, {});
  }
}

// The bucket's gradients before the reduction. They are allocated at the first write, with zeros as padding.
Slice Zero::WholeGradient(Bucket& bucket) {
  if (bucket.whole_alive) return bucket.whole_gradient;
  bucket.whole_alive = true;
  const std::string name = role_.buffers[bucket.values.buffer].name + ".grad";
  if (keeps_whole_) {
    if (!keeps_buffers()) b_->Alloc(bucket.whole_gradient.buffer);
  } else {
    bucket.whole_gradient =
        b_->Temporary(name, bucket.shard * bucket.shard_axis->ranks(), Category::kGradients, reduce_);
  }
  const int64_t padding = bucket.whole_gradient.elements - bucket.elements;
  if (padding > 0) {
    b_->Add(Fill{padding, 0.0, reduce_}, name, {},
            {Slice{bucket.whole_gradient.buffer, bucket.elements, padding}});
  }
  return bucket.whole_gradient;
}

Slice Zero::Gradient(int index) {
  if (writes_into_bucket()) return SliceOf(WholeGradient(Of(index)), index);
  if (gradient_[index].buffer < 0) {
    const Parameter& parameter = role_.parameters[index];
    gradient_[index] =
        b_->Temporary(parameter.name + ".grad", parameter.elements, Category::kGradients, type_);
  }
  return gradient_[index];
}

void Zero::Ready(int index, bool is_last) {
  holds_[index] = true;
  Bucket& bucket = Of(index);
  if (!writes_into_bucket()) {
    const Slice slot = SliceOf(WholeGradient(bucket), index);
    b_->Add(Copy{.elements = slot.elements, .from = type_, .to = reduce_, .accumulate = slot_holds_[index]},
            role_.parameters[index].name, {gradient_[index]}, {slot});
    slot_holds_[index] = true;
    holds_[index] = false;
    gradient_[index] = {};
  }
  if (!is_last && keeps_whole_) return;
  if (ready_++ == 0) BeginReduction();
  --bucket.pending;
  if (launches_ == Launches::kInBackward) LaunchReady();
}

// Buckets are in the order of backwards: those of the last stage first.
void Zero::ReduceStage(int stage) {
  if (launches_ != Launches::kWithSchedule) return;
  while (next_ < buckets_.size() && buckets_[next_].pending == 0 &&
         StageOf(buckets_[next_].parameters[0]) >= stage)
    LaunchNext();
}

void Zero::LaunchReady() {
  while (next_ < buckets_.size() && buckets_[next_].pending == 0) LaunchNext();
}

void Zero::LaunchNext() {
  // At most one reduction is in flight besides the bucket that is being filled.
  if (next_ > 0 && !keeps_whole_) Settle(buckets_[next_ - 1]);
  Launch(buckets_[next_], fmt::format("bucket {}", next_));
  ++next_;
}

void Zero::Launch(Bucket& bucket, const std::string& name) {
  if (data_.ranks() > 1) {  // the mean is over all data-parallel ranks, also for experts
    b_->Add(Scale{bucket.whole_gradient.elements, 1.0 / static_cast<double>(data_.ranks()), reduce_}, name,
            {bucket.whole_gradient}, {bucket.whole_gradient});
  }
  bucket.arriving = bucket.own_gradient;
  if (!keeps_whole_) {
    if (sums_whole_buckets() && bucket.shard_axis->ranks() > 1) {
      bucket.arriving = OwnShard(*bucket.shard_axis, bucket.whole_gradient, bucket.shard);
    } else if (bucket.own_holds || reduce_ != DType::kFloat32) {
      bucket.arriving =
          b_->Temporary(name + ".grad (shard)", bucket.shard, Category::kCommunication, reduce_);
    }
    if (!bucket.own_alive) b_->Alloc(bucket.own_gradient.buffer);
    bucket.own_alive = true;
  }
  if (bucket.shard_axis->ranks() == 1 && !keeps_whole_) {
    b_->Add(
        Copy{.elements = bucket.shard, .from = reduce_, .to = role_.buffers[bucket.arriving.buffer].dtype},
        name, {bucket.whole_gradient}, {bucket.arriving});
  }
  const OpIndex op = sums_whole_buckets()
                         ? bucket.shard_axis->AllReduce(*b_, bucket.whole_gradient, name, {b_->LastCompute()})
                         : bucket.shard_axis->ReduceScatter(*b_, bucket.whole_gradient, bucket.arriving, name,
                                                            {b_->LastCompute()});
  b_->Carries(op, bucket.parameters);
  const OpIndex sum =
      bucket.replicate->AllReduce(*b_, bucket.arriving, name, {op, op < 0 ? b_->LastCompute() : -1});
  b_->Carries(sum, bucket.parameters);
  bucket.reduced = sum >= 0 ? sum : op;
}

// Waits for the bucket's reduction, and adds its result to the shard unless it was written there.
void Zero::Settle(Bucket& bucket) {
  if (bucket.arriving.buffer < 0) return;
  b_->WaitBeforeNextCompute(bucket.reduced);
  if (bucket.arriving.buffer != bucket.own_gradient.buffer) {
    b_->Add(Copy{.elements = bucket.shard, .from = reduce_, .accumulate = bucket.own_holds},
            role_.buffers[bucket.own_gradient.buffer].name, {bucket.arriving}, {bucket.own_gradient});
  }
  bucket.own_holds = true;
  bucket.arriving = {};
}

void Zero::EndBackward() {
  if (ready_ < role_.parameters.size()) return;
  ready_ = 0;
  b_->SetPhase(Phase::kGradientSync);
  LaunchReady();
  for (Bucket& bucket : buckets_) Settle(bucket);
  if (keeps_whole_) return;
  // The next micro-batch's gradients are new buffers.
  for (Bucket& bucket : buckets_) bucket.whole_alive = false;
  holds_.assign(holds_.size(), false);
  slot_holds_.assign(slot_holds_.size(), false);
}

// Called for tied weights only, which have their own bucket.
Slice Zero::ReducedGradient(int index) {
  WT_CHECK_EQ(Of(index).parameters.size(), size_t{1});
  return Of(index).own_gradient;
}

// The optimizer's tensors: fp32, and on the host if its state is offloaded.
std::vector<OptimizerTarget> Zero::Targets() {
  std::vector<OptimizerTarget> targets;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const Slice values = bucket.master.buffer >= 0 ? bucket.master : bucket.own_values;
    targets.push_back({fmt::format("bucket {}", i), values, bucket.for_update});
  }
  return targets;
}

// Copies gradients to where the optimizer reads them: as fp32, in `space`.
void Zero::CopyGradients(const char* where, MemorySpace space) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    const Slice from = bucket.for_update;
    const DType type = role_.buffers[from.buffer].dtype;
    if (type == DType::kFloat32 && role_.buffers[from.buffer].space == space) continue;
    const std::string name = fmt::format("bucket {} gradients ({})", i, where);
    bucket.for_update = b_->Temporary(name, bucket.shard, Category::kGradients, DType::kFloat32, space);
    const auto crosses = space == MemorySpace::kHost ? Copy::Crosses::kToHost : Copy::Crosses::kNothing;
    const OpIndex copy =
        AddBeside(*b_, copies_, Copy{.elements = bucket.shard, .from = type, .crosses = crosses}, name, from,
                  bucket.for_update, b_->BeforeNextCompute());
    b_->WaitBeforeNextCompute(copy);
  }
}

void Zero::Update(ProgramBuilder& b, bool first) {
  b.SetPhase(Phase::kOptimizer);
  for (Bucket& bucket : buckets_) bucket.for_update = bucket.own_gradient;
  const bool has_sums = std::any_of(role_.parameters.begin(), role_.parameters.end(),
                                    [](const Parameter& parameter) { return parameter.is_partial_gradient; });
  if (!offloads_ || has_sums) CopyGradients("fp32", MemorySpace::kDevice);
  if (!optimizer_)
    optimizer_ = std::make_unique<OptimizerSteps>(role_, optimizer_spec_, tensor_, Targets(), framework_,
                                                  norm_ranks_.dense_copies);
  optimizer_->SetTargets(Targets());
  optimizer_->AddTensorSums(b);
  if (offloads_) {
    b.SetPhase(Phase::kOptimizer);
    CopyGradients("host", MemorySpace::kHost);
    optimizer_->SetTargets(Targets());
  }
  optimizer_->AddUnscaling(b, norm_ranks_.axes);
  optimizer_->AddClipping(b, first, norm_ranks_.axes);
  std::vector<OpIndex> updated;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const int target = static_cast<int>(i);
    updated.push_back(optimizer_->AddUpdate(b, first, target, target + 1, fmt::format("bucket {}", i)));
    if (buckets_[i].master.buffer >= 0 && !buckets_[i].is_of_factors)
      updated.back() = CopyFromMaster(b, i, updated.back());
    if (!gathers_late_ && gathers_beside_update()) Gather(target, {updated.back()});
  }
  ConvertMasters(b);
  if (gathers_late_ || gathers_beside_update()) return;
  for (size_t i = 0; i < buckets_.size(); ++i) Gather(static_cast<int>(i), {updated.back(), b.LastCompute()});
  for (Bucket& bucket : buckets_) {
    if (!gathers_in_16_bits(bucket)) continue;
    b.WaitBeforeNextCompute(bucket.gather);
    ConvertGathered(bucket);
  }
}

// Writes the shards of weights that are stored in fp8, except for those that are gathered before.
void Zero::ConvertMasters(ProgramBuilder& b) {
  std::vector<size_t> converted;
  for (size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i].is_of_factors && !gathers_in_16_bits(buckets_[i])) converted.push_back(i);
  std::vector<Slice> rounded, magnitudes(converted.size());
  for (const size_t i : converted) {
    const std::string name = fmt::format("bucket {} (16 bits)", i);
    rounded.push_back(b.Temporary(name, buckets_[i].shard, Category::kParameters, type_));
    b.Add(Copy{.elements = buckets_[i].shard, .to = type_}, name, {buckets_[i].master}, {rounded.back()});
  }
  if (recipe_ != Fp8Recipe::kDelayed) AgreeOnMagnitudes(b, converted, rounded, magnitudes);
  for (size_t i = 0; i < converted.size(); ++i) {
    const Bucket& bucket = buckets_[converted[i]];
    std::vector<Slice> reads = {rounded[i]};
    if (magnitudes[i].buffer >= 0) reads.push_back(magnitudes[i]);
    Fp8Cast cast{bucket.shard, 1, recipe_, false, type_};
    cast.groups = static_cast<int64_t>(bucket.parameters.size());
    b.Add(cast, fmt::format("bucket {}", converted[i]), std::move(reads), {bucket.own_values});
  }
}

// Finds the largest magnitude of each weight, or of each of its blocks, over all ranks that have a part of it.
void Zero::AgreeOnMagnitudes(ProgramBuilder& b, const std::vector<size_t>& buckets,
                             const std::vector<Slice>& rounded, std::vector<Slice>& magnitudes) {
  constexpr int64_t kBlock = 128 * 128;
  for (CollectiveStream* all : {&data_, &expert_data_}) {
    std::vector<Fp8Amax> ops;
    int64_t numbers = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      const Bucket& bucket = buckets_[buckets[i]];
      Fp8Amax& op = ops.emplace_back(Fp8Amax{bucket.shard, 1, Fp8Amax::Of::kAll, type_});
      op.groups = static_cast<int64_t>(bucket.parameters.size());
      if (recipe_ == Fp8Recipe::kBlock)
        op = {(bucket.shard + kBlock - 1) / kBlock, kBlock, Fp8Amax::Of::kEachRow, type_};
      if (bucket.all == all) numbers += op.numbers();
    }
    if (numbers == 0) continue;
    const Slice found = b.Temporary("weights.amax", numbers, Category::kWorkspace);
    int64_t next = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      if (buckets_[buckets[i]].all != all) continue;
      magnitudes[i] = Slice{found.buffer, next, ops[i].numbers()};
      next += ops[i].numbers();
      b.Add(ops[i], fmt::format("bucket {}", buckets[i]), {rounded[i]}, {magnitudes[i]});
    }
    b.WaitBeforeNextCompute(all->AllReduce(b, found, "weights.amax", b.BeforeNextCompute(), Reduction::kMax));
    if (&data_ == &expert_data_) return;
  }
}

// Into the gradients' buffer, which holds nothing that is needed then.
OpIndex Zero::GatherIn16Bits(int index, std::vector<OpIndex> after) {
  Bucket& bucket = buckets_[index];
  const std::string name = fmt::format("bucket {}", index);
  const int64_t word = SizeOf(reduce_).count();
  const int64_t words = (SizeOf(type_).count() * bucket.shard + word - 1) / word;
  const Slice whole{bucket.whole_gradient.buffer, 0, words * bucket.shard_axis->ranks()};
  const Slice own = OwnShard(*bucket.shard_axis, whole, words);
  after.push_back(
      AddBeside(*b_, copies_, Copy{.elements = bucket.shard, .to = type_}, name, bucket.master, own, after));
  return bucket.shard_axis->AllGather(*b_, own, whole, name, std::move(after));
}

// The other form is made by the same kernel, and stays in the model's buffer.
void Zero::ConvertGathered(Bucket& bucket) {
  for (const int index : bucket.parameters) {
    const Parameter& parameter = role_.parameters[index];
    const Slice gathered{bucket.whole_gradient.buffer, 0, bucket.whole_gradient.elements};
    Fp8Cast cast{parameter.elements, 1, recipe_, false, type_};
    b_->Add(cast, parameter.name, {gathered}, {ValuesOf(bucket, index)});
    cast.transposed = cast.with_other = true;
    b_->Add(cast, parameter.name, {gathered}, {ValuesOf(bucket, index)});
  }
}

OpIndex Zero::CopyFromMaster(ProgramBuilder& b, size_t index, OpIndex after) {
  const Bucket& bucket = buckets_[index];
  const auto crosses = offloads_ ? Copy::Crosses::kToDevice : Copy::Crosses::kNothing;
  return AddBeside(b, copies_, Copy{.elements = bucket.shard, .to = type_, .crosses = crosses},
                   fmt::format("bucket {}", index), bucket.master, bucket.own_values, {after});
}

// Gathers all values, since step 0 takes them as gathered, even with overlap_param_gather.
void Zero::Restore(ProgramBuilder& b) {
  b_ = &b;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const bool is_copied = buckets_[i].master.buffer >= 0 && !buckets_[i].is_of_factors;
    const OpIndex copied = is_copied ? CopyFromMaster(b, i, -1) : -1;
    if (!buckets_[i].is_of_factors) Gather(static_cast<int>(i), {copied});
  }
  ConvertMasters(b);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (!buckets_[i].is_of_factors) continue;
    Gather(static_cast<int>(i), {b.LastCompute()});
    b.WaitBeforeNextCompute(buckets_[i].gather);
    if (gathers_in_16_bits(buckets_[i])) ConvertGathered(buckets_[i]);
  }
}

}  // namespace

bool AlignsReductions(const Scenario& scenario) {
  const DataParallelSpec& data = scenario.parallel.data;
  const PipelineSpec& pipeline = scenario.parallel.pipeline;
  const bool has_schedule = pipeline.schedule == "1f1b" || pipeline.schedule == "interleaved";
  return scenario.framework == Framework::kMegatronCore && data.overlap && pipeline.size > 1 &&
         has_schedule && data.kind != DataParallelKind::kZero2 && data.sync == GradientSync::kLastMicroBatch;
}

std::unique_ptr<DataParallel> MakeZero(const StrategyContext& context) {
  return std::make_unique<Zero>(context);
}

}  // namespace windtunnel
