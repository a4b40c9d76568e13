#include "plan/zero.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "base/format.h"
#include "plan/gradient_buckets.h"
#include "plan/model.h"
#include "scenarios/derived.h"

namespace windtunnel {

Zero::Zero(const StrategyContext& context)
    : role_(context.role),
      framework_(context.scenario.framework),
      type_(TypesOf(context.scenario.precision).storage),
      reduce_(TypeOf(context.scenario.precision.reduce)),
      recipe_(context.scenario.precision.fp8_recipe),
      trained_(TrainedOf(role_.parameters)),
      data_(context.dense.all),
      expert_data_(context.of_experts.all),
      copies_(context.copies),
      optimizer_(context.role, context.scenario, context.tensor, NormRanksOf(context)) {
  const DataParallelSpec& spec = context.scenario.parallel.data;
  is_deepspeeds_ = IsDeepspeedsZero(context.scenario);
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
  MakeFrozen(context);
  if (framework_ == Framework::kMegatronCore) MakePlaceholders();
}

Zero::Launches Zero::LaunchesOf(const StrategyContext& context) const {
  const bool overlaps = context.scenario.parallel.data.overlap;
  if (is_deepspeeds_) {
    if (context.scenario.parallel.pipeline.size > 1) return Launches::kBehindBackwards;
    if (overlaps) return Launches::kInBackward;
    return keeps_whole_ ? Launches::kBehindBackwards : Launches::kBlockingBackward;
  }
  if (!overlaps) return Launches::kBehindBackwards;
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
    for (const std::vector<int>& positions :
         is_deepspeeds_ ? TakeTensors(sizes, limit) : AssignBuckets(sizes, {limit})) {
      buckets.emplace_back();
      for (int position : positions) buckets.back().push_back(run[position]);
    }
    run.clear();
  };
  // Stages from the last to the first, and so are each stage's parameters.
  std::vector<int> order = trained_;
  std::reverse(order.begin(), order.end());
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = std::find_if(begin, order.end(), [&, stage = StageOf(*begin)](int parameter) {
      return StageOf(parameter) != stage;
    });
    std::stable_partition(begin, end, [&](int parameter) { return role_.parameters[parameter].is_factor; });
    begin = end;
  }
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
  bucket_of_.assign(role_.parameters.size(), -1);
  offset_.resize(role_.parameters.size());
  const Bytes cap = BucketCap(context.scenario, SizeOf(reduce_));
  if (is_deepspeeds_) bucket_elements_ = cap / SizeOf(reduce_);
  for (const std::vector<int>& parameters : InBuckets(cap)) {
    ZeroBucket bucket;
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
  if (!is_deepspeeds_ || !keeps_whole_ || data_.ranks() == 1) return;
  for (int i = 0; i < (launches_ == Launches::kInBackward ? 2 : 1); ++i)
    reduce_buckets_.push_back(NewBuffer(role_, fmt::format("reduce bucket {}", i),
                                        bucket_elements_ + data_.ranks(), Category::kCommunication, reduce_));
}

void Zero::MakeBuffers(ZeroBucket& bucket, const std::string& name) {
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

void Zero::MakeFrozen(const StrategyContext& context) {
  frozen_.resize(role_.parameters.size());
  for (size_t i = 0; i < frozen_.size(); ++i) {
    Parameter& parameter = role_.parameters[i];
    if (!parameter.is_frozen) continue;
    frozen_[i].values = ValuesBuffer(role_, parameter, type_);
    frozen_[i].all = &context.RanksOf(parameter).all;
    parameter.values = {.buffer = frozen_[i].values.buffer};
  }
}

// Experts' weights have placeholders of a single expert's shape, which is small and often another layer's.
// They are left out.
void Zero::MakePlaceholders() {
  placeholder_of_.assign(role_.parameters.size(), -1);
  std::map<std::array<int64_t, 2>, BufferId> by_shape;
  for (const int index : trained_) {
    const Parameter& parameter = role_.parameters[index];
    const auto [rows, columns] = parameter.linear_shape;
    if (rows == 0) continue;
    const auto [of_shape, is_new] = by_shape.try_emplace(parameter.linear_shape, -1);
    if (is_new) {
      const std::string name = fmt::format("gradient placeholder {}", FormatShape({rows, columns}));
      of_shape->second = NewBuffer(role_, name, parameter.elements, Category::kGradients, type_).buffer;
      placeholders_.push_back(of_shape->second);
    }
    placeholder_of_[index] = of_shape->second;
  }
}

void Zero::Initialize(ProgramBuilder& b) {
  for (ZeroBucket& bucket : buckets_) InitializeBucket(b, bucket);
  for (const BufferId placeholder : placeholders_) b.Alloc(placeholder);
  for (const Slice& bucket : reduce_buckets_) b.Alloc(bucket.buffer);
  for (size_t i = 0; i < frozen_.size(); ++i) {
    const auto& [values, all] = frozen_[i];
    if (values.buffer < 0) continue;
    const int index = static_cast<int>(i);
    b.Alloc(values.buffer);
    AddFrozenValues(b, index, values);
    b.Carries(all->Broadcast(b, 0, values, role_.parameters[i].name, {b.LastCompute()}), {index});
  }
}

void Zero::InitializeBucket(ProgramBuilder& b, ZeroBucket& bucket) {
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
  const OpIndex broadcast = bucket.all->Broadcast(b, 0, bucket.values, name, {b.LastCompute()});
  b.Carries(broadcast, bucket.parameters);
}

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
