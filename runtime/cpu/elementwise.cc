#include "runtime/cpu/elementwise.h"

#include <string.h>

#include <algorithm>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

// Eight rows at a time: the matrix is read once, in as many streams as hardware prefetchers follow, and the
// sums are loaded and stored once per eight rows.
template <typename T>
WT_CPU_KERNEL void AddColumnSums(int64_t rows, int64_t n, const T* in, float* out) {
  constexpr int64_t kRows = 8;
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    const T* x = in + row * n;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const auto at = [&](int64_t k) { return ToFloat(x[j + k * n]); };
      const float upper = (at(0) + at(1)) + (at(2) + at(3));
      const float lower = (at(4) + at(5)) + (at(6) + at(7));
      out[j] += upper + lower;
    }
  }
  for (; row < rows; ++row) {
    const T* x = in + row * n;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) out[j] += ToFloat(x[j]);
  }
}

// Handles one piece of all parts at a time, so that its sums stay in the cache.
template <typename T>
WT_CPU_KERNEL void AddParts(int64_t parts, int64_t n, const T* in, T* out) {
  constexpr int64_t kPiece = 2048;
  float sums[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = std::min(kPiece, n - begin);
    std::fill_n(sums, count, 0.0F);
    for (int64_t part = 0; part < parts; ++part) {
      const T* x = in + part * n + begin;
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) sums[j] += ToFloat(x[j]);
    }
    T* y = out + begin;
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) y[j] = FromFloat<T>(sums[j]);
  }
}

template <typename T>
WT_CPU_KERNEL void AddToRows(int64_t rows, int64_t n, const T* bias, T* y) {
  for (int64_t row = 0; row < rows; ++row) {
    T* out = y + row * n;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) out[j] = FromFloat<T>(ToFloat(out[j]) + ToFloat(bias[j]));
  }
}

template <typename T>
WT_CPU_KERNEL void FillWith(int64_t n, T value, T* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}

}  // namespace

Status Run(Scratch& scratch, const ColumnSum& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    float* place = scratch.Floats(ElementsBeside<T>(op.columns));
    const T* in = operands.In<T>(0, op.biases() * op.rows * op.columns);
    T* out = operands.Out<T>(0, op.biases() * op.columns);
    for (int64_t bias = 0; bias < op.biases(); ++bias) {
      Sums<T> sums(op.columns, out + bias * op.columns, place);
      sums.Start(op.accumulate);
      AddColumnSums(op.rows, op.columns, in + bias * op.rows * op.columns, sums.data());
      sums.Store();
    }
  });
  return Ok();
}

Status Run(const SumParts& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    AddParts(op.parts, op.elements, operands.In<T>(0, op.parts * op.elements),
             operands.Out<T>(0, op.elements));
  });
  return Ok();
}

Status Run(const AddBias& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* biases = operands.In<T>(1, op.biases() * op.columns);
    T* y = operands.Out<T>(0, op.biases() * op.rows * op.columns);
    for (int64_t bias = 0; bias < op.biases(); ++bias)
      AddToRows(op.rows, op.columns, biases + bias * op.columns, y + bias * op.rows * op.columns);
  });
  return Ok();
}

Status Run(const CopyTensors& op, const Operands& operands) {
  WT_CHECK_EQ(operands.reads.size(), operands.writes.size());
  for (size_t i = 0; i < operands.reads.size(); ++i) {
    const int64_t elements = operands.reads[i].elements;
    WT_CHECK_EQ(operands.writes[i].elements, elements);
    memcpy(operands.writes[i].data, operands.reads[i].data,
           static_cast<size_t>(elements * SizeOf(op.dtype).count()));
  }
  return Ok();
}

Status Run(const Copy& op, const Operands& operands) {
  if (IsPacked(op.from) || op.moves_only()) {
    memcpy(operands.Out<char>(0, op.elements), operands.In<char>(0, op.elements),
           static_cast<size_t>(op.elements * SizeOf(op.from).count()));
    return Ok();
  }
  const float scale = static_cast<float>(op.scale);
  WithElement(op.from, [&](auto from) {
    WithElement(op.to, [&](auto to) {
      const auto* in = operands.In<decltype(from)>(0, op.elements);
      auto* out = operands.Out<decltype(to)>(0, op.elements);
      op.accumulate ? ConvertAndAdd(op.elements, scale, in, out) : Convert(op.elements, scale, in, out);
    });
  });
  return Ok();
}

Status Run(const Scale& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    auto* x = operands.Out<decltype(element)>(0, op.elements);
    Convert(op.elements, static_cast<float>(op.scale), x, x);
  });
  return Ok();
}

Status Run(const Fill& op, const Operands& operands) {
  if (op.dtype == DType::kInt32) {
    std::fill_n(operands.OutIntegers(0, op.elements), op.elements, static_cast<int32_t>(op.value));
    return Ok();
  }
  if (IsPacked(op.dtype)) {
    WT_CHECK_EQ(op.value, 0.0);
    memset(operands.Out<char>(0, op.elements), 0,
           static_cast<size_t>(op.elements * SizeOf(op.dtype).count()));
    return Ok();
  }
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    T* out = operands.Out<T>(0, op.elements);
    if (op.value == 0.0) {
      std::fill_n(out, op.elements, T());  // memset
    } else {
      FillWith(op.elements, FromFloat<T>(static_cast<float>(op.value)), out);
    }
  });
  return Ok();
}

}  // namespace windtunnel::cpu
