#include "runtime/cuda/kernels/state_space_scan.h"

#include <algorithm>

#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/state_space.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kScanThreads = 256, kScanWarps = kScanThreads / kWarp;
static_assert(kScanWarps == kScanTokens);  // each warp finishes one token
inline constexpr int kScanRows = 64, kOwnRows = 8;

// ---- who has what: a warp has all rows of 4 kColumns columns, a thread 8 rows of kColumns

template <int kColumns>
using OwnStates = float[kOwnRows][kColumns];

// Two runs of 4 rows, so that the lanes of a warp load consecutive pieces.
WT_DEVICE int OwnRow(int i) { return i / 4 * (kScanRows / 2) + Lane() / 4 * 4 + i % 4; }
template <int kColumns>
WT_DEVICE int OwnColumn() {
  return (Thread() / kWarp * 4 + Lane() % 4) * kColumns;
}

// Of a row of kScanRows numbers in shared memory, those of the thread's rows.
WT_DEVICE Pack<float, kOwnRows> LoadRows(const float* from) {
  Pack<float, kOwnRows> rows;
  WT_UNROLL
  for (int run = 0; run < 2; ++run) {
    const Pack<float, 4> own = Load<4>(from + OwnRow(run * 4));
    WT_UNROLL
    for (int i = 0; i < 4; ++i) rows.at[run * 4 + i] = own.at[i];
  }
  return rows;
}

// Sums over the lanes whose indices differ in bits kBit, kBit / 2, … kLast. Each step leaves a lane half of
// its values, those of the upper half if its bit is set; a single value is summed in all lanes.
template <int kBit, int kLast, int kLeft, int kCount>
WT_DEVICE void SumOverLanes(float (&values)[kCount]) {
  if constexpr (kLeft > 1) {
    constexpr int kHalf = kLeft / 2;
    const bool upper = (Lane() & kBit) != 0;
    WT_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      const float kept = upper ? values[kHalf + i] : values[i], given = upper ? values[i] : values[kHalf + i];
      values[i] = kept + ShuffleXor(given, kBit);
    }
    if constexpr (kBit > kLast) SumOverLanes<kBit / 2, kLast, kHalf>(values);
  } else {
    values[0] += ShuffleXor(values[0], kBit);
    if constexpr (kBit > kLast) SumOverLanes<kBit / 2, kLast, 1>(values);
  }
}

// Adds up each row's sums of the warp's threads; `place` is the warp's row of kScanRows sums.
WT_DEVICE void StoreRowSums(float (&sums)[kOwnRows], float* place) {
  SumOverLanes<2, 1, kOwnRows>(sums);
  Store(place + OwnRow(Lane() % 4 * 2), Pack<float, 2>{sums[0], sums[1]});
}
// The same of each column; `place` is the block's row of columns.
template <int kColumns>
WT_DEVICE void StoreColumnSums(float (&sums)[kColumns], float* place) {
  constexpr int kLanes = kWarp / 4 / kColumns;  // that have the same sum
  SumOverLanes<16, 4, kColumns>(sums);
  if (Lane() / 4 % kLanes == 0) place[OwnColumn<kColumns>() + Lane() / 4 / kLanes] = sums[0];
}

// ---- the tokens in shared memory

template <int kColumns>
struct ScanTile {
  static constexpr int kState = kScanThreads / kOwnRows * kColumns;
  float b[kScanTokens][kState], c[kScanTokens][kState];
  float x[kScanTokens][kScanRows], ds[kScanTokens][kScanRows];
  float step[kScanTokens], decay[kScanTokens];
};

template <int kColumns>
struct ScanMemory {
  using Tile = ScanTile<kColumns>;
  Tile tiles[2];
  float rows[kScanTokens][kScanWarps][kScanRows];
  float columns[kScanTokens][Tile::kState];
};

// Fetches rows of `width` numbers into rows of kPadded, with zeros behind them.
template <int kPadded>
WT_DEVICE void FetchRows(bool aligned, int tokens, int width, const float* from, int64_t stride,
                         float (&to)[kScanTokens][kPadded]) {
  if (aligned) {
    constexpr int kPieces = kPadded / 4;
    for (int i = Thread(); i < tokens * kPieces; i += kScanThreads) {
      const int token = i / kPieces, column = i % kPieces * 4;
      const bool exists = column < width;
      AsyncCopy16(&to[token][column], exists ? from + token * stride + column : from, exists);
    }
  } else {
    for (int i = Thread(); i < tokens * kPadded; i += kScanThreads) {
      const int token = i / kPadded, column = i % kPadded;
      to[token][column] = column < width ? from[token * stride + column] : 0.0f;
    }
  }
}

