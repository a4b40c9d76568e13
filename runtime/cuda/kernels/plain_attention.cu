#include "runtime/cuda/kernels/plain_attention.h"

#include <limits>

#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/reduce.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kPlainThreads = 256, kRowLanes = 8,
                     kPlainTile = kPlainThreads / kRowLanes;  // rows and columns
inline constexpr int kColumnsPerLane = kPlainTile / kRowLanes;
inline constexpr int kMostPerLane = static_cast<int>(kMostHeadDim) / kRowLanes;  // elements of a head's row
inline constexpr int kScoreStride = kPlainTile + 1;

// Tiles of fp32 rows in shared memory. The stride is one element longer than a row, so that rows begin in
// different banks.
struct PlainTiles {
  float* at;
  int head_dim;

  WT_DEVICE int stride() const { return head_dim + 1; }
  WT_DEVICE float* Tile(int index) const { return at + index * kPlainTile * stride(); }
  // The tile of scores follows `tiles` tiles of rows.
  WT_DEVICE float* Scores(int tiles) const { return Tile(tiles); }

  template <typename T>
  WT_DEVICE void Fetch(int index, const T* from, int64_t row_stride, int rows) const {
    float* const to = Tile(index);
    for (int i = Thread(); i < kPlainTile * head_dim; i += kPlainThreads) {
      const int row = i / head_dim, column = i % head_dim;
      to[row * stride() + column] = row < rows ? Float(from[row * row_stride + column]) : 0.0f;
    }
  }
};

WT_DEVICE int RowOfThread() { return Thread() / kRowLanes; }
WT_DEVICE int LaneOfRow() { return Thread() % kRowLanes; }

// Dot products of the thread's row of tile `a` with those rows of tile `b` that are its columns.
WT_DEVICE void Products(const PlainTiles& tiles, int a, int b, float (&out)[kColumnsPerLane]) {
  const float* const row = tiles.Tile(a) + RowOfThread() * tiles.stride();
  WT_UNROLL
  for (int i = 0; i < kColumnsPerLane; ++i) {
    const float* const other = tiles.Tile(b) + (LaneOfRow() + i * kRowLanes) * tiles.stride();
    float sum = 0.0f;
    for (int d = 0; d < tiles.head_dim; ++d) sum += row[d] * other[d];
    out[i] = sum;
  }
}

// sums += the row's scores (in shared memory, written by its own lanes) times the rows of tile `b`.
WT_DEVICE void AddProducts(const PlainTiles& tiles, const float* scores, int b, float (&sums)[kMostPerLane]) {
  const float* const row = scores + RowOfThread() * kScoreStride;
  const float* const other = tiles.Tile(b);
  for (int j = 0; j < kPlainTile; ++j) {
    const float score = row[j];
    WT_UNROLL
    for (int i = 0; i < kMostPerLane; ++i) {
      const int d = LaneOfRow() + i * kRowLanes;
      if (d < tiles.head_dim) sums[i] += score * other[j * tiles.stride() + d];
    }
  }
}

template <typename T>
WT_DEVICE void StoreRow(const float (&values)[kMostPerLane], float scale, int head_dim, bool accumulate,
                        T* row) {
  WT_UNROLL
  for (int i = 0; i < kMostPerLane; ++i) {
    const int d = LaneOfRow() + i * kRowLanes;
    if (d < head_dim) row[d] = Rounded<T>(scale * values[i] + (accumulate ? Float(row[d]) : 0.0f));
  }
}

// Dropout's factor of the probability of a key for a query, both indices within tiles; 1 without dropout.
WT_DEVICE float FactorOf(const AttentionShape& shape, int head, const Tile& queries, int query,
                         const Tile& keys, int key) {
  return shape.dropout.FactorAt(BlockZ(), head, queries.position + query, keys.position + key);
}

// One block per tile of queries of one head.
template <typename T>
struct PlainForwardKernel {
  static constexpr int kThreads = kPlainThreads;
  AttentionShape shape;
  AttentionInputs<T> in;
  T* out;
  float* log_sum_exp;
  T* probabilities;

