#include "runtime/cuda/kernels/relative_bias.h"

#include "plan/relative_buckets.h"
#include "runtime/cuda/kernels/element.h"
#include "runtime/cuda/kernels/reduce.h"

namespace windtunnel::WT_KERNELS {
namespace {

// RelativeBuckets, for kernels.
struct DeviceBuckets {
  bool both_ways;
  int of_direction;
  int first[RelativeBuckets::kCount + 1];

  explicit DeviceBuckets(const RelativeBuckets& buckets)
      : both_ways(buckets.both_ways), of_direction(buckets.of_direction) {
    for (int i = 0; i < of_direction; ++i) first[i] = static_cast<int>(buckets.first[i]);
    first[of_direction] = INT32_MAX;
  }
  WT_DEVICE int At(int distance) const {
    const bool is_behind = distance > 0;
    if (is_behind && !both_ways) return 0;
    const int size = is_behind ? distance : -distance;
    int bucket = 0;
    while (first[bucket + 1] <= size) ++bucket;
    return is_behind ? of_direction + bucket : bucket;
  }
};

// One block per row of a head's square.
template <typename T>
struct RelativeBiasKernel {
  static constexpr int kThreads = 256;
  int64_t rows;
  int seq;
  DeviceBuckets buckets;
  const T* table;
  T* bias;

  WT_DEVICE void operator()() const {
    for (int64_t row = BlockX(); row < rows; row += GridX()) {
      const int query = static_cast<int>(row % seq);
      const T* const of_head = table + row / seq * RelativeBuckets::kCount;
      for (int key = Thread(); key < seq; key += kThreads)
        bias[row * seq + key] = of_head[buckets.At(key - query)];
    }
  }
};

// One block per bucket and head sums its stretch of each row, one warp per row; in fp32, in a fixed order.
template <typename T>
struct RelativeBiasBackwardKernel {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp;
  int64_t batch;
  int heads, seq;
  bool accumulate;
  DeviceBuckets buckets;
  const T* dscores;
  T* dtable;

  WT_DEVICE void operator()() const {
    const int bucket = BlockX(), head = BlockY();
    const bool is_behind = bucket >= buckets.of_direction;
    const int index = is_behind ? bucket - buckets.of_direction : bucket;
    const int nearest = buckets.first[index], limit = buckets.first[index + 1];
    float sum = 0.0f;
    for (int64_t row = Thread() / kWarp; row < batch * seq; row += kWarps) {
      const int query = static_cast<int>(row % seq);
      const T* const of_row = dscores + ((row / seq * heads + head) * seq + query) * seq;
      // Keys behind the query are at query + distance, the others at query - distance.
      const int most = is_behind ? seq - 1 - query : query;
      const int end = limit <= most ? limit : most + 1;
      for (int distance = (is_behind && nearest == 0 ? 1 : nearest) + Lane(); distance < end;
           distance += kWarp)
        sum += Float(of_row[is_behind ? query + distance : query - distance]);
    }
    sum = ReduceBlock<kThreads>(sum, 0.0f, SharedMemory<float>(), Sum());
    T* const out = dtable + head * RelativeBuckets::kCount + bucket;
    if (Thread() == 0) *out = Rounded<T>(sum + (accumulate ? Float(*out) : 0.0f));
  }
};

}  // namespace

void Run(Queue& queue, const RelativeBias& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t rows = op.heads * op.seq;
    queue.Launch(
        RelativeBiasKernel<T>{rows, static_cast<int>(op.seq), DeviceBuckets(RelativeBuckets(!op.causal)),
                              operands.In<T>(0, op.heads * RelativeBuckets::kCount),
                              operands.Out<T>(0, rows * op.seq)},
        {queue.BlocksFor(rows, 1)});
  });
}

void Run(Queue& queue, const RelativeBiasBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = RelativeBiasBackwardKernel<T>;
    queue.Launch(Kernel{op.batch, static_cast<int>(op.heads), static_cast<int>(op.seq), op.accumulate,
                        DeviceBuckets(RelativeBuckets(!op.causal)),
                        operands.In<T>(0, op.batch * op.heads * op.seq * op.seq),
                        operands.Out<T>(0, op.heads * RelativeBuckets::kCount)},
                 {RelativeBuckets::kCount, op.heads}, Kernel::kWarps * sizeof(float));
  });
}

}  // namespace windtunnel::WT_KERNELS