// Fetches a tile's scalars, by the first threads from `first` on.
WT_DEVICE void FetchScalars(int first, const float* from, float (&to)[kScanTokens]) {
  const int piece = Thread() - first;
  if (piece >= 0 && piece < kScanTokens / 4) AsyncCopy16(to + piece * 4, from + piece * 4, true);
}

// Calls use(i, tile) for tiles 0 to `tiles` - 1, for which fetch(i, tile) has been called one tile ahead.
template <int kColumns, typename Fetch, typename Use>
WT_DEVICE void ForEachTile(int tiles, Fetch fetch, Use use) {
  auto& places = SharedMemory<ScanMemory<kColumns>>()->tiles;
  fetch(0, places[0]);
  AsyncCommit();
  for (int i = 0; i < tiles; ++i) {
    AsyncWait<0>();
    SyncThreads();
    if (i + 1 < tiles) fetch(i + 1, places[(i + 1) % 2]);
    AsyncCommit();
    use(i, places[i % 2]);
  }
  AsyncWait<0>();
  SyncThreads();
}

// ---- the operands of one head

// kScanRows rows (or what is left) of a head, and tokens of its sequence from `token` on.
struct HeadRows {
  int rows, tokens;
  const float *x, *b, *c;      // rows are `convolved` apart
  int64_t first, at, scalars;  // of the token; of its first row in [T, inner]; of its scalars

  WT_DEVICE HeadRows(const StateSpaceScan& in, int sequence, int head, int first_row, int token, int count)
      : rows(in.head_dim - first_row < kScanRows ? in.head_dim - first_row : kScanRows), tokens(count) {
    first = static_cast<int64_t>(sequence) * in.seq + token;
    const int column = head * in.head_dim + first_row;
    const float* const u = in.u + first * in.convolved;
    x = u + column;
    b = u + in.inner + head / in.heads_of_group * in.state;
    c = b + in.shared;
    at = first * in.inner + column;
    scalars = (static_cast<int64_t>(head) * in.batch + sequence) * in.time + token;
  }
  WT_DEVICE int tiles() const { return (tokens + kScanTokens - 1) / kScanTokens; }
  // Of the tile that begins at token `from`.
  WT_DEVICE int TokensOf(int from) const { return tokens - from < kScanTokens ? tokens - from : kScanTokens; }
};

template <int kColumns>
WT_DEVICE void FetchInputs(const StateSpaceScan& in, const HeadRows& of, int from, ScanTile<kColumns>& tile) {
  const int tokens = of.TokensOf(from);
  const int64_t at = from * in.convolved;
  FetchRows(in.aligned, tokens, in.state, of.b + at, in.convolved, tile.b);
  FetchRows(in.aligned, tokens, in.state, of.c + at, in.convolved, tile.c);
  FetchRows(in.aligned, tokens, of.rows, of.x + at, in.convolved, tile.x);
  FetchScalars(0, in.step + of.scalars + from, tile.step);
  FetchScalars(kWarp, in.decay + of.scalars + from, tile.decay);
}

// Calls f(the state's number, its place) for the thread's states of a head, which lie transposed in [T,
// inner] from `from` on: a column of the state lies in a token's columns of the head.
template <int kColumns, typename F>
WT_DEVICE void ForEachOwnState(const StateSpaceScan& in, int rows, OwnStates<kColumns>& states, float* from,
                               F f) {
  WT_UNROLL
  for (int i = 0; i < kOwnRows; ++i) {
    WT_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      const int row = OwnRow(i), column = OwnColumn<kColumns>() + j;
      if (row < rows && column < in.state) f(states[i][j], from + column * in.inner + row);
    }
  }
}

// ---- forward

template <typename T, int kColumns>
struct ScanForwardKernel {
  static constexpr int kThreads = kScanThreads, kResidentBlocks = kColumns < 8 ? 2 : 1;
  StateSpaceScan in;
  T* scanned;

