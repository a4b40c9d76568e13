// ZeRO-3's gradients: collected in a bucket, reduced, and added to the rank's parts.
#include <algorithm>

#include "plan/zero3.h"

namespace windtunnel {

void Zero3::BeginBackward(bool is_last) { is_last_backward_ = is_last; }

// The model's operators write it in the model's type. A module is fetched for its backward even if that reads
// none of its parameters.
Slice Zero3::Gradient(int index) {
  ParameterState& parameter = parameters_[index];
  if (const int64_t scope = scopes_.empty() ? 0 : scopes_.back(); modules_[parameter.module].used_in != scope)
    Use(index);
  if (parameter.gradient.buffer < 0)
    parameter.gradient =
        b_->Temporary(NameOf(index) + ".grad", parameter.elements, Category::kGradients, type_);
  return parameter.gradient;
}

// As reduce_independent_p_g_buckets_and_remove_grads.
void Zero3::Ready(int index, bool) {
  ParameterState& parameter = parameters_[index];
  if (filled_ > 0 && filled_ + parameter.elements > bucket_elements_) Launch();
  Reduced reduced{index, parameter.gradient, b_->LastCompute()};
  if (filled_ + parameter.elements <= bucket_elements_) {
    // What was reduced within the bucket is taken out of it before it is filled again.
    if (!arriving_.empty() && arriving_.back().own.buffer == bucket_.buffer) Settle();
    reduced.gradient = Slice{bucket_.buffer, filled_, parameter.elements};
    reduced.ready = last_copied_ =
        AddOn(reductions_, Copy{.elements = parameter.elements, .from = type_, .to = reduce_}, NameOf(index),
              {parameter.gradient}, {reduced.gradient}, {reduced.ready, bucket_free_after_});
  } else if (type_ != reduce_) {
    reduced.gradient = b_->Temporary(NameOf(index) + ".grad (to reduce)", parameter.elements,
                                     Category::kCommunication, reduce_);
    reduced.ready = last_copied_ =
        AddOn(reductions_, Copy{.elements = parameter.elements, .from = type_, .to = reduce_}, NameOf(index),
              {parameter.gradient}, {reduced.gradient}, {reduced.ready});
  }
  in_bucket_.push_back(reduced);
  filled_ += parameter.elements;
  parameter.gradient = {};
  parameter.holds_gradient = false;
}

// The gradients with their parts of each rank together, as reduce_scatter_coalesced has them. A gradient that
// is alone and divides evenly is reduced where it is.
Slice Zero3::InOrder(OpIndex& ready) {
  if (in_bucket_.size() == 1 && in_bucket_[0].gradient.elements % ranks() == 0) {
    ready = in_bucket_[0].ready;
    return in_bucket_[0].gradient;
  }
  std::vector<int64_t> shards;
  std::vector<Slice> gradients;
  std::vector<OpIndex> after;
  int64_t part = 0;
  for (const Reduced& reduced : in_bucket_) {
    shards.push_back(parameters_[reduced.parameter].shard);
    gradients.push_back(reduced.gradient);
    after.push_back(reduced.ready);
    part += shards.back();
  }
  const std::string name = NameOf(in_bucket_);
  const Slice flat =
      b_->Temporary(name + ".grad (to reduce)", part * ranks(), Category::kCommunication, reduce_);
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  ready = AddOn(reductions_, PackShards{ranks(), std::move(shards), reduce_, reduce_}, name,
                std::move(gradients), {flat}, std::move(after));
  return flat;
}

// By the first one that is not small, where there is one.
std::string Zero3::NameOf(const std::vector<Reduced>& gradients) const {
  const auto large = std::find_if(gradients.begin(), gradients.end(), [&](const Reduced& reduced) {
    return !parameters_[reduced.parameter].is_whole;
  });
  const Reduced& first = large == gradients.end() ? gradients.front() : *large;
  return NameOf(NameOf(first.parameter), gradients.size());
}

// As __reduce_and_partition_ipg_grads.
void Zero3::Launch() {
  if (in_bucket_.empty()) return;
  if (!is_beside(reductions_)) Settle();
  // The gradients in the bucket are free.
  b_->WaitBeforeNextCompute(last_copied_);
  std::sort(in_bucket_.begin(), in_bucket_.end(),
            [](const Reduced& a, const Reduced& b) { return a.parameter < b.parameter; });
  OpIndex ready = -1;
  const Slice flat = InOrder(ready);
  const std::string name = NameOf(in_bucket_);
  if (data_.ranks() > 1) {
    ready = AddOn(reductions_, Scale{flat.elements, 1.0 / static_cast<double>(data_.ranks()), reduce_}, name,
                  {flat}, {flat}, {ready});
  }
  Arriving arriving{std::move(in_bucket_), OwnShard(shard_axis_, flat, flat.elements / ranks()), ready};
  const OpIndex scattered = shard_axis_.ReduceScatter(*b_, flat, arriving.own, name, {ready});
  if (scattered >= 0) arriving.after = scattered;
  std::vector<int> carried;
  for (const Reduced& reduced : arriving.gradients) carried.push_back(reduced.parameter);
  b_->Carries(scattered, carried);
  // On a stream of their own later copies into the bucket are behind the reduction; elsewhere only where that
  // is within the bucket.
  if (is_beside(reductions_) || flat.buffer == bucket_.buffer) bucket_free_after_ = arriving.after;
  in_bucket_ = {};
  filled_ = 0;
  arriving_.push_back(std::move(arriving));
  if (!overlaps_) b_->WaitBeforeNextCompute(scattered);
  if (is_beside(reductions_) || !overlaps_) Settle();
}

// Adds what has been reduced to the rank's parts (partition_grads).
void Zero3::Settle() {
  for (const Arriving& arriving : arriving_) {
    Slice part = arriving.own;
    for (const Reduced& reduced : arriving.gradients) {
      const ParameterState& parameter = parameters_[reduced.parameter];
      part.elements = parameter.shard;
      const auto crosses = offload_ == Offload::kNone ? Copy::Crosses::kNothing : Copy::Crosses::kToHost;
      const Copy copy{.elements = parameter.shard,
                      .from = reduce_,
                      .to = role_.buffers[gradients_.buffer].dtype,
                      .accumulate = adds_gradients_,
                      .crosses = crosses};
      last_reduction_ = AddOn(reductions_, copy, NameOf(reduced.parameter), {part},
                              {PartOf(reduced.parameter)}, {arriving.after});
      part.offset += parameter.shard;
    }
    if (is_last_backward_ && replicate_.ranks() > 1) SumOverReplicas(arriving.gradients);
  }
  arriving_.clear();
}

// MiCS: the sum over ranks that have the same parts (allreduce_mics_shard_grads).
void Zero3::SumOverReplicas(const std::vector<Reduced>& gradients) {
  std::vector<int64_t> shards;
  std::vector<Slice> parts;
  std::vector<int> carried;
  int64_t elements = 0;
  for (const Reduced& reduced : gradients) {
    carried.push_back(reduced.parameter);
    parts.push_back(PartOf(reduced.parameter));
    shards.push_back(parameters_[reduced.parameter].shard);
    elements += shards.back();
  }
  const std::string name = NameOf(gradients) + " (parts)";
  const Slice flat = b_->Temporary(name, elements, Category::kCommunication, reduce_);
  const OpIndex packed =
      AddOn(reductions_, PackShards{1, shards, reduce_, reduce_}, name, parts, {flat}, {last_reduction_});
  const OpIndex sum = replicate_.AllReduce(*b_, flat, name, {packed});
  b_->Carries(sum, carried);
  last_reduction_ =
      AddOn(reductions_, UnpackShards{1, std::move(shards), reduce_}, name, {flat}, parts, {sum});
}

void Zero3::EndBackward() {
  Leave();
  if (trace_ == Trace::kRecords) FollowOrder();
  b_->SetPhase(Phase::kGradientSync);
  Launch();
  Settle();
  adds_gradients_ = true;
  b_->WaitBeforeNextCompute(last_reduction_);
  // The host waits for the stream of reductions (independent_gradient_partition_epilogue).
  if (host_ >= 0 && last_reduction_ >= 0) b_->Add(HostWait{}, "gradients", {}, {}, {last_reduction_}, host_);
}

}  // namespace windtunnel
