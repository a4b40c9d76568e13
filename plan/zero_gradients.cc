// ZeRO's gradients: when buckets are reduced, and what the optimizer then reads.
#include <algorithm>

#include "base/check.h"
#include "plan/zero.h"

namespace windtunnel {

void Zero::BeginReduction() {
  next_ = 0;
  for (ZeroBucket& bucket : buckets_) bucket.pending = static_cast<int>(bucket.parameters.size());
}

// The bucket's gradients before the reduction. They are allocated at the first write, with zeros as padding.
Slice Zero::WholeGradient(ZeroBucket& bucket) {
  if (bucket.whole_alive) return bucket.whole_gradient;
  bucket.whole_alive = true;
  const std::string name = role_.buffers[bucket.values.buffer].name + ".grad";
  if (keeps_whole_) {
    if (!keeps_buffers()) b_->Alloc(bucket.whole_gradient.buffer);
  } else {
    const int64_t padded = bucket.shard * bucket.shard_axis->ranks();
    bucket.whole_gradient =
        b_->Temporary(name, std::max(padded, bucket_elements_), Category::kGradients, reduce_);
    bucket.whole_gradient.elements = padded;
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
    const BufferId placeholder = placeholder_of_.empty() ? -1 : placeholder_of_[index];
    gradient_[index] = placeholder >= 0 ? Slice{placeholder, 0, parameter.elements}
                                        : b_->Temporary(parameter.name + ".grad", parameter.elements,
                                                        Category::kGradients, type_);
  }
  return gradient_[index];
}

void Zero::Ready(int index, bool is_last) {
  holds_[index] = true;
  ZeroBucket& bucket = Of(index);
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
  if (launches_ == Launches::kInBackward || launches_ == Launches::kBlockingBackward) LaunchReady();
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
  // The next copy is into a reduce bucket whose last sum has been taken out of it.
  if (const size_t room = reduce_buckets_.size(); room > 0 && next_ >= room) Settle(buckets_[next_ - room]);
  Launch(buckets_[next_], fmt::format("bucket {}", next_));
  if (launches_ == Launches::kBlockingBackward) Settle(buckets_[next_]);
  ++next_;
}

// The gradients where they are summed: in a reduce bucket of DeepSpeed's first stage, unless they are more
// than fit there.
Slice Zero::Reduced(ZeroBucket& bucket, const std::string& name) {
  const Slice whole = bucket.whole_gradient;
  if (reduce_buckets_.empty() || whole.elements > reduce_buckets_[0].elements) return whole;
  const Slice copy{reduce_buckets_[next_ % reduce_buckets_.size()].buffer, 0, whole.elements};
  b_->Add(Copy{.elements = whole.elements, .from = reduce_, .to = reduce_}, name, {whole}, {copy});
  return copy;
}

void Zero::Launch(ZeroBucket& bucket, const std::string& name) {
  const Slice whole = Reduced(bucket, name);
  if (data_.ranks() > 1) {  // the mean is over all data-parallel ranks, also for experts
    b_->Add(Scale{whole.elements, 1.0 / static_cast<double>(data_.ranks()), reduce_}, name, {whole}, {whole});
  }
  const bool sums_whole = is_deepspeeds_ && bucket.shard_axis->ranks() > 1;
  bucket.arriving = bucket.own_gradient;
  if (sums_whole || whole.buffer != bucket.whole_gradient.buffer) {
    bucket.arriving = OwnShard(*bucket.shard_axis, whole, bucket.shard);
  } else if (!keeps_whole_ && (bucket.own_holds || reduce_ != DType::kFloat32)) {
    bucket.arriving = b_->Temporary(name + ".grad (shard)", bucket.shard, Category::kCommunication, reduce_);
  }
  if (!keeps_whole_) {
    if (!bucket.own_alive) b_->Alloc(bucket.own_gradient.buffer);
    bucket.own_alive = true;
  }
  if (bucket.shard_axis->ranks() == 1 && !keeps_whole_) {
    b_->Add(
        Copy{.elements = bucket.shard, .from = reduce_, .to = role_.buffers[bucket.arriving.buffer].dtype},
        name, {whole}, {bucket.arriving});
  }
  const OpIndex op =
      sums_whole ? bucket.shard_axis->AllReduce(*b_, whole, name, {b_->LastCompute()})
                 : bucket.shard_axis->ReduceScatter(*b_, whole, bucket.arriving, name, {b_->LastCompute()});
  b_->Carries(op, bucket.parameters);
  const OpIndex sum =
      bucket.replicate->AllReduce(*b_, bucket.arriving, name, {op, op < 0 ? b_->LastCompute() : -1});
  b_->Carries(sum, bucket.parameters);
  bucket.reduced = sum >= 0 ? sum : op;
}

// Waits for the bucket's reduction, and adds its result to the shard unless it was written there.
void Zero::Settle(ZeroBucket& bucket) {
  if (bucket.arriving.buffer < 0) return;
  b_->WaitBeforeNextCompute(bucket.reduced);
  if (bucket.arriving.buffer != bucket.own_gradient.buffer) {
    b_->Add(Copy{.elements = bucket.shard,
                 .from = reduce_,
                 .to = role_.buffers[bucket.own_gradient.buffer].dtype,
                 .accumulate = bucket.own_holds},
            role_.buffers[bucket.own_gradient.buffer].name, {bucket.arriving}, {bucket.own_gradient});
  }
  bucket.own_holds = true;
  bucket.arriving = {};
}

void Zero::EndBackward() {
  if (ready_ < trained_.size()) return;
  ready_ = 0;
  b_->SetPhase(Phase::kGradientSync);
  LaunchReady();
  for (ZeroBucket& bucket : buckets_) Settle(bucket);
  if (keeps_whole_) return;
  // The next micro-batch's gradients are new buffers.
  for (ZeroBucket& bucket : buckets_) bucket.whole_alive = false;
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
    const ZeroBucket& bucket = buckets_[i];
    const Slice values = bucket.master.buffer >= 0 ? bucket.master : bucket.own_values;
    targets.push_back({fmt::format("bucket {}", i), values, bucket.for_update});
  }
  return targets;
}

// Copies gradients to where the optimizer reads them: as fp32, in `space`.
void Zero::CopyGradients(const char* where, MemorySpace space) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    ZeroBucket& bucket = buckets_[i];
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

}  // namespace windtunnel