  WT_DEVICE void operator()() const {
    const int head = BlockX();
    const HeadRows of(in, BlockZ(), head, BlockY() * kScanRows, 0, in.seq);
    const float d = in.d[head];
    OwnStates<kColumns> h = {};
    ForEachTile<kColumns>(
        of.tiles(), [&](int i, auto& tile) { FetchInputs(in, of, i * kScanTokens, tile); },
        [&](int i, const auto& tile) {
          const int from = i * kScanTokens, tokens = of.TokensOf(from);
          for (int t = 0; t < tokens; ++t) AddToken(tile, t, h);
          SyncThreads();
          if (Thread() / kWarp < tokens) Write(of, tile, from, d);
        });
  }

  WT_DEVICE void AddToken(const ScanTile<kColumns>& tile, int t, OwnStates<kColumns>& h) const {
    const float a = tile.decay[t], size = tile.step[t];
    const auto b = Load<kColumns>(tile.b[t] + OwnColumn<kColumns>()),
               c = Load<kColumns>(tile.c[t] + OwnColumn<kColumns>());
    const auto x = LoadRows(tile.x[t]);
    float sums[kOwnRows];
    WT_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      const float input = size * x.at[i];
      sums[i] = 0.0f;
      WT_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        h[i][j] = a * h[i][j] + input * b.at[j];
        sums[i] += h[i][j] * c.at[j];
      }
    }
    StoreRowSums(sums, SharedMemory<ScanMemory<kColumns>>()->rows[t][Thread() / kWarp]);
  }

  // Each warp writes a token's rows.
  WT_DEVICE void Write(const HeadRows& of, const ScanTile<kColumns>& tile, int from, float d) const {
    const int t = Thread() / kWarp;
    const auto& sums = SharedMemory<ScanMemory<kColumns>>()->rows[t];
    for (int row = Lane(); row < of.rows; row += kWarp) {
      float sum = 0.0f;
      WT_UNROLL
      for (int warp = 0; warp < kScanWarps; ++warp) sum += sums[warp][row];
      scanned[of.at + (from + t) * in.inner + row] = Rounded<T>(sum + d * tile.x[t][row]);
    }
  }
};

// ---- backward: what enters the chunks

// Forwards, the states that enter all chunks but the first, each left in the rows of dx of the chunk before.
// Backwards, the gradients that enter all but the last, left in their own rows: with g_t = a_{t+1} g_{t+1} +
// ds_t C_t^T, what the first token behind a chunk passes on.
template <int kColumns, bool kForwards>
struct EnteringStatesKernel {
  static constexpr int kThreads = kScanThreads, kResidentBlocks = kColumns < 8 ? 2 : 1;
  StateSpaceScan in;
  StateSpaceGradients out;

  WT_DEVICE void operator()() const {
    const int chunk = out.chunks.tokens, first = kForwards ? 0 : chunk;
    const int tokens = kForwards ? (out.chunks.count - 1) * chunk : in.seq - chunk;
    const HeadRows of(in, BlockZ(), BlockX(), BlockY() * kScanRows, first, tokens);
    const auto from_of = [&](int i) { return (kForwards ? i : of.tiles() - 1 - i) * kScanTokens; };
    OwnStates<kColumns> states = {};
    ForEachTile<kColumns>(
        of.tiles(), [&](int i, auto& tile) { Fetch(of, from_of(i), tile); },
        [&](int i, const auto& tile) {
          const int from = from_of(i), count = of.TokensOf(from);
          for (int k = 0; k < count; ++k) AddToken(tile, kForwards ? k : count - 1 - k, states);
          // Whole tiles before a chunk's first token forwards, and from it on backwards.
          if ((kForwards ? from + kScanTokens : from) % chunk != 0) return;
          const int64_t chunk_at = from / chunk * chunk;
          ForEachOwnState<kColumns>(in, of.rows, states,
                                    out.dx + of.at + (kForwards ? chunk_at : chunk_at - chunk) * in.inner,
                                    [](float state, float* to) { *to = state; });
        });
  }

  WT_DEVICE void Fetch(const HeadRows& of, int from, ScanTile<kColumns>& tile) const {
    const int tokens = of.TokensOf(from);
    const float* const columns = (kForwards ? of.b : of.c) + from * in.convolved;
    FetchRows(in.aligned, tokens, in.state, columns, in.convolved, tile.b);
    if (kForwards) {
      FetchRows(in.aligned, tokens, of.rows, of.x + from * in.convolved, in.convolved, tile.x);
      FetchScalars(0, in.step + of.scalars + from, tile.step);
    } else {
      FetchRows(in.aligned, tokens, of.rows, out.ds + of.at + from * in.inner, in.inner, tile.x);
    }
    FetchScalars(kWarp, in.decay + of.scalars + from, tile.decay);
  }

