#include "plan/ddp.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "plan/gradient_buckets.h"

namespace windtunnel {
namespace {

// The buffer of torch.distributed._broadcast_coalesced in DDP's constructor.
constexpr Bytes kBroadcastBucket = MiB(250);

// That of what is trained: frozen weights may have another (model.lora.quantize).
DType TypeOfGradients(const Role& role, const std::vector<Slice>& values) {
  const std::vector<int> trained = TrainedOf(role.parameters);
  const Slice& first = trained.empty() ? values.front() : values[static_cast<size_t>(trained.front())];
  return role.buffers[first.buffer].dtype;
}

}  // namespace

DdpReducer::DdpReducer(Role& role, const Scenario& scenario, CollectiveStream& collectives,
                       CollectiveStream& experts, std::vector<Slice> values, DType reduce, StreamId host)
    : role_(role),
      spec_(scenario.parallel.data),
      collectives_(collectives),
      experts_(experts),
      values_(std::move(values)),
      type_(TypeOfGradients(role, values_)),
      reduce_(reduce),
      limits_(BucketLimits(scenario, SizeOf(type_))),
      trained_(TrainedOf(role.parameters)),
      as_pytorch_(CompressesAsPytorch(scenario)),
      host_(host),
      holds_value_(role.parameters.size(), false) {
  WT_CHECK(!spec_.gradient_as_bucket_view || type_ == reduce_);
  // DeepSpeed's stage 0 reduces behind backward (runtime/engine.py, allreduce_gradients).
  if (scenario.framework == Framework::kDeepspeed) spec_.overlap = false;
  if (!spec_.gradient_as_bucket_view) own_gradients_ = std::make_unique<ParameterGradients>(role, type_);
  if (spec_.find_unused_parameters) {
    used_map_ = NewBuffer(role, "used parameters", static_cast<int64_t>(trained_.size()),
                          Category::kCommunication, DType::kInt32);
  }
  AssignFirstBuckets();
}

void DdpReducer::AssignFirstBuckets() {
  if (!spec_.find_unused_parameters) {
    buckets_ = MakeBuckets(trained_, {Bytes::Max()}, BufferUse::kFirstBucket);
    return;
  }
  buckets_ = MakeBuckets(trained_, limits_, BufferUse::kBucket);
  // Assigned in registration order, then launched in reverse: bucket 0 has the last parameters.
  std::reverse(buckets_.begin(), buckets_.end());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    role_.buffers[buckets_[b].whole.buffer].name = fmt::format("bucket {}", b);
    for (int parameter : buckets_[b].parameters) bucket_of_[parameter] = static_cast<int>(b);
  }
}

std::vector<int> DdpReducer::WithExperts(const std::vector<int>& parameters, bool of_experts) const {
  std::vector<int> some;
  for (int parameter : parameters) {
    if (role_.parameters[parameter].is_of_experts() == of_experts) some.push_back(parameter);
  }
  return some;
}

