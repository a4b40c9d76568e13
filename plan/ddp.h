// DistributedDataParallel's reducer (PyTorch, torch/csrc/distributed/c10d/reducer.cpp), as operators.
//
// In the first step all gradients share one bucket, so nothing overlaps. At the start of the second step's
// forward buckets are rebuilt in the order in which gradients became ready, with limits [1 MiB, BucketCap]
// (BucketCap alone in Megatron-Core, and if bucket_cap_mb is given). With find_unused_parameters those limits
// hold from the first step on, over parameters in reversed registration order, and there is no rebuild; a map
// of used parameters is reduced after the last bucket.
//
// A ready gradient is copied into its bucket, divided by the number of ranks. A full bucket is all-reduced on
// the group's stream, strictly in bucket order, while backward goes on. After backward every bucket is waited
// for in order and copied back. With gradient_as_bucket_view gradients live in the buckets, without copies.
//
// With parallel.data.powersgd, from its start_step on, a full bucket is compressed instead (plan/powersgd.h).
// What a bucket computes between its all-reduces is done once the next bucket is full, or backward over. With
// PyTorch it is done at once, and the host waits until the bucket is decompressed: its hook synchronises.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "plan/collectives.h"
#include "plan/parameter_gradients.h"
#include "plan/powersgd.h"

namespace windtunnel {

class DdpReducer {
 public:
  // `values` are the parameters as the model computes with them; gradients have their type, buckets have type
  // `reduce`.
  // REQUIRES: both types are the same with gradient_as_bucket_view.
  // `experts`: the ranks over which gradients of experts (Parameter::is_of_experts) are reduced, in buckets
  // of their own. They, too, become shares of the mean over `collectives`, from all of which their tokens
  // come. `host`: the stream for HostWait; -1 where the host computes.
  DdpReducer(Role& role, const Scenario& scenario, CollectiveStream& collectives, CollectiveStream& experts,
             std::vector<Slice> values, DType reduce, StreamId host);

  // Broadcasts parameters from rank 0 and allocates the first buckets. Once, in the initialisation program.
  void Initialize(ProgramBuilder& builder);
  // Starts a step: zero_grad, and in step 1 the rebuild.
  void BeginStep(ProgramBuilder& builder, int64_t step);
  // Once every parameter's gradient is in its bucket: waits for all buckets and copies them back.
  void EndBackward();

  // First steps that differ from the steady one: step 0, step 1 if buckets are rebuilt in it, and those
  // before gradients are compressed, which from step 2 on are alike.
  int64_t startup_steps() const {
    if (spec_.powersgd) return spec_.powersgd->start_step;
    return spec_.find_unused_parameters ? 1 : 2;
  }
  int64_t startup_programs() const { return std::min<int64_t>(startup_steps(), 3); }

  Slice Gradient(int index);
  // Where the optimizer finds the gradient in this program.
  Slice Place(int index) const { return own_gradients_ ? own_gradients_->Place(index) : slot_[index]; }
  bool HoldsValue(int index) const { return holds_value_[index]; }
  // `is_last`: the step's last micro-batch. The others are under no_sync, unless sync: every_micro_batch.
  void Ready(int index, bool is_last);
  void Wrote(int index);

 private:
  struct Bucket {
    Slice whole;
    std::vector<int> parameters;
    CollectiveStream* collectives = nullptr;
    int pending = 0;
    OpIndex launched = -1;
  };

  int SharingRanks(int index) const;
  void BeginReduction();
  void AssignFirstBuckets();
  void Rebuild();
  std::vector<Bucket> MakeBuckets(const std::vector<int>& order, const std::vector<Bytes>& limits,
                                  BufferUse use);
  void BroadcastParameters(CollectiveStream& collectives, std::vector<int> parameters);
  std::vector<int> WithExperts(const std::vector<int>& parameters, bool of_experts) const;
  void Place(Bucket& bucket, int index, std::string name, BufferUse use);
  void PrepareCompression();
  void Compress(size_t index);
  void Launch(Bucket& bucket, size_t index);
  void LaunchReadyBuckets();
  void ReduceUsedParameters();

  Role& role_;
  DataParallelSpec spec_;
  CollectiveStream &collectives_, &experts_;
  std::vector<Slice> values_;
  DType type_, reduce_;        // of gradients and of buckets
  std::vector<Bytes> limits_;  // of buckets, as AssignBuckets takes them
  std::vector<int> trained_;   // parameters that have gradients; the others are only broadcast
  ProgramBuilder* builder_ = nullptr;
  std::unique_ptr<ParameterGradients> own_gradients_;  // absent with gradient_as_bucket_view
  std::vector<Bucket> buckets_;
  std::vector<CompressedBucket> compressed_;  // as buckets_, once they are final; else empty
  bool compresses_ = false;                   // in this step
  const bool as_pytorch_;                     // compresses as PyTorch's hook
  const StreamId host_;
  std::vector<int> bucket_of_;
  std::vector<Slice> slot_;       // each parameter's place in its bucket
  std::vector<int> ready_order_;  // recorded in the first synchronised backward
  std::vector<bool> holds_value_;
  Slice used_map_;
  bool is_last_reduction_ = false;  // the reduction under way is the step's last
  int64_t ready_ = 0;  // parameters whose gradients are in the buckets of the reduction under way
  size_t next_bucket_ = 0;
};

}  // namespace windtunnel