  // Backwards, a state is what enters the token before.
  WT_DEVICE void AddToken(const ScanTile<kColumns>& tile, int t, OwnStates<kColumns>& states) const {
    const float a = tile.decay[t], size = kForwards ? tile.step[t] : a;
    const auto column = Load<kColumns>(tile.b[t] + OwnColumn<kColumns>());
    const auto row = LoadRows(tile.x[t]);
    WT_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      const float input = size * row.at[i];
      WT_UNROLL
      for (int j = 0; j < kColumns; ++j) states[i][j] = a * states[i][j] + input * column.at[j];
    }
  }
};

// ---- backward: the gradients of a chunk

// What both directions of a chunk share. A block computes the heads of one part of a group, and of each head
// kScanRows rows after the others.
template <int kColumns>
struct ChunkKernel {
  static constexpr int kThreads = kScanThreads, kResidentBlocks = kColumns < 8 ? 2 : 1;
  StateSpaceScan in;
  StateSpaceGradients out;

  WT_DEVICE int group() const { return BlockY() / out.parts; }
  WT_DEVICE int part() const { return BlockY() % out.parts; }

  // Calls f(head, its first row, its operands) for the block's; returns after the last.
  template <typename F>
  WT_DEVICE void ForEachHead(F f) const {
    const int first = BlockX() * out.chunks.tokens, left = in.seq - first;
    const int tokens = left < out.chunks.tokens ? left : out.chunks.tokens;
    const int of_group = group() * in.heads_of_group;
    const int begin = of_group + part() * in.heads_of_group / out.parts;
    const int end = of_group + (part() + 1) * in.heads_of_group / out.parts;
    for (int head = begin; head < end; ++head) {
      for (int row = 0; row < in.head_dim; row += kScanRows)
        f(head == begin && row == 0, row, head, HeadRows(in, BlockZ(), head, row, first, tokens));
    }
  }

  WT_DEVICE void Fetch(const HeadRows& of, int from, ScanTile<kColumns>& tile) const {
    FetchInputs(in, of, from, tile);
    FetchRows(in.aligned, of.TokensOf(from), of.rows, out.ds + of.at + from * in.inner, in.inner, tile.ds);
  }

  // The part's gradient of B (or, `of_c`, of C) of a token of the whole batch.
  WT_DEVICE float* RowOf(int64_t token, bool of_c) const {
    return out.dbc + ((part() * static_cast<int64_t>(in.batch) * in.seq + token) * 2 + of_c) * in.shared +
           group() * in.state;
  }
};

// By a warp.
WT_DEVICE float Product(const float* a, const float* b, int n) {
  float sum = 0.0f;
  for (int i = Lane(); i < n; i += kWarp) sum += a[i] * b[i];
  return ReduceLanes(sum, Sum());
}

WT_DEVICE void AddTo(float& sum, bool first, float value) { sum = first ? value : sum + value; }

// The gradient of C, and ds_t . (a_t h_{t-1} C_t).
template <int kColumns>
struct ChunkForwardsKernel : ChunkKernel<kColumns> {
  using Tile = ScanTile<kColumns>;
  using ChunkKernel<kColumns>::in;
  using ChunkKernel<kColumns>::out;

  WT_DEVICE void operator()() const {
    this->ForEachHead([&](bool first, int first_row, int, const HeadRows& of) {
      OwnStates<kColumns> h = {};
      if (BlockX() > 0) {
        ForEachOwnState<kColumns>(in, of.rows, h, out.dx + of.at - out.chunks.tokens * in.inner,
                                  [](float& state, const float* from) { state = *from; });
      }
      ForEachTile<kColumns>(
          of.tiles(), [&](int i, auto& tile) { this->Fetch(of, i * kScanTokens, tile); },
          [&](int i, const auto& tile) {
            const int from = i * kScanTokens, tokens = of.TokensOf(from);
            for (int t = 0; t < tokens; ++t) AddToken(tile, t, h);
            SyncThreads();
            if (Thread() / kWarp < tokens) Write(of, tile, from, first, first_row == 0);
          });
    });
  }

