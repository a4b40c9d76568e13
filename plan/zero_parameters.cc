// ZeRO's parameters: the update, and how new values are converted and gathered.
#include "plan/zero.h"

namespace windtunnel {

void Zero::BeginStep(ProgramBuilder& b, int64_t step) {
  b_ = &b;
  for (ZeroBucket& bucket : buckets_) {
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
  for (ZeroBucket& bucket : buckets_) {
    bucket.is_gathered = are_gathered;
    bucket.gather = -1;
  }
  if (!are_gathered && !buckets_.empty()) Gather(static_cast<int>(buckets_.size()) - 1, {});
}

void Zero::Gather(int index, std::vector<OpIndex> after) {
  ZeroBucket& bucket = buckets_[index];
  if (gathers_in_16_bits(bucket)) bucket.gather = GatherIn16Bits(index, std::move(after));
  else
    bucket.gather = bucket.shard_axis->AllGather(*b_, bucket.own_values, bucket.values,
                                                 fmt::format("bucket {}", index), std::move(after));
  b_->Carries(bucket.gather, bucket.parameters);
}

// Makes the next compute operator wait for the bucket's values, and starts the next bucket's all-gather.
void Zero::AwaitValues(int index) {
  ZeroBucket& bucket = buckets_[index];
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

void Zero::Update(ProgramBuilder& b, bool first) {
  b.SetPhase(Phase::kOptimizer);
  for (ZeroBucket& bucket : buckets_) bucket.for_update = bucket.own_gradient;
  const bool has_sums = std::any_of(role_.parameters.begin(), role_.parameters.end(),
                                    [](const Parameter& parameter) { return parameter.is_partial_gradient; });
  if (!offloads_ || has_sums) CopyGradients("fp32", MemorySpace::kDevice);
  optimizer_.BeginUpdate(b, Targets());
  if (offloads_) {
    CopyGradients("host", MemorySpace::kHost);
    optimizer_.SetTargets(Targets());
  }
  optimizer_.PrepareGradients(b, first);
  std::vector<OpIndex> updated;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const int target = static_cast<int>(i);
    updated.push_back(optimizer_.AddUpdate(b, first, target, target + 1, fmt::format("bucket {}", i)));
    if (buckets_[i].master.buffer >= 0 && !buckets_[i].is_of_factors)
      updated.back() = CopyFromMaster(b, i, updated.back());
    if (!gathers_late_ && gathers_beside_update()) Gather(target, {updated.back()});
  }
  ConvertMasters(b);
  if (gathers_late_ || gathers_beside_update()) return;
  for (size_t i = 0; i < buckets_.size(); ++i) Gather(static_cast<int>(i), {updated.back(), b.LastCompute()});
  for (ZeroBucket& bucket : buckets_) {
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
    const ZeroBucket& bucket = buckets_[converted[i]];
    std::vector<Slice> reads = {rounded[i]};
    if (magnitudes[i].buffer >= 0) reads.push_back(magnitudes[i]);
    Fp8Cast cast{bucket.shard, 1, recipe_, false, type_};
    cast.groups = static_cast<int64_t>(bucket.parameters.size());
    b.Add(cast, fmt::format("bucket {}", converted[i]), std::move(reads), {bucket.own_values});
  }
}

// Finds the largest magnitude of each weight, or of each of its blocks, over all ranks that have a part of
// it.
void Zero::AgreeOnMagnitudes(ProgramBuilder& b, const std::vector<size_t>& buckets,
                             const std::vector<Slice>& rounded, std::vector<Slice>& magnitudes) {
  constexpr int64_t kBlock = 128 * 128;
  for (CollectiveStream* all : {&data_, &expert_data_}) {
    std::vector<Fp8Amax> ops;
    int64_t numbers = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      const ZeroBucket& bucket = buckets_[buckets[i]];
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
  ZeroBucket& bucket = buckets_[index];
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
void Zero::ConvertGathered(ZeroBucket& bucket) {
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
  const ZeroBucket& bucket = buckets_[index];
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

}  // namespace windtunnel
