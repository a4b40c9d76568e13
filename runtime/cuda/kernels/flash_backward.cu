#include "runtime/cuda/kernels/flash_attention.h"
#include "runtime/cuda/kernels/flash_tile.h"

namespace windtunnel::WT_KERNELS {
namespace {

// A row's log-sum-exp in base 2. For a row that does not exist it is infinity, which makes its probabilities
// zero.
WT_DEVICE float LogSumExpAt(const float* log_sum_exp, int row, int rows) {
  return row < rows ? log_sum_exp[row] * kLog2E : std::numeric_limits<float>::infinity();
}

// A block has 64 kTiles queries of one head, a warp 16 kTiles of them: dQ = dS K, dS = P (dO V^T - D) scale.
template <typename T, int kHeadDim, int kTiles, int kKeys, bool kDrops>
struct FlashQueryGradientKernel {
  static constexpr int kThreads = kFlashThreads, kWarpRows = 16 * kTiles, kRows = kFlashWarps * kWarpRows;
  using QueryTile = FlashTile<T, kRows, kHeadDim>;
  using KeyTile = FlashTile<T, kKeys, kHeadDim>;
  static constexpr int64_t kSharedBytes = 2 * (2 * QueryTile::kElements + 2 * 2 * KeyTile::kElements);

  AttentionShape shape;
  AttentionInputs<T> in;
  AttentionSaved<T> saved;
  bool accumulate;
  T* dqueries;

  // The statistics of rows lane / 4 and lane / 4 + 8 of sixteen.
  struct RowStatistics {
    float log_sum_exp[2], product[2];
  };

  WT_DEVICE void operator()() const {
    const int head = BlockY(), sequence = BlockZ(), head_dim = shape.head_dim;
    const QueryTile query_tile{SharedMemory<T>()}, dout_tile{SharedMemory<T>() + QueryTile::kElements};
    const Tile queries = TileAt(shape.queries, kRows, GridX() - 1 - BlockX());
    const int64_t first_row = shape.Row(sequence, queries.chunk) + queries.first;
    query_tile.Fetch(in.queries + first_row * shape.query_stride + head * head_dim, shape.query_stride,
                     queries.rows, head_dim);
    dout_tile.Fetch(saved.dout + first_row * shape.out_stride + head * head_dim, shape.out_stride,
                    queries.rows, head_dim);
    const int first = Thread() / kWarp * kWarpRows;
    RowStatistics statistics[kTiles];
    Load(shape.Statistic(sequence, head, queries.chunk) + queries.first, first, queries.rows, statistics);

    float result[kTiles][kHeadDim / 8][4];
    ClearResults(result);
    VisibleKeys coming(shape, kKeys, queries);
    ForEachFetched(
        coming,
        [&](const VisibleKeys& next, int stage) {
          FetchKeysAndValues(shape, in, next.tile(), StageTile(stage, 0), StageTile(stage, 1));
        },
        [&](const Tile& keys, int stage) {
          AddKeys(query_tile, dout_tile, queries, keys, stage, statistics, result);
        });
    const float one[2] = {1.0f, 1.0f};
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      const int row = first + 16 * m;
      StoreResults(result[m], one, queries.rows - row, head_dim, accumulate,
                   dqueries + (first_row + row) * shape.query_stride + head * head_dim, shape.query_stride);
    }
  }

  static WT_DEVICE KeyTile StageTile(int stage, int which) {
    return {SharedMemory<T>() + 2 * QueryTile::kElements + (2 * stage + which) * KeyTile::kElements};
  }

