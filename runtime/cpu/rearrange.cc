#include "runtime/cpu/rearrange.h"

#include <string.h>

#include <numeric>

namespace windtunnel::cpu {
namespace {

// Copies `rows` runs of `bytes` bytes; the strides are in bytes.
void CopyRuns(int64_t rows, int64_t bytes, const char* from, int64_t from_stride, char* to,
              int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row)
    memcpy(to + row * to_stride, from + row * from_stride, static_cast<size_t>(bytes));
}

const char* In(const Operands& operands, int64_t elements) {
  WT_CHECK_GE(operands.reads[0].elements, elements);
  return static_cast<const char*>(operands.reads[0].data);
}
char* Out(const Operands& operands, int64_t elements) {
  WT_CHECK_GE(operands.writes[0].elements, elements);
  return static_cast<char*>(operands.writes[0].data);
}

}  // namespace

Status Run(const CopyColumns& op, const Operands& operands) {
  const int64_t size = SizeOf(op.dtype).count();
  CopyRuns(op.rows, op.columns * size, In(operands, op.rows * op.from_stride) + op.from_first * size,
           op.from_stride * size, Out(operands, op.rows * op.to_stride) + op.to_first * size,
           op.to_stride * size);
  return Ok();
}

Status Run(const SplitColumns& op, const Operands& operands) {
  const int64_t size = SizeOf(op.dtype).count();
  const int64_t all = std::accumulate(op.columns.begin(), op.columns.end(), int64_t{0}),
                part = all / op.ranks;
  const char* in = In(operands, op.rows * all);
  char* out = Out(operands, op.rows * all);
  int64_t first = 0;
  for (int64_t columns : op.columns) {
    const int64_t own = columns / op.ranks;
    for (int rank = 0; rank < op.ranks; ++rank) {
      const int64_t joined = (first + rank * own) * size,
                    split = (rank * op.rows * part + first / op.ranks) * size;
      if (op.join) CopyRuns(op.rows, own * size, in + split, part * size, out + joined, all * size);
      else CopyRuns(op.rows, own * size, in + joined, all * size, out + split, part * size);
    }
    first += columns;
  }
  return Ok();
}

namespace {

// A run is a chunk of each sequence; `chunk` counts bytes.
void PutChunksInOrder(const SwapBlocks& op, int64_t chunk, const char* in, char* out) {
  const bool from_zigzag = op.chunks == SwapBlocks::Chunks::kFromZigzag;
  const int64_t ranks = from_zigzag ? op.outer : op.inner, sequences = from_zigzag ? op.inner : op.outer;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t of_rank = (rank * sequences * 2 + half) * chunk;
      const int64_t of_sequence = (half == 0 ? rank : 2 * ranks - 1 - rank) * chunk;
      if (from_zigzag)
        CopyRuns(sequences, chunk, in + of_rank, 2 * chunk, out + of_sequence, 2 * ranks * chunk);
      else CopyRuns(sequences, chunk, in + of_sequence, 2 * ranks * chunk, out + of_rank, 2 * chunk);
    }
  }
}

}  // namespace

Status Run(const SwapBlocks& op, const Operands& operands) {
  const int64_t bytes = op.length * SizeOf(op.dtype).count(), elements = op.outer * op.inner * op.length;
  const char* in = In(operands, elements);
  char* out = Out(operands, elements);
  if (op.chunks != SwapBlocks::Chunks::kStay) {
    PutChunksInOrder(op, bytes / 2, in, out);
    return Ok();
  }
  for (int64_t outer = 0; outer < op.outer; ++outer)
    CopyRuns(op.inner, bytes, in + outer * op.inner * bytes, bytes, out + outer * bytes, op.outer * bytes);
  return Ok();
}

}  // namespace windtunnel::cpu
