#include "runtime/sampler.h"

#include <numeric>
#include <utility>

#include "base/ceil_divide.h"
#include "base/check.h"
#include "base/random.h"

namespace windtunnel {
namespace {

// Samples of each replica.
int64_t NumSamples(int64_t size, int64_t replicas) {
  WT_CHECK_GE(size, 0);
  WT_CHECK_GT(replicas, 0);
  return CeilDivide(size, replicas);
}

// Fisher and Yates's shuffle (Knuth, TAOCP 2, 3.4.2, algorithm P).
std::vector<int64_t> Permutation(int64_t size, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomStream random(seed, /*stream=*/0);
  for (int64_t i = size - 1; i > 0; --i)
    std::swap(order[i], order[random.Below(static_cast<uint64_t>(i) + 1)]);
  return order;
}

}  // namespace

DistributedSampler::DistributedSampler(int64_t size, const SamplerOptions& options)
    : size_(size), options_(options), num_samples_(NumSamples(size, options.replicas)) {
  WT_CHECK_GE(options.rank, 0);
  WT_CHECK_LT(options.rank, options.replicas);
  set_epoch(0);
}

void DistributedSampler::set_epoch(int64_t epoch) {
  std::vector<int64_t> order;
  if (options_.shuffle) order = Permutation(size_, options_.seed + static_cast<uint64_t>(epoch));
  indices_.resize(static_cast<size_t>(num_samples_));
  for (int64_t i = 0; i < num_samples_; ++i) {
    // Past the end the order repeats from its start, as often as it takes.
    const int64_t position = (i * options_.replicas + options_.rank) % size_;
    indices_[i] = options_.shuffle ? order[position] : position;
  }
}

}  // namespace windtunnel
