#include "runtime/cuda/kernels/delta_net_scan.h"

#include "runtime/cuda/kernels/delta_net.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kScanThreads = 256, kWarps = kScanThreads / kWarp;
inline constexpr int kTokens = 4;  // that are staged at a time
inline constexpr int kColumns = static_cast<int>(kDeltaNetColumns);
inline constexpr int kLanesOfColumn = kScanThreads / kColumns;  // threads that share a column of the state
static_assert(kLanesOfColumn == 4);

// A thread has kRows rows of one column of the state: those that lie kLanesOfColumn apart, from its lane's
// on. A warp has eight columns.
template <int kRows>
struct Tile {
  static constexpr int kKeys = kRows * kLanesOfColumn;
  float q[kTokens][kKeys], k[kTokens][kKeys];
  float v[kTokens][kColumns], ds[kTokens][kColumns];  // v: or dv
  float decay[kTokens], correction[kTokens];
};

template <int kRows>
struct ScanMemory {
  Tile<kRows> tile;
  float sums[kTokens][kWarps][Tile<kRows>::kKeys];  // of a row, over a warp's columns
  float scalars[kTokens][2][kWarps];
};

WT_DEVICE int OwnRow(int i) { return i * kLanesOfColumn + Lane() % kLanesOfColumn; }
WT_DEVICE int OwnColumn() { return Thread() / kLanesOfColumn; }

// Over the threads that share a column.
WT_DEVICE float SumOverRows(float value) { return ReduceLanes<kLanesOfColumn>(value, Sum()); }

// Over a warp's columns: lanes that differ in the bits above those of the row. All lanes of a row get the
// sum.
WT_DEVICE float SumOverColumns(float value) {
  WT_UNROLL
  for (int mask = kWarp / 2; mask >= kLanesOfColumn; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}

// The tokens of a head of values, and the block's columns of it.
struct HeadColumns {
  int head, part, columns;        // columns: of the part
  int64_t first, of_head, place;  // first token; first number in [heads, T]; the same in [parts, heads, T]
  const float *q, *k, *v;         // of the first token, rows `convolved` apart
  int64_t at;                     // of its first column in [T, inner]

  WT_DEVICE explicit HeadColumns(const DeltaNetScan& in) : head(BlockX()), part(BlockY()) {
    const int first_column = part * kColumns;
    columns = in.value_dim - first_column < kColumns ? in.value_dim - first_column : kColumns;
    first = static_cast<int64_t>(BlockZ()) * in.seq;
    of_head = head * in.tokens + first;
    place = (static_cast<int64_t>(part) * in.heads + head) * in.tokens + first;
    const float* const row = in.made + first * in.convolved;
    q = row + head / in.values_of_key * in.key_dim;
    k = q + in.keys;
    const int column = head * in.value_dim + first_column;
    v = row + 2 * in.keys + column;
    at = first * in.inner + column;
  }
};

WT_DEVICE void FetchRow(int width, int room, const float* from, float* to) {
  for (int i = Lane(); i < room; i += kWarp) to[i] = i < width ? from[i] : 0.0f;
}

// Fetches tokens from `from` on, each by two warps. `v` and `ds` may be null: they are not needed.
template <int kRows>
WT_DEVICE void Fetch(const DeltaNetScan& in, const HeadColumns& of, int from, int tokens, const float* v,
                     int64_t v_stride, const float* ds, Tile<kRows>& tile) {
  const int t = Thread() / kWarp / 2;
  if (t >= tokens) return;
  constexpr int kKeys = Tile<kRows>::kKeys;
  if (Thread() / kWarp % 2 == 0) {
    FetchRow(in.key_dim, kKeys, of.q + (from + t) * in.convolved, tile.q[t]);
    if (v != nullptr) FetchRow(of.columns, kColumns, v + (from + t) * v_stride, tile.v[t]);
  } else {
    FetchRow(in.key_dim, kKeys, of.k + (from + t) * in.convolved, tile.k[t]);
    if (ds != nullptr) FetchRow(of.columns, kColumns, ds + (from + t) * in.inner, tile.ds[t]);
    if (Lane() == 0) {
      tile.decay[t] = in.decay[of.of_head + from + t];
      tile.correction[t] = in.correction[of.of_head + from + t];
    }
  }
}
static_assert(kWarps == 2 * kTokens);

// Calls use(first token of a tile, its tokens) for all tiles, forwards or backwards; the tile has been
// fetched.
template <bool kBackwards, typename FetchTile, typename Use>
WT_DEVICE void ForEachTile(int seq, FetchTile fetch, Use use) {
  const int tiles = (seq + kTokens - 1) / kTokens;
  for (int i = 0; i < tiles; ++i) {
    const int from = (kBackwards ? tiles - 1 - i : i) * kTokens;
    const int tokens = seq - from < kTokens ? seq - from : kTokens;
    SyncThreads();
    fetch(from, tokens);
    SyncThreads();
    use(from, tokens);
  }
}

template <typename T, int kRows>
struct ScanForwardKernel {
  static constexpr int kThreads = kScanThreads;
  DeltaNetScan in;
  T* scanned;

  WT_DEVICE void operator()() const {
    auto& tile = SharedMemory<ScanMemory<kRows>>()->tile;
    const HeadColumns of(in);
    float state[kRows] = {};
    ForEachTile<false>(
        in.seq, [&](int from, int tokens) { Fetch(in, of, from, tokens, of.v, in.convolved, nullptr, tile); },
        [&](int from, int tokens) {
          for (int t = 0; t < tokens; ++t) AddToken(of, from, t, tile, state);
        });
  }

  WT_DEVICE void AddToken(const HeadColumns& of, int from, int t, const Tile<kRows>& tile,
                          float (&state)[kRows]) const {
    float seen = 0.0f;
    WT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      state[i] *= tile.decay[t];
      seen += tile.k[t][OwnRow(i)] * state[i];
    }
    const float u = tile.correction[t] * (tile.v[t][OwnColumn()] - SumOverRows(seen));
    float sum = 0.0f;
    WT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      state[i] += tile.k[t][OwnRow(i)] * u;
      sum += tile.q[t][OwnRow(i)] * state[i];
    }
    sum = SumOverRows(sum);
    if (Lane() % kLanesOfColumn == 0 && OwnColumn() < of.columns)
      scanned[of.at + (from + t) * in.inner + OwnColumn()] = Rounded<T>(sum);
  }
};

