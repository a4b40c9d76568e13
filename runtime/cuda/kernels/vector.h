// Memory accesses in pieces of 16 bytes, so that memory-bound kernels move as much per instruction as they
// can.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/cuda/kernels/simt.h"

namespace windtunnel::WT_KERNELS {

// Elements of T in 16 bytes.
template <typename T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));
// Elements in a piece of the narrower of two types.
template <typename A, typename B>
inline constexpr int kCommonVector = kVector<A> > kVector<B> ? kVector<A> : kVector<B>;

template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T at[kWidth];
};

// The width of a piece as a value, for generic lambdas.
template <int kWidth>
using Width = std::integral_constant<int, kWidth>;

// Loads kWidth elements as fp32. fp32 rows may lie in shared memory; 16-bit elements must be in global
// memory.
template <int kWidth, typename T>
WT_DEVICE Pack<float, kWidth> Load(const T* from) {
  Pack<float, kWidth> values;
  if constexpr (sizeof(T) == 2 && kWidth == 8) {
    const auto words = *reinterpret_cast<const Pack<uint32_t, kWidth / 2>*>(from);
    WT_UNROLL
    for (int i = 0; i < kWidth; ++i) values.at[i] = OneOf<T>(words.at[i / 2], i % 2);
  } else {
    const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(from);
    WT_UNROLL
    for (int i = 0; i < kWidth; ++i) values.at[i] = Float(pack.at[i]);
  }
  return values;
}

// 16 bytes as they lie in memory. If a piece of 16-bit elements is needed later, this takes half the
// registers of its elements in fp32.
template <typename T>
struct alignas(16) Words {
  uint32_t at[4];
};

template <typename T>
WT_DEVICE Words<T> LoadPiece(const T* from) {
  return *reinterpret_cast<const Words<T>*>(from);
}

template <typename T>
WT_DEVICE Pack<float, kVector<T>> Floats(const Words<T>& words) {
  Pack<float, kVector<T>> values;
  WT_UNROLL
  for (int i = 0; i < kVector<T>; ++i) {
    if constexpr (sizeof(T) == 2) values.at[i] = OneOf<T>(words.at[i / 2], i % 2);
    else values.at[i] = AsFloat(words.at[i]);
  }
  return values;
}

template <int kWidth, typename T>
WT_DEVICE void Store(T* to, const Pack<float, kWidth>& values) {
  if constexpr (sizeof(T) == 2 && kWidth == 8) {
    uint32_t words[4];
    WT_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = Packed<T>(values.at[2 * i], values.at[2 * i + 1]);
    StoreWords(to, words);
  } else {
    Pack<T, kWidth> pack;
    WT_UNROLL
    for (int i = 0; i < kWidth; ++i) pack.at[i] = Rounded<T>(values.at[i]);
    *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
  }
}

// Calls f(Width<w>(), i) for elements [i, i + w), which together cover all `n`. w is kWidth for whole pieces
// if `aligned`, else 1. Piece or element j belongs to thread `first` if j = first + k * stride for some k.
template <int kWidth, typename F>
WT_DEVICE void ForEachPiece(int64_t n, bool aligned, int64_t first, int64_t stride, F f) {
  const int64_t pieces = aligned ? n / kWidth : 0;
  for (int64_t i = first; i < pieces; i += stride) f(Width<kWidth>(), i * kWidth);
  for (int64_t i = pieces * kWidth + first; i < n; i += stride) f(Width<1>(), i);
}

// How many elements behind a 16-byte boundary a row begins.
template <int kWidth, typename T>
WT_DEVICE int64_t OffPieces(const T* row) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) / sizeof(T)) % kWidth;
}

// Like ForEachPiece for a row that begins anywhere: single elements up to the first whole piece and after the
// last.
template <int kWidth, typename T, typename F>
WT_DEVICE void ForEachPieceOfRow(int64_t n, const T* row, int first, int stride, F f) {
  const int64_t off = OffPieces<kWidth>(row);
  const int64_t before = off == 0 ? 0 : (kWidth - off < n ? kWidth - off : n);
  const int64_t pieces = (n - before) / kWidth;
  for (int64_t i = first; i < before; i += stride) f(Width<1>(), i);
  for (int64_t i = first; i < pieces; i += stride) f(Width<kWidth>(), before + i * kWidth);
  for (int64_t i = before + pieces * kWidth + first; i < n; i += stride) f(Width<1>(), i);
}

}  // namespace windtunnel::WT_KERNELS