  WT_DEVICE void AddToken(const Tile& tile, int t, OwnStates<kColumns>& h) const {
    const float a = tile.decay[t], size = tile.step[t];
    const auto b = Load<kColumns>(tile.b[t] + OwnColumn<kColumns>());
    const auto x = LoadRows(tile.x[t]), ds = LoadRows(tile.ds[t]);
    float sums[kColumns] = {};
    WT_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      const float input = size * x.at[i];
      WT_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const float before = a * h[i][j];
        sums[j] += ds.at[i] * before;
        h[i][j] = before + input * b.at[j];
      }
    }
    StoreColumnSums(sums, SharedMemory<ScanMemory<kColumns>>()->columns[t]);
  }

  // Each warp writes a token.
  WT_DEVICE void Write(const HeadRows& of, const Tile& tile, int from, bool first, bool first_rows) const {
    const int t = Thread() / kWarp;
    const auto& sums = SharedMemory<ScanMemory<kColumns>>()->columns[t];
    float* const dc = this->RowOf(of.first + from + t, true);
    const float own = tile.step[t] * Product(tile.ds[t], tile.x[t], of.rows);
    float sum = 0.0f;
    for (int k = Lane(); k < in.state; k += kWarp) {
      sum += sums[k] * tile.c[t][k];
      AddTo(dc[k], first, sums[k] + own * tile.b[t][k]);
    }
    sum = ReduceLanes(sum, Sum());
    if (Lane() == 0) AddTo(out.of_decay[of.scalars + from + t], first_rows, sum);
  }
};

// The gradients of x and B, and what those of the steps need.
template <int kColumns>
struct ChunkBackwardsKernel : ChunkKernel<kColumns> {
  using Tile = ScanTile<kColumns>;
  using ChunkKernel<kColumns>::in;
  using ChunkKernel<kColumns>::out;

  WT_DEVICE void operator()() const {
    float dd = 0.0f;  // of the warp's tokens
    this->ForEachHead([&](bool first, int first_row, int head, const HeadRows& of) {
      const float d = in.d[head];
      OwnStates<kColumns> g = {};
      if (BlockX() + 1 < out.chunks.count) {
        ForEachOwnState<kColumns>(in, of.rows, g, out.dx + of.at,
                                  [](float& state, const float* from) { state = *from; });
      }
      const auto from_of = [&](int i) { return (of.tiles() - 1 - i) * kScanTokens; };
      ForEachTile<kColumns>(
          of.tiles(), [&](int i, auto& tile) { this->Fetch(of, from_of(i), tile); },
          [&](int i, const auto& tile) {
            const int from = from_of(i), tokens = of.TokensOf(from);
            for (int t = tokens; t-- > 0;) AddToken(tile, t, g);
            SyncThreads();
            if (Thread() / kWarp < tokens) dd += Write(of, tile, from, d, first, first_row == 0);
          });
      if (first_row + kScanRows < in.head_dim) return;
      dd = ReduceBlock<kScanThreads>(Lane() == 0 ? dd : 0.0f, 0.0f,
                                     SharedMemory<ScanMemory<kColumns>>()->columns[0], Sum());
      if (Thread() == 0) out.dd[(BlockZ() * out.chunks.count + BlockX()) * in.heads + head] = dd;
      dd = 0.0f;
    });
  }