  WT_DEVICE void Load(int64_t statistic, int first, int rows, RowStatistics (&statistics)[kTiles]) const {
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      WT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first + 16 * m + RowOfElement(2 * half);
        statistics[m].log_sum_exp[half] = LogSumExpAt(saved.log_sum_exp + statistic, row, rows);
        statistics[m].product[half] = row < rows ? saved.products[statistic + row] : 0.0f;
      }
    }
  }

  WT_DEVICE void AddKeys(const QueryTile& query_tile, const QueryTile& dout_tile, const Tile& queries,
                         const Tile& keys, int stage, const RowStatistics (&statistics)[kTiles],
                         float (&result)[kTiles][kHeadDim / 8][4]) const {
    const int first = Thread() / kWarp * kWarpRows;
    float s[kTiles][kKeys / 8][4], d[kTiles][kKeys / 8][4];
    ClearResults(s);
    ClearResults(d);
    AddTimesTransposed<T>(query_tile, first, StageTile(stage, 0), kHeadDim, s);
    if (keys.rows < kKeys || !shape.AllSee(queries.position + first, kWarpRows, keys.position, kKeys)) {
      WT_UNROLL
      for (int m = 0; m < kTiles; ++m) Hide(shape, keys, queries.position + first + 16 * m, s[m]);
    }
    AddTimesTransposed<T>(dout_tile, first, StageTile(stage, 1), kHeadDim, d);
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      if constexpr (kDrops) DropKeys(shape, keys, queries.position + first + 16 * m, d[m]);
      ScoreGradients(statistics[m], d[m], s[m]);
    }
    AddResultsTimes<T>(s, StageTile(stage, 0), result);
  }

  // s: scores -> gradients of the scores; d: gradients of the probabilities.
  WT_DEVICE void ScoreGradients(const RowStatistics& row, const Results<kKeys / 8>& d,
                                Results<kKeys / 8>& s) const {
    const float scale = shape.scale * kLog2E;
    WT_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      WT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float p = Exp2Fast(s[n][i] * scale - row.log_sum_exp[i / 2]);
        s[n][i] = p * (d[n][i] - row.product[i / 2]) * shape.scale;
      }
    }
  }
};

// A block has 64 kTiles keys of one key head, a warp 16 kTiles of them: dV = P^T dO, dK = dS^T Q, summed over
// the queries of all heads that share the key head.
template <typename T, int kHeadDim, int kTiles, int kQueries, bool kDrops>
struct FlashKeyGradientKernel {
  static constexpr int kThreads = kFlashThreads, kWarpRows = 16 * kTiles, kRows = kFlashWarps * kWarpRows;
  using KeyTile = FlashTile<T, kRows, kHeadDim>;
  using QueryTile = FlashTile<T, kQueries, kHeadDim>;
  // After the tiles come, for each stage's queries, the log-sum-exp and the products of out and dout.
  static constexpr int64_t kTileElements = 2 * KeyTile::kElements + 2 * 2 * QueryTile::kElements;
  static constexpr int64_t kSharedBytes = 2 * kTileElements + 2 * 2 * kQueries * 4;

  AttentionShape shape;
  AttentionInputs<T> in;
  AttentionSaved<T> saved;
  T *dkeys, *dvalues;