  WT_DEVICE void operator()() const {
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    const int head = BlockY(), sequence = BlockZ(), head_dim = shape.head_dim;
    const PlainTiles tiles{SharedMemory<float>(), head_dim};  // queries, keys, values
    float* const scores = tiles.Scores(3);
    const Tile queries = TileAt(shape.queries, kPlainTile, BlockX());
    const int row = RowOfThread();
    const int64_t first_row = shape.Row(sequence, queries.chunk) + queries.first;
    tiles.Fetch(0, in.queries + first_row * shape.query_stride + head * head_dim, shape.query_stride,
                queries.rows);

    float most = kHidden, sum = 0.0f, result[kMostPerLane] = {};
    for (VisibleKeys keys(shape, kPlainTile, queries); !keys.done(); keys.Next()) {
      const Tile& tile = keys.tile();
      SyncThreads();
      FetchKeys(tiles, tile);
      SyncThreads();
      float s[kColumnsPerLane];
      Products(tiles, 0, 1, s);
      float grown = most;
      WT_UNROLL
      for (int i = 0; i < kColumnsPerLane; ++i) {
        s[i] = Sees(queries, tile, i) ? Scaled(s[i], queries, tile, i) : kHidden;
        grown = Maximum()(s[i], grown);
      }
      grown = ReduceLanes<kRowLanes>(grown, Maximum());
      const float shift = grown == kHidden ? 0.0f : grown;
      const float shrink = std::exp(most - shift);
      sum *= shrink;
      WT_UNROLL
      for (int i = 0; i < kMostPerLane; ++i) result[i] *= shrink;
      WT_UNROLL
      for (int i = 0; i < kColumnsPerLane; ++i) {
        const float p = std::exp(s[i] - shift);
        const int column = LaneOfRow() + i * kRowLanes;
        sum += p;  // of all probabilities, dropped or not
        scores[row * kScoreStride + column] = p * FactorOf(shape, head, queries, row, tile, column);
      }
      most = grown;
      SyncWarp();
      AddProducts(tiles, scores, 2, result);
      SyncWarp();
    }
    sum = ReduceLanes<kRowLanes>(sum, Sum());
    const float of_row = sum > 0.0f ? most + std::log(sum) : kHidden;
    if (row < queries.rows) {
      StoreRow(result, sum > 0.0f ? 1.0f / sum : 0.0f, head_dim, false,
               out + (first_row + row) * shape.out_stride + head * head_dim);
      if (log_sum_exp != nullptr && LaneOfRow() == 0)
        log_sum_exp[shape.Statistic(sequence, head, queries.chunk) + queries.first + row] = of_row;
    }
    if (probabilities != nullptr) KeepProbabilities(tiles, queries, of_row);
  }

  WT_DEVICE void FetchKeys(const PlainTiles& tiles, const Tile& tile) const {
    const int64_t at = (shape.KeyRow(BlockZ(), tile.chunk) + tile.first) * shape.key_stride +
                       shape.KeyHead(BlockY()) * shape.head_dim;
    tiles.Fetch(1, in.keys + at, shape.key_stride, tile.rows);
    tiles.Fetch(2, in.values + at, shape.key_stride, tile.rows);
  }
  // The score of a key that the thread's query sees, scaled and biased.
  WT_DEVICE float Scaled(float product, const Tile& queries, const Tile& keys, int i) const {
    const float score = product * shape.scale;
    if (in.bias == nullptr) return score;
    const int64_t row = static_cast<int64_t>(BlockY()) * shape.seq + queries.first + RowOfThread();
    return score + Float(in.bias[row * shape.key_seq + keys.first + LaneOfRow() + i * kRowLanes]);
  }
  WT_DEVICE bool Sees(const Tile& queries, const Tile& keys, int i) const {
    const int column = LaneOfRow() + i * kRowLanes;
    return column < keys.rows && shape.Sees(queries.position + RowOfThread(), keys.position + column);
  }

  // Runs over all keys again, including the hidden ones, whose probabilities are zero.
  WT_DEVICE void KeepProbabilities(const PlainTiles& tiles, const Tile& queries, float of_row) const {
    T* const square =
        probabilities + static_cast<int64_t>(BlockZ() * shape.heads + BlockY()) * shape.seq * shape.key_seq;
    for (int first = 0; first < shape.key_seq; first += kPlainTile) {
      const Tile tile = TileAt(shape.keys, kPlainTile, first / kPlainTile);
      SyncThreads();
      FetchKeys(tiles, tile);
      SyncThreads();
      float s[kColumnsPerLane];
      Products(tiles, 0, 1, s);
      WT_UNROLL
      for (int i = 0; i < kColumnsPerLane; ++i) {
        const int column = LaneOfRow() + i * kRowLanes;
        if (RowOfThread() >= queries.rows || column >= tile.rows) continue;
        const float p = Sees(queries, tile, i) ? std::exp(Scaled(s[i], queries, tile, i) - of_row) : 0.0f;
        square[static_cast<int64_t>(queries.first + RowOfThread()) * shape.key_seq + first + column] =
            Rounded<T>(p);
      }
    }
  }
};

