#include "plan/ddp.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "plan/gradient_buckets.h"
#include "plan/layers.h"

namespace windtunnel {
namespace {

// torch.distributed._broadcast_coalesced's buffer in DDP's constructor.
constexpr Bytes kBroadcastBucket = MiB(250);

Bytes CapOf(const DataParallelSpec& spec) {
  return Bytes(static_cast<int64_t>(spec.bucket_cap_mb * static_cast<double>(MiB(1).count())));
}

}  // namespace

DdpReducer::DdpReducer(Role& role, const DataParallelSpec& spec, int64_t ranks, StreamId stream, Slice scratch)
    : role_(role), spec_(spec), ranks_(ranks), stream_(stream), scratch_(scratch),
      holds_value_(role.parameters.size(), false) {
  if (!spec.gradient_as_bucket_view) own_gradients_ = std::make_unique<ParameterGradients>(role);
  if (spec.find_unused_parameters) {
    used_map_ = NewBuffer(role, "used parameters", static_cast<int64_t>(role.parameters.size()),
                          Category::kCommunication, DType::kInt32);
  }
  AssignFirstBuckets();
}

void DdpReducer::AssignFirstBuckets() {
  std::vector<int> order(role_.parameters.size());
  std::iota(order.begin(), order.end(), 0);
  if (!spec_.find_unused_parameters) {
    buckets_ = MakeBuckets(order, {Bytes::Max()}, "first ");
    return;
  }
  buckets_ = MakeBuckets(order, {kDdpFirstBucket, CapOf(spec_)}, "");
  // Assigned in registration order, then launched in reverse: bucket 0 has the last parameters.
  std::reverse(buckets_.begin(), buckets_.end());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    role_.buffers[buckets_[b].whole.buffer].name = fmt::format("bucket {}", b);
    for (int parameter : buckets_[b].parameters) bucket_of_[parameter] = static_cast<int>(b);
  }
}

std::vector<DdpReducer::Bucket> DdpReducer::MakeBuckets(const std::vector<int>& order, const std::vector<Bytes>& limits,
                                                        const char* generation) {
  std::vector<Bytes> sizes;
  for (int parameter : order) sizes.push_back(Bytes(4) * role_.parameters[parameter].elements);
  const Category category = spec_.gradient_as_bucket_view ? Category::kGradients : Category::kCommunication;
  bucket_of_.assign(order.size(), -1);
  slot_.assign(order.size(), {});
  std::vector<Bucket> buckets;
  for (const std::vector<int>& positions : AssignBuckets(sizes, limits)) {
    Bucket bucket;
    int64_t elements = 0;
    for (int position : positions) elements += role_.parameters[order[position]].elements;
    bucket.whole = NewBuffer(role_, fmt::format("{}bucket {}", generation, buckets.size()), elements, category);
    int64_t offset = 0;
    for (int position : positions) {
      const int parameter = order[position];
      bucket.parameters.push_back(parameter);
      bucket_of_[parameter] = static_cast<int>(buckets.size());
      slot_[parameter] = Slice{bucket.whole.buffer, offset, role_.parameters[parameter].elements};
      offset += role_.parameters[parameter].elements;
    }
    buckets.push_back(std::move(bucket));
  }
  if (spec_.gradient_as_bucket_view) {
    for (size_t i = 0; i < slot_.size(); ++i) role_.parameters[i].gradient = slot_[i];
  }
  return buckets;
}

void DdpReducer::Initialize(ProgramBuilder& builder) {
  builder_ = &builder;
  builder.SetPhase(Phase::kInitialize);
  if (scratch_.buffer >= 0) builder.Alloc(scratch_.buffer);
  BroadcastParameters();
  for (const Bucket& bucket : buckets_) builder.Alloc(bucket.whole.buffer);
  if (used_map_.buffer >= 0) builder.Alloc(used_map_.buffer);
}

// Coalesced: parameters are flattened into a buffer, broadcast, and copied back.
void DdpReducer::BroadcastParameters() {
  size_t begin = 0;
  while (begin < role_.parameters.size()) {
    int64_t elements = 0;
    size_t end = begin;
    while (end < role_.parameters.size() &&
           (end == begin || Bytes(4) * (elements + role_.parameters[end].elements) <= kBroadcastBucket)) {
      elements += role_.parameters[end++].elements;
    }
    Slice flat = builder_->Temporary("broadcast buffer", elements, Category::kCommunication);
    std::vector<Slice> parts;
    int64_t offset = 0;
    for (size_t i = begin; i < end; ++i) {
      parts.push_back(Slice{flat.buffer, offset, role_.parameters[i].elements});
      builder_->Add(Copy{parts.back().elements}, role_.parameters[i].name, {Values(role_, static_cast<int>(i))},
                    {parts.back()});
      offset += parts.back().elements;
    }
    OpIndex broadcast = Broadcast(flat, DType::kFloat32, "broadcast parameters");
    for (size_t i = begin; i < end; ++i) {
      builder_->Add(Copy{parts[i - begin].elements}, role_.parameters[i].name, {parts[i - begin]},
                    {Values(role_, static_cast<int>(i))}, {broadcast});
    }
    begin = end;
  }
}

