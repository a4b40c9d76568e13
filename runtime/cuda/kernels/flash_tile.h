// Tiles of 16-bit rows in shared memory, and their fragments as mma.m16n8k16 takes them.
#pragma once

#include <limits>

#include "runtime/cuda/kernels/attention_shape.h"
#include "runtime/cuda/kernels/reduce.h"

namespace windtunnel::WT_KERNELS {

inline constexpr int kFlashThreads = 128, kFlashWarps = kFlashThreads / kWarp;
inline constexpr int kPieceElements = 8;      // 16-bit elements in 16 bytes
inline constexpr float kLog2E = 1.44269504f;  // exponentials are computed in base 2

#if defined(WT_DEVICE)

// kRows rows of kColumns elements. The stride is one piece longer than a row, so that the eight rows that a
// matrix load reads lie in different banks.
template <typename T, int kRows, int kColumns>
struct FlashTile {
  static constexpr int kStride = kColumns + kPieceElements, kElements = kRows * kStride;
  T* at;

  WT_DEVICE const T* Piece(int row, int column) const { return at + row * kStride + column; }

  // Starts fetching `rows` rows of `columns` elements; fills the rest of the tile with zeros.
  WT_DEVICE void Fetch(const T* from, int64_t row_stride, int rows, int columns) const {
    const int stride = static_cast<int>(row_stride);  // a tile spans fewer than 2^31 elements
    constexpr int kPieces = kColumns / kPieceElements;
    WT_UNROLL
    for (int i = 0; i < kRows * kPieces / kFlashThreads; ++i) {
      const int piece = i * kFlashThreads + Thread();
      const int row = piece / kPieces, column = piece % kPieces * kPieceElements;
      const bool there = row < rows && column < columns;
      AsyncCopy16(at + row * kStride + column, there ? from + (row * stride + column) : from, there);
    }
    static_assert(kRows * kPieces % kFlashThreads == 0);
  }

  // The left factor's fragment: rows [row, row + 16), columns [column, column + 16).
  WT_DEVICE void Left(int row, int column, uint32_t (&a)[4]) const {
    LoadMatrices(a, Piece(row + Lane() % 16, column + Lane() / 16 * 8));
  }
  // The right factor's fragments for x times tile^T. Rows [row, row + 16) are 16 columns of the result, in
  // two fragments; the sum is over columns [column, column + 16).
  WT_DEVICE void RightTransposed(int row, int column, uint32_t (&b)[2][2]) const {
    uint32_t all[4];
    LoadMatrices(all, Piece(row + Lane() / 16 * 8 + Lane() % 8, column + Lane() / 8 % 2 * 8));
    b[0][0] = all[0], b[0][1] = all[1], b[1][0] = all[2], b[1][1] = all[3];
  }
  // The right factor's fragments for x times tile. The sum is over rows [row, row + 16); columns [column,
  // column + 16) are 16 columns of the result.
  WT_DEVICE void Right(int row, int column, uint32_t (&b)[2][2]) const {
    uint32_t all[4];
    LoadMatricesTransposed(all, Piece(row + Lane() % 16, column + Lane() / 16 * 8));
    b[0][0] = all[0], b[0][1] = all[1], b[1][0] = all[2], b[1][1] = all[3];
  }
};

// Calls use(tile, stage) for every tile of `coming`. fetch(coming, stage) of a tile is issued one tile ahead
// and has completed by then. Stages alternate between 0 and 1.
template <typename Tiles, typename Fetch, typename Use>
WT_DEVICE void ForEachFetched(Tiles& coming, Fetch fetch, Use use) {
  int stage = 0;
  if (!coming.done()) fetch(coming, stage);
  AsyncCommit();
  while (!coming.done()) {
    const Tile tile = coming.tile();
    coming.Next();
    if (!coming.done()) fetch(coming, stage ^ 1);
    AsyncCommit();
    AsyncWait<1>();
    SyncThreads();
    use(tile, stage);
    SyncThreads();
    stage ^= 1;
  }
  AsyncWait<0>();
}

// Starts fetching a tile of the block's keys and values.
template <typename T, typename KeyTile>
WT_DEVICE void FetchKeysAndValues(const AttentionShape& shape, const AttentionInputs<T>& in, const Tile& tile,
                                  const KeyTile& keys, const KeyTile& values) {
  const int64_t at = (shape.KeyRow(BlockZ(), tile.chunk) + tile.first) * shape.key_stride +
                     shape.KeyHead(BlockY()) * shape.head_dim;
  keys.Fetch(in.keys + at, shape.key_stride, tile.rows, shape.head_dim);
  values.Fetch(in.values + at, shape.key_stride, tile.rows, shape.head_dim);
}

// 16 rows by 8 kCount columns of results, as a warp holds them. Of fragment n, a lane has columns 8 n + 2
// (lane % 4) and the next one: elements 0 and 1 are in row lane / 4, elements 2 and 3 in row lane / 4 + 8.
template <int kCount>
using Results = float[kCount][4];

WT_DEVICE int RowOfElement(int element) { return Lane() / 4 + element / 2 * 8; }
WT_DEVICE int ColumnOfElement(int fragment, int element) {
  return fragment * 8 + Lane() % 4 * 2 + element % 2;
}

// Columns [16 k, 16 k + 16) of results as the left factor of the next product.
template <typename T, int kCount>
WT_DEVICE void LeftOfResults(const Results<kCount>& x, int k, uint32_t (&a)[4]) {
  a[0] = Packed<T>(x[2 * k][0], x[2 * k][1]);
  a[1] = Packed<T>(x[2 * k][2], x[2 * k][3]);
  a[2] = Packed<T>(x[2 * k + 1][0], x[2 * k + 1][1]);
  a[3] = Packed<T>(x[2 * k + 1][2], x[2 * k + 1][3]);
}

// The following functions load each fragment of the right factor once for several times 16 rows.

// sums += rows [row, row + 16 kTiles) of `left` times the transposed rows of `right`.
template <typename T, int kTiles, int kCount, typename LeftTile, typename RightTile>
WT_DEVICE void AddTimesTransposed(const LeftTile& left, int row, const RightTile& right, int columns,
                                  float (&sums)[kTiles][kCount][4]) {
  WT_UNROLL
  for (int k = 0; k < columns; k += 16) {
    uint32_t a[kTiles][4];
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) left.Left(row + 16 * m, k, a[m]);
    WT_UNROLL
    for (int n = 0; n < kCount / 2; ++n) {
      uint32_t b[2][2];
      right.RightTransposed(n * 16, k, b);
      WT_UNROLL
      for (int m = 0; m < kTiles; ++m) {
        MatrixMultiplyAdd<T>(sums[m][2 * n], a[m], b[0]);
        MatrixMultiplyAdd<T>(sums[m][2 * n + 1], a[m], b[1]);
      }
    }
  }
}