  WT_DEVICE void operator()() const {
    const int kv_head = BlockY(), sequence = BlockZ(), head_dim = shape.head_dim;
    const KeyTile key_tile{SharedMemory<T>()}, value_tile{SharedMemory<T>() + KeyTile::kElements};
    const Tile keys = TileAt(shape.keys, kRows, BlockX());
    const int64_t at =
        (shape.KeyRow(sequence, keys.chunk) + keys.first) * shape.key_stride + kv_head * head_dim;
    key_tile.Fetch(in.keys + at, shape.key_stride, keys.rows, head_dim);
    value_tile.Fetch(in.values + at, shape.key_stride, keys.rows, head_dim);
    const int first = Thread() / kWarp * kWarpRows;

    float of_keys[kTiles][kHeadDim / 8][4], of_values[kTiles][kHeadDim / 8][4];
    ClearResults(of_keys);
    ClearResults(of_values);
    SeeingQueries coming(shape, kQueries, keys);
    ForEachFetched(
        coming, [&](const SeeingQueries& next, int stage) { FetchQueries(next, stage); },
        [&](const Tile& queries, int stage) {
          AddQueries(key_tile, value_tile, keys.position + first, queries, stage, of_keys, of_values);
        });
    const float one[2] = {1.0f, 1.0f};
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      const int row = first + 16 * m;
      const int64_t row_at = at + row * shape.key_stride;
      StoreResults(of_keys[m], one, keys.rows - row, head_dim, false, dkeys + row_at, shape.key_stride);
      StoreResults(of_values[m], one, keys.rows - row, head_dim, false, dvalues + row_at, shape.key_stride);
    }
  }

  static WT_DEVICE QueryTile StageTile(int stage, int which) {
    return {SharedMemory<T>() + 2 * KeyTile::kElements + (2 * stage + which) * QueryTile::kElements};
  }
  static WT_DEVICE float* Statistics(int stage, int which) {
    return reinterpret_cast<float*>(SharedMemory<T>() + kTileElements) + (2 * stage + which) * kQueries;
  }

  WT_DEVICE void FetchQueries(const SeeingQueries& queries, int stage) const {
    const Tile& tile = queries.tile();
    const int head = BlockY() * (shape.heads / shape.kv_heads) + tile.head;
    const int64_t row = shape.Row(BlockZ(), tile.chunk) + tile.first;
    StageTile(stage, 0).Fetch(in.queries + row * shape.query_stride + head * shape.head_dim,
                              shape.query_stride, tile.rows, shape.head_dim);
    StageTile(stage, 1).Fetch(saved.dout + row * shape.out_stride + head * shape.head_dim, shape.out_stride,
                              tile.rows, shape.head_dim);
    const int64_t statistic = shape.Statistic(BlockZ(), head, tile.chunk) + tile.first;
    if (const int i = Thread(); i < kQueries) {
      Statistics(stage, 0)[i] = LogSumExpAt(saved.log_sum_exp + statistic, i, tile.rows);
      Statistics(stage, 1)[i] = i < tile.rows ? saved.products[statistic + i] : 0.0f;
    }
  }

  WT_DEVICE void AddQueries(const KeyTile& key_tile, const KeyTile& value_tile, int key_position,
                            const Tile& queries, int stage, float (&of_keys)[kTiles][kHeadDim / 8][4],
                            float (&of_values)[kTiles][kHeadDim / 8][4]) const {
    const int first = Thread() / kWarp * kWarpRows;
    float p[kTiles][kQueries / 8][4], d[kTiles][kQueries / 8][4];
    ClearResults(p);
    AddTimesTransposed<T>(key_tile, first, StageTile(stage, 0), kHeadDim, p);
    if (!shape.AllSee(queries.position, kQueries, key_position, kWarpRows)) {
      WT_UNROLL
      for (int m = 0; m < kTiles; ++m) HideFromBlind(key_position + 16 * m, queries.position, p[m]);
    }
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) Exponentiate(stage, p[m]);
    uint32_t kept[kTiles];
    if constexpr (kDrops) {
      float dropped[kTiles][kQueries / 8][4];
      WT_UNROLL
      for (int m = 0; m < kTiles; ++m) {
        kept[m] = KeptOf(key_position + 16 * m, queries);
        Drop(kept[m], p[m], dropped[m]);
      }
      AddResultsTimes<T>(dropped, StageTile(stage, 1), of_values);
    } else {
      AddResultsTimes<T>(p, StageTile(stage, 1), of_values);
    }
    ClearResults(d);
    AddTimesTransposed<T>(value_tile, first, StageTile(stage, 1), kHeadDim, d);
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      if constexpr (kDrops) Drop(kept[m], d[m], d[m]);
      ScoreGradients(stage, p[m], d[m]);
    }
    AddResultsTimes<T>(d, StageTile(stage, 0), of_keys);
  }

  // Sets to minus infinity the scores (keys down, queries across) of queries that do not see the key. Keys
  // that do not exist need no masking: their rows are never stored. Queries that do not exist have an
  // infinite log-sum-exp.
  WT_DEVICE void HideFromBlind(int key_position, int query_position, Results<kQueries / 8>& p) const {
    WT_UNROLL
    for (int n = 0; n < kQueries / 8; ++n) {
      WT_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (!shape.Sees(query_position + ColumnOfElement(n, i), key_position + RowOfElement(i)))
          p[n][i] = -std::numeric_limits<float>::infinity();
      }
    }
  }

  // A bit for each of the lane's elements (keys down, queries across), in order: whether dropout keeps it.
  WT_DEVICE uint32_t KeptOf(int key_position, const Tile& queries) const {
    static_assert(kQueries / 8 * 4 <= 32);
    const int head = BlockY() * (shape.heads / shape.kv_heads) + queries.head;
    uint32_t kept = 0;
    WT_UNROLL
    for (int n = 0; n < kQueries / 8; ++n) {
      WT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int query = queries.position + ColumnOfElement(n, i), key = key_position + RowOfElement(i);
        if (shape.dropout.FactorAt(BlockZ(), head, query, key) != 0.0f) kept |= 1u << (4 * n + i);
      }
    }
    return kept;
  }
  WT_DEVICE void Drop(uint32_t kept, const Results<kQueries / 8>& x, Results<kQueries / 8>& out) const {
    WT_UNROLL
    for (int n = 0; n < kQueries / 8; ++n) {
      WT_UNROLL
      for (int i = 0; i < 4; ++i)
        out[n][i] = (kept >> (4 * n + i) & 1) != 0 ? x[n][i] * shape.dropout.kept.scale : 0.0f;
    }
  }

  // p: scores -> probabilities.
  WT_DEVICE void Exponentiate(int stage, Results<kQueries / 8>& p) const {
    const float scale = shape.scale * kLog2E;
    const float* const log_sum_exp = Statistics(stage, 0);
    WT_UNROLL
    for (int n = 0; n < kQueries / 8; ++n) {
      WT_UNROLL
      for (int i = 0; i < 4; ++i) p[n][i] = Exp2Fast(p[n][i] * scale - log_sum_exp[ColumnOfElement(n, i)]);
    }
  }

  // d: gradients of the probabilities -> gradients of the scores.
  WT_DEVICE void ScoreGradients(int stage, const Results<kQueries / 8>& p, Results<kQueries / 8>& d) const {
    const float* const products = Statistics(stage, 1);
    WT_UNROLL
    for (int n = 0; n < kQueries / 8; ++n) {
      WT_UNROLL
      for (int i = 0; i < 4; ++i)
        d[n][i] = p[n][i] * (d[n][i] - products[ColumnOfElement(n, i)]) * shape.scale;
    }
  }
};

