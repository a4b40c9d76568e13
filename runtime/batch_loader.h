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

 private:
  BatchLoader(std::unique_ptr<DataSource> source, DistributedSampler sampler, int64_t accumulate, bool tokens)
      : source_(std::move(source)), sampler_(std::move(sampler)), accumulate_(accumulate), tokens_(tokens) {}
  int64_t SampleAt(int64_t position);
  void LoadPart(const LoadBatch& op, int64_t sample, int context_rank, int32_t* ids, int32_t* targets);

  std::unique_ptr<DataSource> source_;
  DistributedSampler sampler_;
  int64_t accumulate_;
  bool tokens_;
  int64_t epoch_ = 0;
  std::vector<int32_t> sequence_;  // ids and targets of a whole one
};

}  // namespace windtunnel
