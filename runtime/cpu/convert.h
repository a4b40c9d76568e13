// Converts rows of elements between types, for copies, shards and 16-bit operands that are computed in fp32.
#pragma once

#include <cstdint>

namespace windtunnel::cpu {

// out[i] = in[i] * scale, computed in fp32 and rounded once. `out` may be `in`. From, To: float, BFloat16,
// Float16.
template <typename From, typename To>
void Convert(int64_t n, float scale, const From* in, To* out);
// out[i] += in[i] * scale, likewise.
template <typename From, typename To>
void ConvertAndAdd(int64_t n, float scale, const From* in, To* out);

// `rows` rows of `columns` elements, that lie `in_stride` and `out_stride` elements apart.
template <typename From, typename To>
void ConvertRows(int64_t rows, int64_t columns, const From* in, int64_t in_stride, To* out,
                 int64_t out_stride) {
  for (int64_t row = 0; row < rows; ++row)
    Convert(columns, 1.0f, in + row * in_stride, out + row * out_stride);
}

}  // namespace windtunnel::cpu