// sums += x (16 kTiles rows by 8 kDepth columns, rounded to T) times the rows of `right`.
template <typename T, int kTiles, int kDepth, int kCount, typename RightTile>
WT_DEVICE void AddResultsTimes(const float (&x)[kTiles][kDepth][4], const RightTile& right,
                               float (&sums)[kTiles][kCount][4]) {
  WT_UNROLL
  for (int k = 0; k < kDepth / 2; ++k) {
    uint32_t a[kTiles][4];
    WT_UNROLL
    for (int m = 0; m < kTiles; ++m) LeftOfResults<T>(x[m], k, a[m]);
    WT_UNROLL
    for (int n = 0; n < kCount / 2; ++n) {
      uint32_t b[2][2];
      right.Right(k * 16, n * 16, b);
      WT_UNROLL
      for (int m = 0; m < kTiles; ++m) {
        MatrixMultiplyAdd<T>(sums[m][2 * n], a[m], b[0]);
        MatrixMultiplyAdd<T>(sums[m][2 * n + 1], a[m], b[1]);
      }
    }
  }
}

template <int kTiles, int kCount>
WT_DEVICE void ClearResults(float (&x)[kTiles][kCount][4]) {
  WT_UNROLL
  for (int m = 0; m < kTiles; ++m) {
    WT_UNROLL
    for (int n = 0; n < kCount; ++n) {
      WT_UNROLL
      for (int i = 0; i < 4; ++i) x[m][n][i] = 0.0f;
    }
  }
}

// Sets to minus infinity the scores of keys that the rows' queries do not see, or that do not exist. The
// first row's position is `first_position`.
template <int kCount>
WT_DEVICE void Hide(const AttentionShape& shape, const Tile& keys, int first_position, Results<kCount>& s) {
  WT_UNROLL
  for (int n = 0; n < kCount; ++n) {
    WT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int key = ColumnOfElement(n, i);
      if (key >= keys.rows || !shape.Sees(first_position + RowOfElement(i), keys.position + key))
        s[n][i] = -std::numeric_limits<float>::infinity();
    }
  }
}

// Multiplies probabilities (queries down, keys across) by dropout's factors. The first query's position is
// `first_position`.
template <int kCount>
WT_DEVICE void DropKeys(const AttentionShape& shape, const Tile& keys, int first_position,
                        Results<kCount>& p) {
  WT_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int64_t row =
        shape.dropout.RowOf(BlockZ(), BlockY(), first_position + RowOfElement(2 * half)) + keys.position;
    WT_UNROLL
    for (int n = 0; n < kCount; ++n) {
      float first, second;
      shape.dropout.kept.FactorsAt(row + ColumnOfElement(n, 0), first, second);
      p[n][2 * half] *= first;
      p[n][2 * half + 1] *= second;
    }
  }
}

// Stores the rows of results times scale[half] (for rows lane / 4 and lane / 4 + 8), up to `rows` rows and
// `columns` columns; adds them to memory if `accumulate`.
template <typename T, int kCount>
WT_DEVICE void StoreResults(const Results<kCount>& x, const float (&scale)[2], int rows, int columns,
                            bool accumulate, T* to, int64_t row_stride) {
  WT_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = RowOfElement(2 * half);
    if (row >= rows) continue;
    WT_UNROLL
    for (int n = 0; n < kCount; ++n) {
      const int column = ColumnOfElement(n, 0);
      if (column >= columns) continue;
      uint32_t* const place = reinterpret_cast<uint32_t*>(to + (row * static_cast<int>(row_stride) + column));
      float first = x[n][2 * half] * scale[half], second = x[n][2 * half + 1] * scale[half];
      if (accumulate) {
        first += OneOf<T>(*place, 0);
        second += OneOf<T>(*place, 1);
      }
      *place = Packed<T>(first, second);
    }
  }
}

#endif

}  // namespace windtunnel::WT_KERNELS