// What the kernels of backward share.
template <int kRows>
struct GradientKernel {
  static constexpr int kThreads = kScanThreads;
  using Memory = ScanMemory<kRows>;
  DeltaNetScan in;
  DeltaNetGradients out;

  // Leaves a row's sum over the warp's columns in shared memory.
  static WT_DEVICE void KeepSum(int t, int i, float value) {
    const float sum = SumOverColumns(value);
    if (Lane() < kLanesOfColumn) SharedMemory<Memory>()->sums[t][Thread() / kWarp][OwnRow(i)] = sum;
  }
  // The same of a number of the column, which all threads that share it have.
  static WT_DEVICE void KeepScalar(int t, int which, float value) {
    const float sum = SumOverColumns(value);
    if (Lane() == 0) SharedMemory<Memory>()->scalars[t][which][Thread() / kWarp] = sum;
  }
  static WT_DEVICE float ScalarOf(int t, int which) {
    float sum = 0.0f;
    for (int warp = 0; warp < kWarps; ++warp) sum += SharedMemory<Memory>()->scalars[t][which][warp];
    return sum;
  }
  // Calls write(token of the tile, row, sum over the block's columns).
  template <typename Write>
  WT_DEVICE void ForEachSum(int tokens, Write write) const {
    for (int i = Thread(); i < tokens * in.key_dim; i += kThreads) {
      const int t = i / in.key_dim, row = i % in.key_dim;
      float sum = 0.0f;
      WT_UNROLL
      for (int warp = 0; warp < kWarps; ++warp) sum += SharedMemory<Memory>()->sums[t][warp][row];
      write(t, row, sum);
    }
  }
  // Of q; those of k follow.
  WT_DEVICE float* RowOf(const HeadColumns& of, int token) const {
    return out.heads + (of.place + token) * 2 * in.key_dim;
  }
};