template <typename KeyGradient, typename QueryGradient, typename T>
void Backward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
              const AttentionSaved<T>& saved, bool accumulate_queries,
              const AttentionGradients<T>& gradients) {
  const auto tiles = [](const Chunks& chunks, int rows) {
    return chunks.count * CeilDivide(chunks.length, rows);
  };
  queue.Launch(KeyGradient{shape, in, saved, gradients.keys, gradients.values},
               {tiles(shape.keys, KeyGradient::kRows), shape.kv_heads, shape.batch},
               KeyGradient::kSharedBytes);
  queue.Launch(QueryGradient{shape, in, saved, accumulate_queries, gradients.queries},
               {tiles(shape.queries, QueryGradient::kRows), shape.heads, shape.batch},
               QueryGradient::kSharedBytes);
}

// Tiles have as many rows and columns as registers allow.
template <bool kDrops, typename T>
void BackwardOfHeads(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
                     const AttentionSaved<T>& saved, bool accumulate_queries,
                     const AttentionGradients<T>& gradients) {
  if (shape.head_dim <= 64) {
    Backward<FlashKeyGradientKernel<T, 64, 2, 32, kDrops>, FlashQueryGradientKernel<T, 64, 2, 32, kDrops>>(
        queue, shape, in, saved, accumulate_queries, gradients);
  } else if (shape.head_dim <= 96) {
    Backward<FlashKeyGradientKernel<T, 96, 1, 32, kDrops>, FlashQueryGradientKernel<T, 96, 1, 64, kDrops>>(
        queue, shape, in, saved, accumulate_queries, gradients);
  } else {
    Backward<FlashKeyGradientKernel<T, 128, 1, 32, kDrops>, FlashQueryGradientKernel<T, 128, 1, 64, kDrops>>(
        queue, shape, in, saved, accumulate_queries, gradients);
  }
}

}  // namespace

template <typename T>
void FlashBackward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
                   const AttentionSaved<T>& saved, bool accumulate_queries,
                   const AttentionGradients<T>& gradients) {
  if (shape.dropout.drops())
    return BackwardOfHeads<true>(queue, shape, in, saved, accumulate_queries, gradients);
  BackwardOfHeads<false>(queue, shape, in, saved, accumulate_queries, gradients);
}

template void FlashBackward<BFloat16>(Queue&, const AttentionShape&, const AttentionInputs<BFloat16>&,
                                      const AttentionSaved<BFloat16>&, bool,
                                      const AttentionGradients<BFloat16>&);
template void FlashBackward<Float16>(Queue&, const AttentionShape&, const AttentionInputs<Float16>&,
                                     const AttentionSaved<Float16>&, bool,
                                     const AttentionGradients<Float16>&);

}  // namespace windtunnel::WT_KERNELS
