#include "runtime/cuda/kernels/head_norm.h"

#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kHeadNormThreads = 256, kHeadNormWarps = kHeadNormThreads / kWarp;

// A row of n elements that `stride` threads share, of which this is the `first`-th. `reduce` adds up their
// numbers; all of them get the sum.
template <typename T>
struct NormedRow {
  static constexpr int kWidth = kVector<T>;
  int first, stride;
  int64_t n;
  bool aligned;

  template <typename Reduce>
  WT_DEVICE void Normalize(const T* x, const T* gamma, float epsilon, T* y, float* statistic,
                           Reduce reduce) const {
    float squares = 0.0f;
    ForEachPiece<kWidth>(n, aligned, first, stride, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(x + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) squares += v.at[j] * v.at[j];
    });
    const float inverse = 1.0f / std::sqrt(reduce(squares) / static_cast<float>(n) + epsilon);
    ForEachPiece<kWidth>(n, aligned, first, stride, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      Pack<float, kPiece> v = Load<kPiece>(x + i);
      const Pack<float, kPiece> g = Load<kPiece>(gamma + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) v.at[j] *= inverse * g.at[j];
      Store(y + i, v);
    });
    if (first == 0) *statistic = inverse;
  }

  // Adds the weight's gradient to dgamma, of which each thread updates its own elements. dx may be dy: each
  // element of it is read before the same element of dx is written, by the same thread.
  template <typename Reduce>
  WT_DEVICE void Differentiate(const T* dy, const T* x, const T* gamma, float inverse, T* dx, float* dgamma,
                               Reduce reduce) const {
    float sum_gh = 0.0f;
    ForEachPiece<kWidth>(n, aligned, first, stride, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(x + i), d = Load<kPiece>(dy + i),
                                g = Load<kPiece>(gamma + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        const float h = v.at[j] * inverse;
        dgamma[i + j] += d.at[j] * h;
        sum_gh += d.at[j] * g.at[j] * h;
      }
    });
    const float factor = reduce(sum_gh) / static_cast<float>(n) * inverse;
    ForEachPiece<kWidth>(n, aligned, first, stride, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(x + i), d = Load<kPiece>(dy + i),
                                g = Load<kPiece>(gamma + i);
      Pack<float, kPiece> result;
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) result.at[j] = (d.at[j] * g.at[j] - v.at[j] * factor) * inverse;
      Store(dx + i, result);
    });
  }
};

// ---- each head by itself: a warp has one at a time

// The heads of packed projections, numbered over all tokens, and whether each is a query, key or value.
struct HeadPlaces {
  int64_t tokens;
  int queries, keys, n;  // numbers of heads; there are as many values as keys; n elements each

  WT_DEVICE int heads() const { return queries + 2 * keys; }
  WT_DEVICE int64_t all() const { return tokens * heads(); }
  WT_DEVICE int HeadOf(int64_t place) const { return static_cast<int>(place % heads()); }
  WT_DEVICE bool IsQuery(int head) const { return head < queries; }
  WT_DEVICE bool IsValue(int head) const { return head >= queries + keys; }
  WT_DEVICE int64_t StatisticOf(int64_t place) const {
    return place / heads() * (queries + keys) + HeadOf(place);
  }
};

template <typename T>
struct HeadNormForwardKernel {
  static constexpr int kThreads = kHeadNormThreads, kWidth = kVector<T>;
  HeadPlaces places;
  float epsilon;
  bool aligned;
  const T *x, *query_gamma, *key_gamma;
  T* y;
  float* statistics;

  WT_DEVICE void operator()() const {
    const int64_t step = static_cast<int64_t>(GridX()) * kHeadNormWarps;
    for (int64_t place = BlockX() * kHeadNormWarps + Thread() / kWarp; place < places.all(); place += step) {
      const int head = places.HeadOf(place);
      if (places.IsValue(head)) CopyValues(x + place * places.n, y + place * places.n);
      else Normalize(place, places.IsQuery(head) ? query_gamma : key_gamma);
    }
  }

  WT_DEVICE void CopyValues(const T* from, T* to) const {
    ForEachPiece<kWidth>(places.n, aligned, Lane(), kWarp, [&](auto width, int64_t i) {
      Store(to + i, Load<decltype(width)::value>(from + i));
    });
  }

  WT_DEVICE void Normalize(int64_t place, const T* gamma) const {
    const int64_t first = place * places.n;
    NormedRow<T>{Lane(), kWarp, places.n, aligned}.Normalize(
        x + first, gamma, epsilon, y + first, statistics + places.StatisticOf(place),
        [](float sum) { return ReduceLanes(sum, Sum()); });
  }
};

template <typename T>
struct HeadNormBackwardKernel {
  static constexpr int kThreads = kHeadNormThreads, kWidth = kVector<T>;
  HeadPlaces places;
  bool aligned;
  const T *dy, *x, *query_gamma, *key_gamma;
  const float* statistics;
  T* dx;
  float* partials;  // [GridX, 2, n]: of the queries' weight, then of the keys'; null: frozen

