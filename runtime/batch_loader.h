// Feeds a rank's micro-batches: the sampler's indices, in order, through the data source, into the program's input buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/data.h"
#include "runtime/device.h"
#include "runtime/sampler.h"

namespace windtunnel {

class BatchLoader {
 public:
  // `replica` of `replicas` data-parallel replicas. Errors: those of MakeDataSource.
  static Result<std::unique_ptr<BatchLoader>> Make(const Scenario& scenario, int64_t replica,
                                                   int64_t replicas);

  // Micro-batch `op.micro_batch` of step `step`, into what LoadBatch writes (plan/op.h). The epoch follows from the step. `context_rank`
  // has a part of each sequence's tokens.
  void Load(const LoadBatch& op, int64_t step, int context_rank, std::span<const TensorRef> writes);
  // Goes on where a job stopped after `step` steps, when all replicas together had seen `samples` samples. Where this job has another
  // number of replicas, or other batches, each sample of the epoch still comes once, up to the epoch's padding.
  void GoOn(int64_t step, int64_t samples);
  // What all replicas together see in `steps` steps from the first one on.
  int64_t SamplesSeen(int64_t steps) const;

  // Batches of all replicas that are held out from training, and one of them likewise.
  int64_t HeldOutBatches() const { return source_->held_out() / batch_samples_; }
  int64_t held_out() const { return source_->held_out(); }
  int64_t batch_samples() const { return batch_samples_; }  // that all replicas together take in a step
  void LoadHeldOut(const LoadBatch& op, int64_t batch, int context_rank, std::span<const TensorRef> writes);

 private:
  BatchLoader(std::unique_ptr<DataSource> source, const SamplerOptions& options, const Scenario& scenario);
  void LoadSample(const LoadBatch& op, int64_t sample, int64_t row, int context_rank,
                  std::span<const TensorRef> writes);
  int64_t SampleAt(int64_t position);
  void LoadTokens(const LoadBatch& op, int64_t sample, int64_t row, int context_rank,
                  std::span<const TensorRef> writes);

  std::unique_ptr<DataSource> source_;
  SamplerOptions options_;
  DistributedSampler sampler_;
  int64_t accumulate_, batch_samples_;
  bool tokens_;
  int64_t first_step_ = 0;    // of this job
  int64_t first_sample_ = 0;  // of this replica, in that step
  int64_t epoch_ = 0;
  std::vector<int32_t> ids_, targets_;  // of a whole sequence
};

}  // namespace windtunnel