// The probability of key `key` for query `query`, both indices within tiles; 0 if the query does not see the
// key.
template <typename T>
WT_DEVICE float ProbabilityOf(const AttentionShape& shape, const AttentionSaved<T>& saved, int sequence,
                              int head, const Tile& queries, int query, const Tile& keys, int key,
                              float product) {
  if (query >= queries.rows || key >= keys.rows || !shape.Sees(queries.position + query, keys.position + key))
    return 0.0f;
  const int64_t row = shape.Statistic(sequence, head, queries.chunk) + queries.first + query;
  if (saved.log_sum_exp == nullptr) return Float(saved.probabilities[row * shape.key_seq + keys.first + key]);
  return std::exp(product * shape.scale - saved.log_sum_exp[row]);
}

// One block per tile of queries of one head: dQ = dS K, dS = P (dO V^T - D) scale.
template <typename T>
struct PlainQueryGradientKernel {
  static constexpr int kThreads = kPlainThreads;
  AttentionShape shape;
  AttentionInputs<T> in;
  AttentionSaved<T> saved;
  bool accumulate;
  T *dqueries, *dscores;

  WT_DEVICE void operator()() const {
    const int head = BlockY(), sequence = BlockZ(), head_dim = shape.head_dim;
    const PlainTiles tiles{SharedMemory<float>(), head_dim};  // queries, dout, keys, values
    float* const scores = tiles.Scores(4);
    const Tile queries = TileAt(shape.queries, kPlainTile, BlockX());
    const int row = RowOfThread();
    const int64_t first_row = shape.Row(sequence, queries.chunk) + queries.first;
    tiles.Fetch(0, in.queries + first_row * shape.query_stride + head * head_dim, shape.query_stride,
                queries.rows);
    tiles.Fetch(1, saved.dout + first_row * shape.out_stride + head * head_dim, shape.out_stride,
                queries.rows);
    const int64_t statistic = shape.Statistic(sequence, head, queries.chunk) + queries.first + row;
    const float product = row < queries.rows ? saved.products[statistic] : 0.0f;

    float result[kMostPerLane] = {};
    int seen = 0;  // keys so far
    for (VisibleKeys keys(shape, kPlainTile, queries); !keys.done(); keys.Next()) {
      const Tile& tile = keys.tile();
      const int64_t at = (shape.KeyRow(sequence, tile.chunk) + tile.first) * shape.key_stride +
                         shape.KeyHead(head) * head_dim;
      SyncThreads();
      tiles.Fetch(2, in.keys + at, shape.key_stride, tile.rows);
      tiles.Fetch(3, in.values + at, shape.key_stride, tile.rows);
      SyncThreads();
      float s[kColumnsPerLane], d[kColumnsPerLane];
      Products(tiles, 0, 2, s);
      Products(tiles, 1, 3, d);
      WT_UNROLL
      for (int i = 0; i < kColumnsPerLane; ++i) {
        const int column = LaneOfRow() + i * kRowLanes;
        const float p = ProbabilityOf(shape, saved, sequence, head, queries, row, tile, column, s[i]);
        const float factor = FactorOf(shape, head, queries, row, tile, column);
        const float gradient = p * (d[i] * factor - product);
        scores[row * kScoreStride + column] = gradient * shape.scale;
        if (dscores != nullptr && row < queries.rows && column < tile.rows)
          dscores[statistic * shape.key_seq + tile.first + column] = Rounded<T>(gradient);
      }
      seen = tile.first + tile.rows;
      SyncWarp();
      AddProducts(tiles, scores, 2, result);
      SyncWarp();
    }
    if (dscores != nullptr && row < queries.rows)
      for (int key = seen + LaneOfRow(); key < shape.key_seq; key += kRowLanes)
        dscores[statistic * shape.key_seq + key] = Rounded<T>(0.0f);
    if (row < queries.rows)
      StoreRow(result, 1.0f, head_dim, accumulate,
               dqueries + (first_row + row) * shape.query_stride + head * head_dim);
  }
};

// One block per tile of keys of one key head: dV = P^T dO, dK = dS^T Q, summed over the queries of all heads
// that share the key head.
template <typename T>
struct PlainKeyGradientKernel {
  static constexpr int kThreads = kPlainThreads;
  AttentionShape shape;
  AttentionInputs<T> in;
  AttentionSaved<T> saved;
  T *dkeys, *dvalues;