  WT_DEVICE void operator()() const {
    const int n = places.n;
    float* const sums = SharedMemory<float>();  // [kHeadNormWarps, 2, n]
    for (int i = Thread(); i < kHeadNormWarps * 2 * n; i += kThreads) sums[i] = 0.0f;
    SyncThreads();
    const int64_t step = static_cast<int64_t>(GridX()) * kHeadNormWarps;
    float* const own = sums + Thread() / kWarp * 2 * n;
    for (int64_t place = BlockX() * kHeadNormWarps + Thread() / kWarp; place < places.all(); place += step) {
      const int head = places.HeadOf(place);
      if (places.IsValue(head)) CopyValues(place);
      else if (places.IsQuery(head)) AddHead(place, query_gamma, own);
      else AddHead(place, key_gamma, own + n);
    }
    if (partials == nullptr) return;
    SyncThreads();
    for (int i = Thread(); i < 2 * n; i += kThreads) {
      float sum = 0.0f;
      for (int warp = 0; warp < kHeadNormWarps; ++warp) sum += sums[warp * 2 * n + i];
      partials[static_cast<int64_t>(BlockX()) * 2 * n + i] = sum;
    }
  }

  WT_DEVICE void CopyValues(int64_t place) const {
    if (dx == dy) return;
    const int64_t first = place * places.n;
    ForEachPiece<kWidth>(places.n, aligned, Lane(), kWarp, [&](auto width, int64_t i) {
      Store(dx + first + i, Load<decltype(width)::value>(dy + first + i));
    });
  }

  WT_DEVICE void AddHead(int64_t place, const T* gamma, float* dgamma) const {
    const int64_t first = place * places.n;
    NormedRow<T>{Lane(), kWarp, places.n, aligned}.Differentiate(
        dy + first, x + first, gamma, statistics[places.StatisticOf(place)], dx + first, dgamma,
        [](float sum) { return ReduceLanes(sum, Sum()); });
  }
};

// ---- all heads of a token together: a block has one token at a time

// What the two directions share: a token's queries, keys and values, one behind the other.
struct WholePlaces {
  int64_t tokens, queries, keys, values;  // numbers of elements

  WT_DEVICE int64_t packed() const { return queries + keys + values; }
};

template <typename T>
struct WholeNormForwardKernel {
  static constexpr int kThreads = kHeadNormThreads, kWidth = kVector<T>;
  WholePlaces places;
  float epsilon;
  bool aligned;
  const T *x, *query_gamma, *key_gamma;
  T* y;
  float* statistics;

  WT_DEVICE void operator()() const {
    for (int64_t token = BlockX(); token < places.tokens; token += GridX()) {
      const int64_t first = token * places.packed(), values = first + places.queries + places.keys;
      Normalize(first, places.queries, query_gamma, statistics + 2 * token);
      Normalize(first + places.queries, places.keys, key_gamma, statistics + 2 * token + 1);
      ForEachPiece<kWidth>(places.values, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
        Store(y + values + i, Load<decltype(width)::value>(x + values + i));
      });
    }
  }

  WT_DEVICE void Normalize(int64_t first, int64_t n, const T* gamma, float* statistic) const {
    NormedRow<T>{Thread(), kThreads, n, aligned}.Normalize(
        x + first, gamma, epsilon, y + first, statistic,
        [](float sum) { return ReduceBlock<kThreads>(sum, 0.0f, SharedMemory<float>(), Sum()); });
  }
};

template <typename T>
struct WholeNormBackwardKernel {
  static constexpr int kThreads = kHeadNormThreads, kWidth = kVector<T>;
  WholePlaces places;
  bool aligned;
  const T *dy, *x, *query_gamma, *key_gamma;
  const float* statistics;
  T* dx;
  float* partials;  // [GridX, queries + keys]; null: frozen

  WT_DEVICE void operator()() const {
    const int64_t normed = places.queries + places.keys;
    // [queries + keys], then a float for each warp. Each thread updates the sums of its own elements.
    float* const sums = SharedMemory<float>();
    for (int64_t i = Thread(); i < normed; i += kThreads) sums[i] = 0.0f;
    SyncThreads();
    for (int64_t token = BlockX(); token < places.tokens; token += GridX()) {
      const int64_t first = token * places.packed();
      AddRow(first, places.queries, query_gamma, statistics[2 * token], sums, sums + normed);
      AddRow(first + places.queries, places.keys, key_gamma, statistics[2 * token + 1], sums + places.queries,
             sums + normed);
      if (dx != dy) CopyValues(first + normed);
    }
    if (partials == nullptr) return;
    SyncThreads();
    for (int64_t i = Thread(); i < normed; i += kThreads) partials[BlockX() * normed + i] = sums[i];
  }

