// Which samples a data-parallel replica trains on: the semantics of torch.utils.data.DistributedSampler.
//
//   DistributedSampler sampler(source->size(), {.replicas = 2, .rank = 0, .seed = 1});
//   sampler.set_epoch(3);
//   for (int64_t sample : sampler.indices()) …
//
// All replicas shuffle alike, by seed + epoch, and replica r takes every replicas-th index from r on. So one
// step of W replicas with micro-batch b sees the samples that one replica with micro-batch W x b sees, within
// an epoch: at its end each number of replicas fills up to its own multiple, with samples from the epoch's
// start (drop_last=False), and later epochs begin at other steps. The permutation comes from base/random.h,
// not from torch's generator: the order differs from torch's, the contract does not.
#pragma once

#include <cstdint>
#include <vector>

namespace windtunnel {

struct SamplerOptions {
  int64_t replicas = 1;
  int64_t rank = 0;     // this replica
  bool shuffle = true;  // false: the data's own order, in every epoch
  uint64_t seed = 0;    // equal on all replicas
};

class DistributedSampler {
 public:
  // REQUIRES: size >= 0, replicas > 0, 0 <= rank < replicas.
  DistributedSampler(int64_t size, const SamplerOptions& options);

  // Samples of each replica in an epoch: ceil(size / replicas).
  int64_t num_samples() const { return num_samples_; }
  // Without it, every epoch has the order of epoch 0.
  void set_epoch(int64_t epoch);
  // This replica's samples of the epoch, in order.
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  int64_t size_;
  SamplerOptions options_;
  int64_t num_samples_;
  std::vector<int64_t> indices_;
};

}  // namespace windtunnel
