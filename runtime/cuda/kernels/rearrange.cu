#include "runtime/cuda/kernels/rearrange.h"

#include <algorithm>

#include "runtime/cuda/kernels/chunks.h"
#include "runtime/cuda/kernels/vector.h"
#include "runtime/shard_parts.h"

namespace windtunnel::WT_KERNELS {
namespace {

// ---- runs of bytes at regular distances

// Strides in bytes.
struct Strides {
  int64_t block, row;
};

// Copies `blocks` x `rows` runs of `pieces` pieces.
template <typename Piece>
struct CopyRunsKernel {
  static constexpr int kThreads = 256;
  int64_t blocks, rows, pieces;
  Strides from_strides, to_strides;
  const char* from;
  char* to;

  WT_DEVICE void operator()() const {
    const int64_t all = blocks * rows * pieces;
    for (int64_t i = FirstIndex<kThreads>(); i < all; i += IndexStride<kThreads>()) {
      const int64_t run = i / pieces, block = run / rows, row = run % rows;
      const int64_t within = (i - run * pieces) * static_cast<int64_t>(sizeof(Piece));
      *reinterpret_cast<Piece*>(to + block * to_strides.block + row * to_strides.row + within) =
          *reinterpret_cast<const Piece*>(from + block * from_strides.block + row * from_strides.row +
                                          within);
    }
  }
};

struct alignas(16) Bytes16 {
  uint32_t at[4];
};

template <typename Piece>
void LaunchCopyRuns(Queue& queue, int64_t blocks, int64_t rows, int64_t bytes, const char* from,
                    Strides from_strides, char* to, Strides to_strides) {
  using Kernel = CopyRunsKernel<Piece>;
  const int64_t pieces = bytes / static_cast<int64_t>(sizeof(Piece));
  queue.Launch(Kernel{blocks, rows, pieces, from_strides, to_strides, from, to},
               {queue.BlocksFor(blocks * rows * pieces, 2 * Kernel::kThreads)});
}

// Copies in the largest pieces that divide all sizes, strides and addresses.
void CopyRuns(Queue& queue, int64_t blocks, int64_t rows, int64_t bytes, const char* from,
              Strides from_strides, char* to, Strides to_strides) {
  const int64_t all = bytes | from_strides.block | from_strides.row | to_strides.block | to_strides.row |
                      static_cast<int64_t>(reinterpret_cast<uintptr_t>(from)) |
                      static_cast<int64_t>(reinterpret_cast<uintptr_t>(to));
  if (all % 16 == 0) {
    LaunchCopyRuns<Bytes16>(queue, blocks, rows, bytes, from, from_strides, to, to_strides);
  } else if (all % 4 == 0) {
    LaunchCopyRuns<uint32_t>(queue, blocks, rows, bytes, from, from_strides, to, to_strides);
  } else {
    LaunchCopyRuns<uint16_t>(queue, blocks, rows, bytes, from, from_strides, to, to_strides);
  }
}

}  // namespace

void Run(Queue& queue, const CopyColumns& op, const Operands& operands) {
  const int64_t size = SizeOf(op.dtype).count();
  CopyRuns(queue, 1, op.rows, op.columns * size,
           operands.In<char>(0, op.rows * op.from_stride) + op.from_first * size, {0, op.from_stride * size},
           operands.Out<char>(0, op.rows * op.to_stride) + op.to_first * size, {0, op.to_stride * size});
}

void Run(Queue& queue, const SplitColumns& op, const Operands& operands) {
  const int64_t size = SizeOf(op.dtype).count();
  int64_t all = 0;
  for (int64_t columns : op.columns) all += columns;
  const char* in = operands.In<char>(0, op.rows * all);
  char* out = operands.Out<char>(0, op.rows * all);
  const int64_t part = all / op.ranks;
  int64_t first = 0;
  for (int64_t columns : op.columns) {
    const int64_t own = columns / op.ranks * size;  // bytes of one rank's part in a row
    const Strides joined = {own, all * size}, split = {op.rows * part * size, part * size};
    const int64_t joined_first = first * size, split_first = first / op.ranks * size;
    if (op.join) {
      CopyRuns(queue, op.ranks, op.rows, own, in + split_first, split, out + joined_first, joined);
    } else {
      CopyRuns(queue, op.ranks, op.rows, own, in + joined_first, joined, out + split_first, split);
    }
    first += columns;
  }
}

namespace {

// The first chunks of all ranks, which ascend, and their second chunks, which descend. `chunk` counts bytes.
void PutChunksInOrder(Queue& queue, const SwapBlocks& op, int64_t chunk, const char* in, char* out) {
  const bool from_zigzag = op.chunks == SwapBlocks::Chunks::kFromZigzag;
  const int64_t ranks = from_zigzag ? op.outer : op.inner, sequences = from_zigzag ? op.inner : op.outer;
  const Strides of_ranks = {sequences * 2 * chunk, 2 * chunk};
  const int64_t last = (2 * ranks - 1) * chunk;
  const Strides ascending = {chunk, 2 * ranks * chunk}, descending = {-chunk, 2 * ranks * chunk};
  if (from_zigzag) {
    CopyRuns(queue, ranks, sequences, chunk, in, of_ranks, out, ascending);
    CopyRuns(queue, ranks, sequences, chunk, in + chunk, of_ranks, out + last, descending);
  } else {
    CopyRuns(queue, ranks, sequences, chunk, in, ascending, out, of_ranks);
    CopyRuns(queue, ranks, sequences, chunk, in + last, descending, out + chunk, of_ranks);
  }
}

}  // namespace

void Run(Queue& queue, const SwapBlocks& op, const Operands& operands) {
  const int64_t bytes = op.length * SizeOf(op.dtype).count(), elements = op.outer * op.inner * op.length;
  if (op.chunks != SwapBlocks::Chunks::kStay)
    return PutChunksInOrder(queue, op, bytes / 2, operands.In<char>(0, elements),
                            operands.Out<char>(0, elements));
  CopyRuns(queue, op.outer, op.inner, bytes, operands.In<char>(0, elements), {op.inner * bytes, bytes},
           operands.Out<char>(0, elements), {bytes, op.outer * bytes});
}

// ---- many tensors

// out = in * scale, followed by zeros.
template <typename From, typename To>
struct CopyTensorsKernel {
  static constexpr int kThreads = 256, kMost = 96, kWidth = kCommonVector<From, To>;
  ChunkTable<kMost> table = {};  // counts elements and zeros together
  float scale = 1.0f;
  const From* in[kMost] = {};
  To* out[kMost] = {};
  int64_t copied[kMost] = {};