  WT_DEVICE void CopyValues(int64_t first) const {
    ForEachPiece<kWidth>(places.values, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      Store(dx + first + i, Load<decltype(width)::value>(dy + first + i));
    });
  }

  WT_DEVICE void AddRow(int64_t first, int64_t n, const T* gamma, float inverse, float* dgamma,
                        float* place) const {
    NormedRow<T>{Thread(), kThreads, n, aligned}.Differentiate(
        dy + first, x + first, gamma, inverse, dx + first, dgamma,
        [place](float sum) { return ReduceBlock<kThreads>(sum, 0.0f, place, Sum()); });
  }
};

// ----

template <typename HeadNorm>
HeadPlaces PlacesOf(const HeadNorm& op) {
  return {op.tokens, static_cast<int>(op.heads), static_cast<int>(op.kv_heads),
          static_cast<int>(op.head_dim)};
}
template <typename HeadNorm>
int64_t PackedElements(const HeadNorm& op) {
  return op.tokens * HeadsOf(op).packed();
}
template <typename HeadNorm>
int64_t Statistics(const HeadNorm& op) {
  return op.tokens * HeadsOf(op).rows();
}

template <typename HeadNorm>
WholePlaces WholePlacesOf(const HeadNorm& op) {
  const NormedHeads heads = HeadsOf(op);
  return {op.tokens, heads.query_width, heads.key_width, heads.values};
}
template <typename HeadNorm>
int64_t WeightsOf(const HeadNorm& op) {
  return HeadsOf(op).query_width + HeadsOf(op).key_width;
}

int64_t BackwardBlocks(const HeadNormBackward& op, const Traits& traits) {
  if (op.whole) return Queue::BlocksOn(traits, op.tokens, 1, 2);
  return Queue::BlocksOn(traits, op.tokens * (op.heads + 2 * op.kv_heads), kHeadNormWarps, 4);
}

}  // namespace

int64_t WholeNormSharedBytes(const HeadNormBackward& op) { return (WeightsOf(op) + kHeadNormWarps) * 4; }

int64_t ScratchBytes(const HeadNormBackward& op, const Traits& traits) {
  return op.frozen ? 0 : BackwardBlocks(op, traits) * WeightsOf(op) * 4;
}

void Run(Queue& queue, const HeadNormForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t elements = PackedElements(op);
    const auto run = [&](auto k, int64_t blocks, int64_t shared_bytes) {
      k.epsilon = static_cast<float>(op.epsilon);
      k.x = operands.In<T>(0, elements);
      k.query_gamma = operands.In<T>(1, HeadsOf(op).query_width);
      k.key_gamma = operands.In<T>(2, HeadsOf(op).key_width);
      k.y = operands.Out<T>(0, elements);
      k.statistics = operands.Out(1, Statistics(op));
      k.aligned = op.head_dim % k.kWidth == 0 && Aligned(k.x, k.query_gamma, k.key_gamma, k.y);
      queue.Launch(k, {blocks}, shared_bytes);
    };
    if (op.whole) {
      WholeNormForwardKernel<T> k;
      k.places = WholePlacesOf(op);
      run(k, queue.BlocksFor(op.tokens, 1), kHeadNormWarps * 4);
    } else {
      HeadNormForwardKernel<T> k;
      k.places = PlacesOf(op);
      run(k, queue.BlocksFor(op.tokens * (op.heads + 2 * op.kv_heads), kHeadNormWarps), 0);
    }
  });
}

void Run(Queue& queue, const HeadNormBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t elements = PackedElements(op), blocks = BackwardBlocks(op, queue.traits());
    const int64_t query_width = HeadsOf(op).query_width, key_width = HeadsOf(op).key_width;
    float* const partials = op.frozen ? nullptr : queue.Scratch(blocks * WeightsOf(op));
    const auto run = [&](auto k, int64_t shared_bytes) {
      k.dy = operands.In<T>(0, elements);
      k.x = operands.In<T>(1, elements);
      k.query_gamma = operands.In<T>(2, query_width);
      k.key_gamma = operands.In<T>(3, key_width);
      k.statistics = operands.In(4, Statistics(op));
      k.dx = operands.Out<T>(0, elements);
      k.partials = partials;
      k.aligned = op.head_dim % k.kWidth == 0 && Aligned(k.dy, k.x, k.query_gamma, k.key_gamma, k.dx);
      queue.Launch(k, {blocks}, shared_bytes);
    };
    if (op.whole) {
      WholeNormBackwardKernel<T> k;
      k.places = WholePlacesOf(op);
      run(k, WholeNormSharedBytes(op));
    } else {
      HeadNormBackwardKernel<T> k;
      k.places = PlacesOf(op);
      run(k, kHeadNormWarps * 2 * op.head_dim * 4);
    }
    if (op.frozen) return;
    LaunchAddPartials(queue, blocks, query_width, WeightsOf(op), op.accumulate, partials,
                      operands.Out<T>(1, query_width));
    LaunchAddPartials(queue, blocks, key_width, WeightsOf(op), op.accumulate, partials + query_width,
                      operands.Out<T>(2, key_width));
  });
}

}  // namespace windtunnel::WT_KERNELS