void DdpReducer::BeginStep(ProgramBuilder& builder, int64_t step) {
  builder_ = &builder;
  if (own_gradients_) own_gradients_->ZeroGrad(builder, /*alive_at_start=*/step > 0);
  std::fill(holds_value_.begin(), holds_value_.end(), false);
  if (step == 1 && !spec_.find_unused_parameters) Rebuild();
}

// Rank 0's order reaches the others by two int32 broadcasts: the buckets' parameters and count, and their sizes. The new
// buckets are allocated before the old ones are freed.
void DdpReducer::Rebuild() {
  builder_->SetPhase(Phase::kGradientSync);
  std::vector<Bucket> old = std::move(buckets_);
  buckets_ = MakeBuckets(ready_order_, {kDdpFirstBucket, CapOf(spec_)}, "");
  Slice indices = builder_->Temporary("rebuilt bucket indices", static_cast<int64_t>(ready_order_.size()) + 1,
                                      Category::kCommunication, DType::kInt32);
  Slice sizes = builder_->Temporary("rebuilt bucket sizes", static_cast<int64_t>(buckets_.size()), Category::kCommunication,
                                    DType::kInt32);
  for (Slice slice : {indices, sizes}) {
    builder_->Add(Fill{slice.elements, 0.0, DType::kInt32}, role_.buffers[slice.buffer].name, {}, {slice});
    Broadcast(slice, DType::kInt32, role_.buffers[slice.buffer].name);
  }
  for (const Bucket& bucket : buckets_) builder_->Alloc(bucket.whole.buffer);
  for (const Bucket& bucket : old) builder_->Free(bucket.whole.buffer);
}

void DdpReducer::BeginMicroBatch(bool sync) {
  syncing_ = sync;
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.pending = static_cast<int>(bucket.parameters.size());
    bucket.launched = -1;
  }
}

Slice DdpReducer::Gradient(int index) { return own_gradients_ ? own_gradients_->Gradient(index) : slot_[index]; }

void DdpReducer::Ready(int index) {
  holds_value_[index] = true;
  if (own_gradients_) own_gradients_->Ready(index);
  if (!syncing_) return;
  if (ready_order_.size() < role_.parameters.size()) ready_order_.push_back(index);
  const double share = 1.0 / static_cast<double>(ranks_);
  const std::string& name = role_.parameters[index].name;
  if (own_gradients_) {
    builder_->Add(Copy{.elements = slot_[index].elements, .scale = share}, name, {role_.parameters[index].gradient},
                  {slot_[index]});
  } else {
    builder_->Add(Scale{slot_[index].elements, share}, name, {slot_[index]}, {slot_[index]});
  }
  --buckets_[bucket_of_[index]].pending;
  if (spec_.overlap) LaunchReadyBuckets();
}

void DdpReducer::LaunchReadyBuckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) {
    Launch(buckets_[next_bucket_], next_bucket_);
    ++next_bucket_;
  }
}

void DdpReducer::Launch(Bucket& bucket, size_t index) {
  bucket.launched = AllReduce(bucket.whole, DType::kFloat32, fmt::format("bucket {}", index));
}

OpIndex DdpReducer::AllReduce(Slice data, DType dtype, std::string name) {
  const Collective op{CollectiveKind::kAllReduce, dtype, data.elements};
  const int64_t scratch = CollectiveScratchElements(op, static_cast<int>(ranks_));
  scratch_elements_ = std::max(scratch_elements_, scratch);
  std::vector<Slice> writes = {data};
  if (scratch > 0) writes.push_back(Slice{scratch_.buffer, 0, scratch});
  return builder_->Add(op, std::move(name), {data}, std::move(writes), {builder_->LastCompute()}, stream_);
}

OpIndex DdpReducer::Broadcast(Slice data, DType dtype, std::string name) {
  const Collective op{CollectiveKind::kBroadcast, dtype, data.elements};
  return builder_->Add(op, std::move(name), {data}, {data}, {builder_->LastCompute()}, stream_);
}

// Which parameters took part, summed over ranks: those that none used keep their gradient.
void DdpReducer::ReduceUsedParameters() {
  builder_->Add(Fill{used_map_.elements, 1.0, DType::kInt32}, "used parameters", {}, {used_map_});
  AllReduce(used_map_, DType::kInt32, "used parameters");
}

void DdpReducer::EndMicroBatch() {
  if (!syncing_) return;
  builder_->SetPhase(Phase::kGradientSync);
  LaunchReadyBuckets();
  WT_CHECK_EQ(next_bucket_, buckets_.size());
  if (used_map_.buffer >= 0) ReduceUsedParameters();
  builder_->WaitBeforeNextCompute(used_map_.buffer >= 0 || !own_gradients_ ? builder_->LastOn(stream_) : -1);
  if (!own_gradients_) return;
  for (const Bucket& bucket : buckets_) {
    for (int parameter : bucket.parameters) {
      builder_->Add(Copy{slot_[parameter].elements}, role_.parameters[parameter].name, {slot_[parameter]},
                    {role_.parameters[parameter].gradient}, {bucket.launched});
    }
  }
}

}  // namespace windtunnel