// Makes the states again, and with them the residuals and dq; begins the terms.
template <int kRows>
struct StatesKernel : GradientKernel<kRows> {
  using GradientKernel<kRows>::in;
  using GradientKernel<kRows>::out;

  WT_DEVICE void operator()() const {
    auto& tile = SharedMemory<ScanMemory<kRows>>()->tile;
    const HeadColumns of(in);
    float state[kRows] = {};
    ForEachTile<false>(
        in.seq,
        [&](int from, int tokens) { Fetch(in, of, from, tokens, of.v, in.convolved, out.ds + of.at, tile); },
        [&](int from, int tokens) {
          for (int t = 0; t < tokens; ++t) AddToken(of, from, t, tile, state);
          SyncThreads();
          this->ForEachSum(tokens, [&](int t, int row, float sum) { this->RowOf(of, from + t)[row] = sum; });
          if (Thread() < tokens) out.terms[of.place + from + Thread()] = this->ScalarOf(Thread(), 0);
        });
  }

  WT_DEVICE void AddToken(const HeadColumns& of, int from, int t, const Tile<kRows>& tile,
                          float (&state)[kRows]) const {
    const float ds = tile.ds[t][OwnColumn()];
    float of_key = 0.0f, of_query = 0.0f;
    WT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      state[i] *= tile.decay[t];
      of_key += tile.k[t][OwnRow(i)] * state[i];
      of_query += tile.q[t][OwnRow(i)] * state[i];
    }
    const float residual = tile.v[t][OwnColumn()] - SumOverRows(of_key);
    this->KeepScalar(t, 0, ds * SumOverRows(of_query));
    const float u = tile.correction[t] * residual;
    WT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      state[i] += tile.k[t][OwnRow(i)] * u;
      this->KeepSum(t, i, state[i] * ds);
    }
    if (Lane() % kLanesOfColumn == 0 && OwnColumn() < of.columns)
      out.residuals[of.at + (from + t) * in.inner + OwnColumn()] = residual;
  }
};

// Backwards, with g what later tokens add to dL/dS: dv, what goes to u of dk, and dL/dc.
template <int kRows>
struct BackwardsKernel : GradientKernel<kRows> {
  using GradientKernel<kRows>::in;
  using GradientKernel<kRows>::out;

  WT_DEVICE void operator()() const {
    auto& tile = SharedMemory<ScanMemory<kRows>>()->tile;
    const HeadColumns of(in);
    float g[kRows] = {};
    ForEachTile<true>(
        in.seq,
        [&](int from, int tokens) {
          Fetch(in, of, from, tokens, out.residuals + of.at, in.inner, out.ds + of.at, tile);
        },
        [&](int from, int tokens) {
          for (int t = tokens; t-- > 0;) AddToken(of, from, t, tile, g);
          SyncThreads();
          this->ForEachSum(tokens, [&](int t, int row, float sum) {
            this->RowOf(of, from + t)[in.key_dim + row] = tile.correction[t] * sum;
          });
          if (Thread() >= tokens) return;
          const int64_t place = of.place + from + Thread();
          out.terms[place] -= tile.correction[Thread()] * this->ScalarOf(Thread(), 0);
          out.corrections[place] = this->ScalarOf(Thread(), 1);
        });
  }

  WT_DEVICE void AddToken(const HeadColumns& of, int from, int t, const Tile<kRows>& tile,
                          float (&g)[kRows]) const {
    const float ds = tile.ds[t][OwnColumn()], residual = tile.v[t][OwnColumn()];
    float pair = 0.0f, later = 0.0f;  // q_t . k_t, G^T k_t
    WT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      pair += tile.q[t][OwnRow(i)] * tile.k[t][OwnRow(i)];
      later += tile.k[t][OwnRow(i)] * g[i];
    }
    pair = SumOverRows(pair);
    later = SumOverRows(later);
    const float du = later + pair * ds, dv = tile.correction[t] * du;
    this->KeepScalar(t, 0, residual * later);
    this->KeepScalar(t, 1, residual * du);
    WT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const float key = tile.k[t][OwnRow(i)], query = tile.q[t][OwnRow(i)];
      const float with_own = g[i] + query * ds;
      this->KeepSum(t, i, with_own * residual);
      g[i] = tile.decay[t] * (with_own - key * dv);
    }
    if (Lane() % kLanesOfColumn == 0 && OwnColumn() < of.columns)
      out.made[(of.first + from + t) * in.convolved + 2 * in.keys + of.head * in.value_dim +
               of.part * kColumns + OwnColumn()] = dv;
  }
};

