// Feeds a rank's micro-batches: the sampler's indices, in order, through the data source, into the program's
// input buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/data.h"
#include "runtime/kernel_context.h"
#include "runtime/sampler.h"

namespace windtunnel {

class BatchLoader {
 public:
  // The loader of replica `replica` of `replicas` data-parallel replicas. Errors: those of MakeDataSource.
  static Result<std::unique_ptr<BatchLoader>> Make(const Scenario& scenario, int64_t replica,
                                                   int64_t replicas);

  // Loads micro-batch `op.micro_batch` of step `step` into the buffers that LoadBatch writes (plan/ops.h).
  // The epoch follows from the step. `context_rank` is the rank in the context-parallel group, which gets a
  // part of each sequence's tokens.
  void Load(const LoadBatch& op, int64_t step, int context_rank, std::span<const TensorRef> writes);
  // Continues where a job stopped after `step` steps, when all replicas together had seen `samples`
  // samples. If this job has another number of replicas, or other batches, each sample of the epoch still
  // comes once, up to the epoch's padding.
  void GoOn(int64_t step, int64_t samples);
  // The samples that all replicas together have seen after `steps` steps, counted from
  // the first step of training.
  int64_t SamplesSeen(int64_t steps) const;

  // The number of held-out batches, each of which all replicas take together. LoadHeldOut loads
  // this replica's part of one.
  int64_t HeldOutBatches() const { return source_->held_out() / batch_samples_; }
  int64_t held_out() const { return source_->held_out(); }
  // Samples that all replicas together take in a step.
  int64_t batch_samples() const { return batch_samples_; }
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
  int64_t first_sample_ = 0;  // of this replica, in step first_step_
  int64_t epoch_ = 0;
  std::vector<int32_t> ids_, targets_;  // of a whole sequence
};

}  // namespace windtunnel