  WT_DEVICE void AddToken(const Tile& tile, int t, OwnStates<kColumns>& g) const {
    const float a = tile.decay[t];
    const auto b = Load<kColumns>(tile.b[t] + OwnColumn<kColumns>()),
               c = Load<kColumns>(tile.c[t] + OwnColumn<kColumns>());
    const auto x = LoadRows(tile.x[t]), ds = LoadRows(tile.ds[t]);
    float of_rows[kOwnRows], of_columns[kColumns] = {};
    WT_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      of_rows[i] = 0.0f;
      WT_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        of_rows[i] += g[i][j] * b.at[j];
        of_columns[j] += g[i][j] * x.at[i];
        g[i][j] = a * (g[i][j] + ds.at[i] * c.at[j]);
      }
    }
    auto& shared = *SharedMemory<ScanMemory<kColumns>>();
    StoreRowSums(of_rows, shared.rows[t][Thread() / kWarp]);
    StoreColumnSums(of_columns, shared.columns[t]);
  }

  // Each warp writes a token. Returns ds . x.
  WT_DEVICE float Write(const HeadRows& of, const Tile& tile, int from, float d, bool first,
                        bool first_rows) const {
    const int t = Thread() / kWarp;
    const auto& shared = *SharedMemory<ScanMemory<kColumns>>();
    const float size = tile.step[t];
    const float of_rows = Product(tile.ds[t], tile.x[t], of.rows),
                of_columns = Product(tile.b[t], tile.c[t], in.state);
    float* const dx = out.dx + of.at + (from + t) * in.inner;
    float of_later = 0.0f;  // x . (g B), where g is what later tokens add
    for (int row = Lane(); row < of.rows; row += kWarp) {
      float sum = 0.0f;
      WT_UNROLL
      for (int warp = 0; warp < kScanWarps; ++warp) sum += shared.rows[t][warp][row];
      const float ds = tile.ds[t][row];
      dx[row] = size * (sum + ds * of_columns) + d * ds;
      of_later += sum * tile.x[t][row];
    }
    float* const db = this->RowOf(of.first + from + t, false);
    for (int k = Lane(); k < in.state; k += kWarp)
      AddTo(db[k], first, size * (shared.columns[t][k] + of_rows * tile.c[t][k]));
    of_later = ReduceLanes(of_later, Sum());
    if (Lane() == 0) {
      out.of_decay[of.scalars + from + t] -= size * of_later;
      AddTo(out.of_step[of.scalars + from + t], first_rows, of_later + of_rows * of_columns);
    }
    return of_rows;
  }
};

// ----

// Calls f(Width<columns of a thread>()).
template <typename F>
auto WithColumns(int64_t state, F f) {
  if (state <= 32) return f(Width<1>());
  if (state <= 64) return f(Width<2>());
  if (state <= 128) return f(Width<4>());
  static_assert(kMostState == ScanTile<8>::kState);
  return f(Width<8>());
}

int64_t RowBlocks(const StateSpaceScan& scan) { return CeilDivide(scan.head_dim, kScanRows); }

}  // namespace

int64_t ScanSharedBytes(int64_t state) {
  return WithColumns(state,
                     [](auto columns) -> int64_t { return sizeof(ScanMemory<decltype(columns)::value>); });
}

StateSpaceChunks::StateSpaceChunks(const StateSpaceShape& shape, const Traits& traits) {
  constexpr int64_t kLeast = 64, kBlocks = 2;  // on a multiprocessor
  const int64_t of_chunk = shape.batch * shape.groups * StateSpacePartsOf(shape.heads_of_group());
  const int64_t wanted = CeilDivide(traits.multiprocessors * kBlocks, of_chunk);
  const int64_t least = std::max({kLeast, shape.state, CeilDivide(shape.seq, wanted)});
  tokens = static_cast<int>(CeilDivide(least, kScanTokens) * kScanTokens);
  count = static_cast<int>(CeilDivide(shape.seq, tokens));
}

template <typename T>
void ScanForward(Queue& queue, const StateSpaceScan& scan, T* scanned) {
  WithColumns(scan.state, [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    queue.Launch(ScanForwardKernel<T, kColumns>{scan, scanned}, {scan.heads, RowBlocks(scan), scan.batch},
                 sizeof(ScanMemory<kColumns>));
  });
}

template void ScanForward<float>(Queue&, const StateSpaceScan&, float*);
template void ScanForward<BFloat16>(Queue&, const StateSpaceScan&, BFloat16*);
template void ScanForward<Float16>(Queue&, const StateSpaceScan&, Float16*);

void ScanBackward(Queue& queue, const StateSpaceScan& scan, const StateSpaceGradients& gradients) {
  WithColumns(scan.state, [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    constexpr int64_t kShared = sizeof(ScanMemory<kColumns>);
    const int64_t chunks = gradients.chunks.count;
    const Grid all_heads = {scan.heads, RowBlocks(scan), scan.batch};
    const Grid all_chunks = {chunks, scan.groups * gradients.parts, scan.batch};
    if (chunks > 1) queue.Launch(EnteringStatesKernel<kColumns, true>{scan, gradients}, all_heads, kShared);
    queue.Launch(ChunkForwardsKernel<kColumns>{{scan, gradients}}, all_chunks, kShared);
    if (chunks > 1) queue.Launch(EnteringStatesKernel<kColumns, false>{scan, gradients}, all_heads, kShared);
    queue.Launch(ChunkBackwardsKernel<kColumns>{{scan, gradients}}, all_chunks, kShared);
  });
}

}  // namespace windtunnel::WT_KERNELS
