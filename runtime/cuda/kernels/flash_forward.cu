#include "runtime/cuda/kernels/flash_attention.h"
#include "runtime/cuda/kernels/flash_tile.h"

namespace windtunnel::WT_KERNELS {
namespace {

// A warp has 16 kTiles queries of one head; a block has those of four warps.
template <typename T, int kHeadDim, int kTiles, int kKeys, bool kDrops>
struct FlashForwardKernel {
  static constexpr int kThreads = kFlashThreads, kWarpRows = 16 * kTiles, kRows = kFlashWarps * kWarpRows;
  using QueryTile = FlashTile<T, kRows, kHeadDim>;
  using KeyTile = FlashTile<T, kKeys, kHeadDim>;
  static constexpr int kStages = 2;
  static constexpr int64_t kSharedBytes = 2 * (QueryTile::kElements + kStages * 2 * KeyTile::kElements);

  AttentionShape shape;
  AttentionInputs<T> in;
  T* out;
  float* log_sum_exp;

  // The warp's rows so far: the softmax's maximum and sum, and the unnormalised output.
  struct State {
    float most[kTiles][2], sum[kTiles][2];
    float result[kTiles][kHeadDim / 8][4];
  };

  WT_DEVICE void operator()() const {
    T* const shared = SharedMemory<T>();
    const QueryTile query_tile{shared};
    const int head = BlockY(), sequence = BlockZ();
    // The last queries see the most keys. Their blocks go first, so that no long block remains at the end.
    const int tiles = static_cast<int>(GridX());
    const Tile queries = TileAt(shape.queries, kRows, tiles - 1 - BlockX());
    const int64_t first_row = shape.Row(sequence, queries.chunk) + queries.first;
    query_tile.Fetch(in.queries + first_row * shape.query_stride + head * shape.head_dim, shape.query_stride,
                     queries.rows, shape.head_dim);

    State state;
    ClearResults(state.result);
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      state.most[m][0] = state.most[m][1] = -std::numeric_limits<float>::infinity();
      state.sum[m][0] = state.sum[m][1] = 0.0f;
    }
    VisibleKeys coming(shape, kKeys, queries);
    ForEachFetched(
        coming,
        [&](const VisibleKeys& next, int stage) {
          FetchKeysAndValues(shape, in, next.tile(), StageTile(stage, 0), StageTile(stage, 1));
        },
        [&](const Tile& keys, int stage) { AddKeys(query_tile, queries, keys, stage, state); });
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) Finish(queries, first_row, m, state);
  }

  static WT_DEVICE KeyTile StageTile(int stage, int which) {
    return {SharedMemory<T>() + QueryTile::kElements + (2 * stage + which) * KeyTile::kElements};
  }

