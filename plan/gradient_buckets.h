// DDP's assignment of parameters to gradient buckets, after PyTorch's compute_bucket_assignment_by_size:
// tensors are appended in the order given; a bucket closes once its bytes reach the current limit (so it may
// exceed it by up to one tensor, and no tensor is split); each closed bucket moves on to the next limit, the
// last of which repeats.
//
//   AssignBuckets({300, 800, 200}, {1000})  ->  {{0, 1}, {2}}
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "scenarios/scenario.h"

namespace windtunnel {

inline constexpr Bytes kDdpFirstBucket = MiB(1);

// The size at which a bucket closes, for gradients of `of_one` bytes each: the scenario's bucket_cap_mb, or
// else the framework's default. Megatron reduces all gradients at once if nothing overlaps (as far as its
// local DDP of 2021 goes, which has one buffer); DeepSpeed 500 million at a time (reduce_bucket_size, and
// buffered_allreduce_fallback's elements_per_buffer). Megatron-Core's buckets grow with the ranks, so that
// collectives are not all latency: 40 million parameters or one million per data-parallel rank (context ranks
// counted, as its current version does), whichever is larger, and all of them if nothing overlaps
// (megatron/core/distributed/distributed_data_parallel.py). Left out: later pipeline ranks and model chunks,
// which it does not bucket.
Bytes BucketCap(const Scenario& scenario, Bytes of_one);
// The limits of DDP's buckets. PyTorch's first one is small, so that a reduction begins early, unless the cap
// is given (`bucket_cap_mb`; torch/nn/parallel/distributed.py, bucket_bytes_cap_default: always in earlier
// versions).
std::vector<Bytes> BucketLimits(const Scenario& scenario, Bytes of_one);

// The positions (in `sizes`) of each bucket's tensors. REQUIRES: limits not empty; sizes of one element type.
std::vector<std::vector<int>> AssignBuckets(const std::vector<Bytes>& sizes,
                                            const std::vector<Bytes>& limits);

// torch._utils._take_tensors, of coalesced reductions: a bucket closes before a tensor would exceed the
// limit.
//
//   TakeTensors({300, 800, 200}, 1000)  ->  {{0}, {1, 2}}
std::vector<std::vector<int>> TakeTensors(const std::vector<Bytes>& sizes, Bytes limit);

}  // namespace windtunnel
