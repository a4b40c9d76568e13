// What an operator is given: the locations of its operands, and its context.
#pragma once

#include <cstdint>

namespace windtunnel {

// A slice of a buffer, located.
struct TensorRef {
  void* data = nullptr;
  int64_t elements = 0;

  float* f32() const { return static_cast<float*>(data); }
  int32_t* i32() const { return static_cast<int32_t*>(data); }
};

// Where the rank is in its tensor-parallel group.
struct TensorPosition {
  int rank = 0, ranks = 1;
};
// Where the rank is in its context-parallel and in its expert-parallel group.
struct ContextPosition {
  int rank = 0, ranks = 1;
};
struct ExpertPosition {
  int rank = 0;
};

// Where the rank's samples are among those of all replicas.
struct ReplicaPosition {
  int64_t rank = 0, ranks = 1;
  // Replicas have contiguous parts of a micro-batch (DataParallel scatters it); else they take samples in turn
  // (DistributedSampler).
  bool in_parts = false;

  // The place in the step of sample `i` of the `batch` samples that this replica has of a micro-batch.
  int64_t SampleOf(int64_t micro_batch, int64_t batch, int64_t i) const {
    if (in_parts) return (micro_batch * ranks + rank) * batch + i;
    return (micro_batch * batch + i) * ranks + rank;
  }
};

// What an operator may know beside its operands.
struct KernelContext {
  int64_t step = 0;   // optimizer steps taken before this one: Adam's bias correction uses step + 1
  uint64_t seed = 0;  // run.seed, for InitializeParameter and dropout
  TensorPosition tensor = {};
  ContextPosition context = {};
  ExpertPosition expert = {};
  ReplicaPosition replica = {};
  double lr_factor = 1;    // of optimizer.lr (runtime/learning_rate.h)
  int64_t batch_step = 0;  // steps before this one, with those whose update was skipped: dropout's
  int32_t queue = 0;       // DeviceQueues::Queue; copies between host and device have one of their own
};

}  // namespace windtunnel