  WT_DEVICE void AddKeys(const QueryTile& query_tile, const Tile& queries, const Tile& keys, int stage,
                         State& state) const {
    const KeyTile key_tile = StageTile(stage, 0), value_tile = StageTile(stage, 1);
    const int first = Thread() / kWarp * kWarpRows;
    const float scale = shape.scale * kLog2E;
    float s[kTiles][kKeys / 8][4];
    ClearResults(s);
    AddTimesTransposed<T>(query_tile, first, key_tile, kHeadDim, s);
    if (keys.rows < kKeys || !shape.AllSee(queries.position + first, kWarpRows, keys.position, kKeys)) {
      WT_UNROLL
      for (int m = 0; m < kTiles; ++m) Hide(shape, keys, queries.position + first + 16 * m, s[m]);
    }
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      WT_UNROLL
      for (int half = 0; half < 2; ++half) Exponentiate(half, scale, s[m], state, m);
      // The sums are of all probabilities, dropped or not.
      if constexpr (kDrops) DropKeys(shape, keys, queries.position + first + 16 * m, s[m]);
    }
    AddResultsTimes<T>(s, value_tile, state.result);
  }

  // Scores of a row, which four lanes share, become 2^(scale score - scale maximum). The sums so far are
  // scaled down to the new maximum.
  static WT_DEVICE void Exponentiate(int half, float scale, Results<kKeys / 8>& s, State& state, int m) {
    float most = state.most[m][half];
    WT_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      most = Maximum()(s[n][2 * half], most);
      most = Maximum()(s[n][2 * half + 1], most);
    }
    most = ReduceLanes<4>(most, Maximum());
    const float shift = most == -std::numeric_limits<float>::infinity() ? 0.0f : most * scale;
    const float shrink = Exp2Fast(state.most[m][half] * scale - shift);
    float sum = 0.0f;
    WT_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      WT_UNROLL
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s[n][i] = Exp2Fast(s[n][i] * scale - shift);
        sum += s[n][i];
      }
    }
    state.most[m][half] = most;
    state.sum[m][half] = state.sum[m][half] * shrink + sum;
    WT_UNROLL
    for (int n = 0; n < kHeadDim / 8; ++n) {
      state.result[m][n][2 * half] *= shrink;
      state.result[m][n][2 * half + 1] *= shrink;
    }
  }

  WT_DEVICE void Finish(const Tile& queries, int64_t first_row, int m, State& state) const {
    const int first = Thread() / kWarp * kWarpRows + 16 * m;
    float inverse[2];
    WT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float sum = ReduceLanes<4>(state.sum[m][half], Sum());
      inverse[half] = sum > 0.0f ? 1.0f / sum : 0.0f;
      const int row = first + RowOfElement(2 * half);
      if (Lane() % 4 != 0 || row >= queries.rows) continue;
      log_sum_exp[shape.Statistic(BlockZ(), BlockY(), queries.chunk) + queries.first + row] =
          sum > 0.0f ? state.most[m][half] * shape.scale + std::log(sum)
                     : -std::numeric_limits<float>::infinity();
    }
    StoreResults(state.result[m], inverse, queries.rows - first, shape.head_dim, false,
                 out + (first_row + first) * shape.out_stride + BlockY() * shape.head_dim, shape.out_stride);
  }
};

template <bool kDrops, int kHeadDim, int kTiles, int kKeys, typename T>
void Launch(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
            float* log_sum_exp) {
  using Kernel = FlashForwardKernel<T, kHeadDim, kTiles, kKeys, kDrops>;
  const int64_t tiles = shape.queries.count * CeilDivide(shape.queries.length, Kernel::kRows);
  queue.Launch(Kernel{shape, in, out, log_sum_exp}, {tiles, shape.heads, shape.batch}, Kernel::kSharedBytes);
}

template <bool kDrops, typename T>
void Forward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
             float* log_sum_exp) {
  if (shape.head_dim <= 64) return Launch<kDrops, 64, 2, 64>(queue, shape, in, out, log_sum_exp);
  if (shape.head_dim <= 96) return Launch<kDrops, 96, 2, 32>(queue, shape, in, out, log_sum_exp);
  return Launch<kDrops, 128, 2, 32>(queue, shape, in, out, log_sum_exp);
}

}  // namespace

bool FlashTakes(const AttentionShape& shape, const void* queries, const void* keys, const void* out) {
  return shape.head_dim % kPieceElements == 0 && shape.head_dim <= 128 && Aligned(queries, keys, out);
}

template <typename T>
void FlashForward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
                  float* log_sum_exp) {
  if (shape.dropout.drops()) return Forward<true>(queue, shape, in, out, log_sum_exp);
  return Forward<false>(queue, shape, in, out, log_sum_exp);
}

template void FlashForward<BFloat16>(Queue&, const AttentionShape&, const AttentionInputs<BFloat16>&,
                                     BFloat16*, float*);
template void FlashForward<Float16>(Queue&, const AttentionShape&, const AttentionInputs<Float16>&, Float16*,
                                    float*);

}  // namespace windtunnel::WT_KERNELS