// The buckets are in the order of their last parameters.
std::vector<DdpReducer::Bucket> DdpReducer::MakeBuckets(const std::vector<int>& order,
                                                        const std::vector<Bytes>& limits, BufferUse use) {
  std::vector<Bucket> buckets;
  for (bool of_experts : {false, true}) {
    const std::vector<int> parameters = WithExperts(order, of_experts);
    std::vector<Bytes> sizes;
    for (int parameter : parameters) sizes.push_back(SizeOf(type_) * role_.parameters[parameter].elements);
    for (const std::vector<int>& positions : AssignBuckets(sizes, limits)) {
      Bucket bucket;
      bucket.collectives = of_experts ? &experts_ : &collectives_;
      for (int position : positions) bucket.parameters.push_back(parameters[position]);
      buckets.push_back(std::move(bucket));
    }
  }
  std::vector<size_t> place(role_.parameters.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  std::stable_sort(buckets.begin(), buckets.end(), [&](const Bucket& a, const Bucket& b) {
    return place[a.parameters.back()] < place[b.parameters.back()];
  });
  bucket_of_.assign(role_.parameters.size(), -1);
  slot_.assign(role_.parameters.size(), {});
  const char* generation = use == BufferUse::kFirstBucket ? "first " : "";
  for (size_t i = 0; i < buckets.size(); ++i)
    Place(buckets[i], static_cast<int>(i), fmt::format("{}bucket {}", generation, i), use);
  return buckets;
}

// Gradients that are compressed lie together, before the others.
void DdpReducer::Place(Bucket& bucket, int index, std::string name, BufferUse use) {
  if (spec_.powersgd) {
    std::stable_partition(bucket.parameters.begin(), bucket.parameters.end(), [&](int parameter) {
      return CompressedRank(*spec_.powersgd, role_.parameters[parameter]) > 0;
    });
  }
  const Category category = spec_.gradient_as_bucket_view ? Category::kGradients : Category::kCommunication;
  int64_t elements = 0;
  for (int parameter : bucket.parameters) elements += role_.parameters[parameter].elements;
  bucket.whole = NewBuffer(role_, std::move(name), elements, category, reduce_);
  role_.buffers[bucket.whole.buffer].use = use;
  int64_t offset = 0;
  for (int parameter : bucket.parameters) {
    bucket_of_[parameter] = index;
    slot_[parameter] = Slice{bucket.whole.buffer, offset, role_.parameters[parameter].elements};
    offset += role_.parameters[parameter].elements;
  }
}

void DdpReducer::Initialize(ProgramBuilder& builder) {
  builder_ = &builder;
  builder.SetPhase(Phase::kInitialize);
  std::vector<int> all(role_.parameters.size());
  std::iota(all.begin(), all.end(), 0);
  BroadcastParameters(collectives_, WithExperts(all, false));
  BroadcastParameters(experts_, WithExperts(all, true));
  for (const Bucket& bucket : buckets_) builder.Alloc(bucket.whole.buffer);
  if (used_map_.buffer >= 0) builder.Alloc(used_map_.buffer);
}

// Coalesced: parameters are flattened into a buffer, broadcast, and copied back.
// Packed ones go one by one.
void DdpReducer::BroadcastParameters(CollectiveStream& collectives, std::vector<int> parameters) {
  if (collectives.ranks() == 1) return;
  const auto is_packed = [&](int index) { return role_.parameters[index].packed.has_value(); };
  for (const int index : parameters) {
    if (!is_packed(index)) continue;
    const OpIndex broadcast = collectives.Broadcast(*builder_, 0, values_[index],
                                                    role_.parameters[index].name, {builder_->LastCompute()});
    builder_->Carries(broadcast, {index});
  }
  std::erase_if(parameters, is_packed);
  size_t begin = 0;
  while (begin < parameters.size()) {
    int64_t elements = 0;
    size_t end = begin;
    while (end < parameters.size() &&
           (end == begin ||
            SizeOf(type_) * (elements + values_[parameters[end]].elements) <= kBroadcastBucket)) {
      elements += values_[parameters[end++]].elements;
    }
    Slice flat = builder_->Temporary("broadcast buffer", elements, Category::kCommunication, type_);
    std::vector<Slice> parts;
    int64_t offset = 0;
    for (size_t i = begin; i < end; ++i) {
      const Slice& values = values_[parameters[i]];
      parts.push_back(Slice{flat.buffer, offset, values.elements});
      builder_->Add(Copy{.elements = parts.back().elements, .from = type_, .to = type_},
                    role_.parameters[parameters[i]].name, {values}, {parts.back()});
      offset += parts.back().elements;
    }
    OpIndex broadcast =
        collectives.Broadcast(*builder_, 0, flat, "broadcast parameters", {builder_->LastCompute()});
    for (size_t i = begin; i < end; ++i) {
      builder_->Add(Copy{.elements = parts[i - begin].elements, .from = type_, .to = type_},
                    role_.parameters[parameters[i]].name, {parts[i - begin]}, {values_[parameters[i]]},
                    {broadcast});
    }
    begin = end;
  }
}

void DdpReducer::BeginStep(ProgramBuilder& builder, int64_t step) {
  builder_ = &builder;
  if (own_gradients_) own_gradients_->ZeroGrad(builder, /*alive_at_start=*/step > 0);
  std::fill(holds_value_.begin(), holds_value_.end(), false);
  if (step == 1 && !spec_.find_unused_parameters) Rebuild();
  compresses_ = spec_.powersgd && step >= spec_.powersgd->start_step;
  // (Some plans are without the first steps: CompileOptions::starts_up.)
  if (spec_.powersgd && (step == 1 || (compresses_ && compressed_.empty()))) PrepareCompression();
}

// Rank 0's order reaches the others by two int32 broadcasts: the buckets' parameters and count, and their
// sizes. The new buckets are allocated before the old ones are freed.
void DdpReducer::Rebuild() {
  builder_->SetPhase(Phase::kGradientSync);
  std::vector<Bucket> old = std::move(buckets_);
  buckets_ = MakeBuckets(ready_order_, limits_, BufferUse::kBucket);
  Slice indices = builder_->Temporary("rebuilt bucket indices", static_cast<int64_t>(ready_order_.size()) + 1,
                                      Category::kCommunication, DType::kInt32);
  Slice sizes = builder_->Temporary("rebuilt bucket sizes", static_cast<int64_t>(buckets_.size()),
                                    Category::kCommunication, DType::kInt32);
  for (Slice slice : {indices, sizes}) {
    builder_->Add(Fill{slice.elements, 0.0, DType::kInt32}, role_.buffers[slice.buffer].name, {}, {slice});
    collectives_.Broadcast(*builder_, 0, slice, role_.buffers[slice.buffer].name, {builder_->LastCompute()});
  }
  for (const Bucket& bucket : buckets_) builder_->Alloc(bucket.whole.buffer);
  for (const Bucket& bucket : old) builder_->Free(bucket.whole.buffer);
}

void DdpReducer::PrepareCompression() {
  builder_->SetPhase(Phase::kGradientSync);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    std::vector<Slice> slots;
    for (int parameter : bucket.parameters) slots.push_back(slot_[parameter]);
    compressed_.emplace_back(role_, *spec_.powersgd, *bucket.collectives, fmt::format("bucket {}", i),
                             bucket.whole, bucket.parameters, slots, as_pytorch_);
    compressed_.back().Allocate(*builder_);
  }
}