  WT_DEVICE void operator()() const {
    table.ForEachOfBlock([&](int tensor, int64_t begin, int64_t end) {
      const From* const from = in[tensor] + begin;
      To* const to = out[tensor] + begin;
      const int64_t n = (copied[tensor] < end ? copied[tensor] : end) - begin;
      const bool aligned = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0;
      if (n > 0) {
        ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
          constexpr int kPiece = decltype(width)::value;
          Pack<float, kPiece> x = Load<kPiece>(from + i);
          WT_UNROLL
          for (int j = 0; j < kPiece; ++j) x.at[j] *= scale;
          Store(to + i, x);
        });
      }
      for (int64_t i = (n > 0 ? n : 0) + Thread(); i < end - begin; i += kThreads) to[i] = Rounded<To>(0.0f);
    });
  }
};

// Collects copies and launches them whenever the operands of one launch are full.
template <typename From, typename To>
class TensorCopies {
 public:
  using Kernel = CopyTensorsKernel<From, To>;

  TensorCopies(Queue& queue, double scale) : queue_(queue) { kernel_.scale = static_cast<float>(scale); }
  void Add(const From* in, To* out, int64_t elements, int64_t zeros) {
    if (elements + zeros <= 0) return;
    const int i = kernel_.table.tensors;
    kernel_.in[i] = in;
    kernel_.out[i] = out;
    kernel_.copied[i] = elements;
    kernel_.table.Add(elements + zeros);
    if (kernel_.table.Full()) Finish();
  }
  void Finish() {
    if (kernel_.table.tensors == 0) return;
    queue_.Launch(kernel_, {queue_.BlocksFor(kernel_.table.chunks(), 1)});
    kernel_.table.tensors = 0;
  }

 private:
  Queue& queue_;
  Kernel kernel_;
};

void Run(Queue& queue, const CopyTensors& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    TensorCopies<T, T> copies(queue, 1.0);
    for (size_t i = 0; i < operands.reads.size(); ++i) {
      const int64_t elements = operands.reads[i].elements;
      copies.Add(operands.In<T>(i, elements), operands.Out<T>(i, elements), elements, 0);
    }
    copies.Finish();
  });
}

void Run(Queue& queue, const PackShards& op, const Operands& operands) {
  WithElement(op.from, [&](auto from) {
    WithElement(op.to, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      To* flat = operands.Out<To>(0, FlatElements(op.ranks, op.shard_elements));
      TensorCopies<From, To> copies(queue, op.scale);
      ForEachPart(op.ranks, op.shard_elements, operands.reads, [&](const ShardPart& part) {
        const From* tensor = operands.In<From>(part.tensor, part.begin + part.elements);
        copies.Add(tensor + part.begin, flat + part.flat, part.elements, part.padding);
      });
      copies.Finish();
    });
  });
}

// Tensors of any types, which have room for the padding.
void UnpackBytes(Queue& queue, const UnpackShards& op, const Operands& operands) {
  const int64_t all = FlatElements(op.ranks, op.shard_elements), of_rank = all / op.ranks;
  const char* flat = operands.In<char>(0, all);
  for (size_t i = 0; i < op.shard_elements.size(); ++i) {
    const int64_t bytes = op.shard_elements[i];
    CopyRuns(queue, 1, op.ranks, bytes, flat, {0, of_rank}, operands.Out<char>(i, 0), {0, bytes});
    flat += bytes;
  }
}

void Run(Queue& queue, const UnpackShards& op, const Operands& operands) {
  if (op.dtype == DType::kUInt8) return UnpackBytes(queue, op, operands);
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* flat = operands.In<T>(0, FlatElements(op.ranks, op.shard_elements));
    TensorCopies<T, T> copies(queue, 1.0);
    ForEachPart(op.ranks, op.shard_elements, operands.writes, [&](const ShardPart& part) {
      T* tensor = operands.Out<T>(part.tensor, part.begin + part.elements);
      copies.Add(flat + part.flat, tensor + part.begin, part.elements, 0);
    });
    copies.Finish();
  });
}

}  // namespace windtunnel::WT_KERNELS