  WT_DEVICE void operator()() const {
    const int kv_head = BlockY(), sequence = BlockZ(), head_dim = shape.head_dim;
    const int group = shape.heads / shape.kv_heads;
    const PlainTiles tiles{SharedMemory<float>(), head_dim};  // keys, values, queries, dout
    float* const scores = tiles.Scores(4);
    const Tile keys = TileAt(shape.keys, kPlainTile, BlockX());
    const int row = RowOfThread();
    const int64_t at =
        (shape.KeyRow(sequence, keys.chunk) + keys.first) * shape.key_stride + kv_head * head_dim;
    tiles.Fetch(0, in.keys + at, shape.key_stride, keys.rows);
    tiles.Fetch(1, in.values + at, shape.key_stride, keys.rows);

    float of_keys[kMostPerLane] = {}, of_values[kMostPerLane] = {};
    for (SeeingQueries queries(shape, kPlainTile, keys); !queries.done(); queries.Next()) {
      const Tile& tile = queries.tile();
      const int head = kv_head * group + tile.head;
      const int64_t first_row = shape.Row(sequence, tile.chunk) + tile.first;
      SyncThreads();
      tiles.Fetch(2, in.queries + first_row * shape.query_stride + head * head_dim, shape.query_stride,
                  tile.rows);
      tiles.Fetch(3, saved.dout + first_row * shape.out_stride + head * head_dim, shape.out_stride,
                  tile.rows);
      SyncThreads();
      float s[kColumnsPerLane], d[kColumnsPerLane];
      Products(tiles, 0, 2, s);
      Products(tiles, 1, 3, d);
      const int64_t statistic = shape.Statistic(sequence, head, tile.chunk) + tile.first;
      WT_UNROLL
      for (int i = 0; i < kColumnsPerLane; ++i) {
        const int column = LaneOfRow() + i * kRowLanes;
        const float p = ProbabilityOf(shape, saved, sequence, head, tile, column, keys, row, s[i]);
        const float factor = FactorOf(shape, head, tile, column, keys, row);
        scores[row * kScoreStride + column] = p * factor;
        s[i] = p == 0.0f ? 0.0f : p * (d[i] * factor - saved.products[statistic + column]) * shape.scale;
      }
      SyncWarp();
      AddProducts(tiles, scores, 3, of_values);
      SyncWarp();
      WT_UNROLL
      for (int i = 0; i < kColumnsPerLane; ++i)
        scores[row * kScoreStride + LaneOfRow() + i * kRowLanes] = s[i];
      SyncWarp();
      AddProducts(tiles, scores, 2, of_keys);
      SyncWarp();
    }
    if (row >= keys.rows) return;
    StoreRow(of_keys, 1.0f, head_dim, false, dkeys + at + row * shape.key_stride);
    StoreRow(of_values, 1.0f, head_dim, false, dvalues + at + row * shape.key_stride);
  }
};

int64_t PlainBytes(int64_t tiles, int64_t head_dim) {
  return (tiles * kPlainTile * (head_dim + 1) + kPlainTile * kScoreStride) * 4;
}

int64_t PlainTilesOf(const Chunks& chunks) { return chunks.count * CeilDivide(chunks.length, kPlainTile); }

}  // namespace

int64_t PlainSharedBytes(int64_t head_dim) { return PlainBytes(4, head_dim); }

template <typename T>
void PlainForward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
                  float* log_sum_exp, T* probabilities) {
  queue.Launch(PlainForwardKernel<T>{shape, in, out, log_sum_exp, probabilities},
               {PlainTilesOf(shape.queries), shape.heads, shape.batch}, PlainBytes(3, shape.head_dim));
}

template <typename T>
void PlainBackward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
                   const AttentionSaved<T>& saved, bool accumulate_queries,
                   const AttentionGradients<T>& gradients) {
  const int64_t bytes = PlainBytes(4, shape.head_dim);
  queue.Launch(PlainKeyGradientKernel<T>{shape, in, saved, gradients.keys, gradients.values},
               {PlainTilesOf(shape.keys), shape.kv_heads, shape.batch}, bytes);
  queue.Launch(
      PlainQueryGradientKernel<T>{shape, in, saved, accumulate_queries, gradients.queries, gradients.scores},
      {PlainTilesOf(shape.queries), shape.heads, shape.batch}, bytes);
}

#define WT_INSTANTIATE(T)                                                                                  \
  template void PlainForward<T>(Queue&, const AttentionShape&, const AttentionInputs<T>&, T*, float*, T*); \
  template void PlainBackward<T>(Queue&, const AttentionShape&, const AttentionInputs<T>&,                 \
                                 const AttentionSaved<T>&, bool, const AttentionGradients<T>&);
WT_INSTANTIATE(float)
WT_INSTANTIATE(BFloat16)
WT_INSTANTIATE(Float16)
#undef WT_INSTANTIATE

}  // namespace windtunnel::WT_KERNELS