// Makes the states once more: what comes by the residuals of dk, and the last term.
template <int kRows>
struct KeysKernel : GradientKernel<kRows> {
  using GradientKernel<kRows>::in;
  using GradientKernel<kRows>::out;

  WT_DEVICE void operator()() const {
    auto& tile = SharedMemory<ScanMemory<kRows>>()->tile;
    const HeadColumns of(in);
    const float* const dv = out.made + (of.v - in.made);
    float state[kRows] = {};
    ForEachTile<false>(
        in.seq,
        [&](int from, int tokens) {
          Fetch(in, of, from, tokens, dv, in.convolved, out.residuals + of.at, tile);
        },
        [&](int from, int tokens) {
          for (int t = 0; t < tokens; ++t) AddToken(t, tile, state);
          SyncThreads();
          this->ForEachSum(
              tokens, [&](int t, int row, float sum) { this->RowOf(of, from + t)[in.key_dim + row] -= sum; });
          if (Thread() < tokens) out.terms[of.place + from + Thread()] -= this->ScalarOf(Thread(), 0);
        });
  }

  // (The tile has dv in the place of v, and the residuals in that of ds.)
  WT_DEVICE void AddToken(int t, const Tile<kRows>& tile, float (&state)[kRows]) const {
    const float dv = tile.v[t][OwnColumn()], u = tile.correction[t] * tile.ds[t][OwnColumn()];
    float term = 0.0f;  // dv . (S'^T k)
    WT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const float key = tile.k[t][OwnRow(i)], decayed = tile.decay[t] * state[i];
      term += key * decayed;
      this->KeepSum(t, i, decayed * dv);
      state[i] = decayed + key * u;
    }
    this->KeepScalar(t, 0, dv * SumOverRows(term));
  }
};

// Calls f(Width<rows of a thread>()).
template <typename F>
auto WithRows(int64_t key_dim, F f) {
  if (key_dim <= 32) return f(Width<8>());
  if (key_dim <= 64) return f(Width<16>());
  if (key_dim <= 128) return f(Width<32>());
  static_assert(kMostKeyDim == Tile<64>::kKeys);
  return f(Width<64>());
}

}  // namespace

int64_t DeltaNetSharedBytes(int64_t key_dim) {
  return WithRows(key_dim, [](auto rows) -> int64_t { return sizeof(ScanMemory<decltype(rows)::value>); });
}

template <typename T>
void DeltaNetScanForward(Queue& queue, const DeltaNetScan& scan, T* scanned) {
  WithRows(scan.key_dim, [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    queue.Launch(ScanForwardKernel<T, kRows>{scan, scanned}, {scan.heads, scan.parts(), scan.batch},
                 sizeof(ScanMemory<kRows>));
  });
}

template void DeltaNetScanForward<float>(Queue&, const DeltaNetScan&, float*);
template void DeltaNetScanForward<BFloat16>(Queue&, const DeltaNetScan&, BFloat16*);
template void DeltaNetScanForward<Float16>(Queue&, const DeltaNetScan&, Float16*);

void DeltaNetScanBackward(Queue& queue, const DeltaNetScan& scan, const DeltaNetGradients& gradients) {
  WithRows(scan.key_dim, [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    constexpr int64_t kShared = sizeof(ScanMemory<kRows>);
    const Grid grid = {scan.heads, scan.parts(), scan.batch};
    queue.Launch(StatesKernel<kRows>{{scan, gradients}}, grid, kShared);
    queue.Launch(BackwardsKernel<kRows>{{scan, gradients}}, grid, kShared);
    queue.Launch(KeysKernel<kRows>{{scan, gradients}}, grid, kShared);
  });
}

}  // namespace windtunnel::WT_KERNELS