void DdpReducer::BeginReduction() {
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.pending = static_cast<int>(bucket.parameters.size());
    bucket.launched = -1;
  }
}

Slice DdpReducer::Gradient(int index) {
  return own_gradients_ ? own_gradients_->Gradient(index) : slot_[index];
}

void DdpReducer::Wrote(int index) {
  holds_value_[index] = true;
  if (own_gradients_) own_gradients_->Wrote(index);
}

// A gradient is the mean over all ranks. With sync: every_micro_batch each micro-batch also reduces the mean
// so far, which is the same on all ranks that have the parameter, and must not change. So the gradient of
// experts, which fewer ranks have, is at first the mean over these ranks, and becomes their share of the
// whole mean with the last micro-batch.
int DdpReducer::SharingRanks(int index) const {
  const bool keeps = spec_.sync == GradientSync::kEveryMicroBatch && role_.parameters[index].is_of_experts();
  return keeps ? experts_.ranks() : collectives_.ranks();
}

void DdpReducer::Ready(int index, bool is_last) {
  Wrote(index);
  if (!is_last && spec_.sync == GradientSync::kLastMicroBatch) return;
  if (ready_++ == 0) BeginReduction();
  if (ready_order_.size() < trained_.size()) ready_order_.push_back(index);
  is_last_reduction_ = is_last;
  // Compressed gradients become the mean when they are copied back.
  const double share = compresses_ ? 1 : 1.0 / static_cast<double>(SharingRanks(index));
  const std::string& name = role_.parameters[index].name;
  if (own_gradients_) {
    builder_->Add(Copy{.elements = slot_[index].elements, .from = type_, .to = reduce_, .scale = share}, name,
                  {own_gradients_->Place(index)}, {slot_[index]});
  } else if (share != 1) {
    builder_->Add(Scale{slot_[index].elements, share, type_}, name, {slot_[index]}, {slot_[index]});
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
  if (compresses_) return Compress(index);
  bucket.launched = bucket.collectives->AllReduce(*builder_, bucket.whole, fmt::format("bucket {}", index),
                                                  {builder_->LastCompute()});
  builder_->Carries(bucket.launched, bucket.parameters);
}

void DdpReducer::Compress(size_t index) {
  compressed_[index].ReduceLeft(*builder_);
  if (!as_pytorch_) {
    if (index > 0) compressed_[index - 1].ReduceRight(*builder_);
    return;
  }
  compressed_[index].ReduceRight(*builder_);
  compressed_[index].Decompress(*builder_);
  if (host_ >= 0)
    builder_->Add(HostWait{}, fmt::format("bucket {}", index), {}, {}, builder_->BeforeNextCompute(), host_);
}

// Sums over ranks which parameters were used: those that no rank used keep their gradient.
void DdpReducer::ReduceUsedParameters() {
  builder_->Add(Fill{used_map_.elements, 1.0, DType::kInt32}, "used parameters", {}, {used_map_});
  collectives_.AllReduce(*builder_, used_map_, "used parameters", {builder_->LastCompute()});
}

void DdpReducer::EndBackward() {
  if (ready_ < static_cast<int64_t>(trained_.size())) return;
  ready_ = 0;
  builder_->SetPhase(Phase::kGradientSync);
  LaunchReadyBuckets();
  WT_CHECK_EQ(next_bucket_, buckets_.size());
  const bool decompresses = compresses_ && !as_pytorch_;
  if (decompresses) compressed_.back().ReduceRight(*builder_);
  if (used_map_.buffer >= 0) ReduceUsedParameters();
  for (const CollectiveStream* stream : {&collectives_, &experts_}) {
    const bool waits = stream->ranks() > 1 && (used_map_.buffer >= 0 || !own_gradients_);
    builder_->WaitBeforeNextCompute(waits ? builder_->LastOn(stream->stream()) : -1);
  }
  for (size_t index = 0; index < buckets_.size(); ++index) {
    const Bucket& bucket = buckets_[index];
    if (decompresses) compressed_[index].Decompress(*builder_);
    for (int parameter : bucket.parameters) {
      const double ranks = collectives_.ranks(), sharing = compresses_ ? 1 : SharingRanks(parameter);
      const double share = is_last_reduction_ ? sharing / ranks : 1;
      if (!own_gradients_) {
        if (share != 1)
          builder_->Add(Scale{slot_[parameter].elements, share, type_}, role_.parameters[parameter].name,
                        {slot_[parameter]}, {slot_[parameter]});
        continue;
      }
      builder_->Add(Copy{.elements = slot_[parameter].elements, .from = reduce_, .to = type_, .scale = share},
                    role_.parameters[parameter].name, {slot_[parameter]}, {own_gradients_->Place(parameter)},
                    bucket.launched < 0 ? std::vector<OpIndex>() : std::vector<OpIndex>{bucket.launched});
    }
  }
}

}  // namespace windtunnel
