#include "runtime/cuda/kernels/dropout.h"

#include "runtime/cuda/kernels/kept_elements.h"
#include "runtime/cuda/kernels/token_place.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

// Where a row's elements are among those of the site.
struct DropoutRows {
  TokenPlace place;
  DropoutPart part;
  int64_t first_sample, sample_apart;  // places in the step of this replica's samples

  DropoutRows(const Dropout& op, const KernelContext& context, const DropoutMask& mask)
      : place(op.context, context.context.rank, op.seq),
        part(op, context),
        first_sample(mask.SampleOf(part.batch, 0)),
        sample_apart(mask.SampleOf(part.batch, 1) - first_sample) {}

#if defined(WT_DEVICE)
  WT_DEVICE int64_t FirstOf(int64_t row) const {
    const int64_t token = part.first_row + row;
    return part.FirstOf(first_sample + token / place.tokens * sample_apart, place.PositionOf(token));
  }
#endif
};

// A block takes rows in turn.
template <typename T>
struct DropoutKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t columns;
  bool aligned;
  KeptElements elements;
  DropoutRows rows;
  const T* in;
  T* out;
  uint8_t* kept;

  WT_DEVICE void operator()() const {
    for (int64_t row = BlockX(); row < rows.part.rows; row += GridX()) {
      const int64_t first = rows.FirstOf(row), of_row = row * columns;
      ForEachPiece<kWidth>(columns, aligned, Thread(), kThreads,
                           [&](auto width, int64_t column) { Drop(width, first + column, of_row + column); });
    }
  }

  // Elements [i, i + kPiece) of the tensor, the first of which is element `index` of the site.
  template <typename Piece>
  WT_DEVICE void Drop(Piece, int64_t index, int64_t i) const {
    constexpr int kPiece = Piece::value;
    Pack<float, kPiece> x = Load<kPiece>(in + i);
    Pack<uint8_t, kPiece> keeps;
    WT_UNROLL
    for (int j = 0; j < kPiece; j += 2) {
      float factors[2];
      if constexpr (kPiece == 1) factors[0] = elements.FactorAt(index);
      else elements.FactorsAt(index + j, factors[0], factors[1]);
      WT_UNROLL
      for (int k = 0; k < 2 && j + k < kPiece; ++k) {
        keeps.at[j + k] = factors[k] != 0.0f;
        // A dropped element is zero whatever it was, also if that was infinite.
        x.at[j + k] = keeps.at[j + k] != 0 ? x.at[j + k] * factors[k] : 0.0f;
      }
    }
    Store(out + i, x);
    *reinterpret_cast<Pack<uint8_t, kPiece>*>(kept + i) = keeps;
  }
};

template <typename T>
struct DropoutGradientKernel {
  static constexpr int kThreads = 256, kWidth = kVector<T>;
  int64_t n;
  bool aligned;
  float scale;
  const uint8_t* kept;
  const T* dy;
  T* dx;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           Pack<float, kPiece> x = Load<kPiece>(dy + i);
                           const auto keeps = *reinterpret_cast<const Pack<uint8_t, kPiece>*>(kept + i);
                           WT_UNROLL
                           for (int j = 0; j < kPiece; ++j)
                             x.at[j] = keeps.at[j] != 0 ? x.at[j] * scale : 0.0f;
                           Store(dx + i, x);
                         });
  }
};

}  // namespace

void Run(Queue& queue, const Dropout& op, const KernelContext& context, const Operands& operands) {
  const DropoutMask mask(op.site, context);
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* in = operands.In<T>(0, op.elements);
    T* out = operands.Out<T>(0, op.elements);
    if (op.backward) {
      using Kernel = DropoutGradientKernel<T>;
      const auto* kept = operands.In<uint8_t>(1, op.elements);
      queue.Launch(Kernel{op.elements, Aligned(in, out, kept), mask.scale(), kept, in, out},
                   {queue.BlocksFor(op.elements, Kernel::kWidth * Kernel::kThreads)});
      return;
    }
    using Kernel = DropoutKernel<T>;
    auto* kept = operands.Out<uint8_t>(1, op.elements);
    const DropoutRows rows(op, context, mask);
    const bool aligned = op.columns % Kernel::kWidth == 0 && Aligned(in, out, kept);
    queue.Launch(Kernel{op.columns, aligned, KeptElements(mask), rows, in, out, kept},
                 {queue.BlocksFor(rows.part.rows, 1)});
  });
}

}  // namespace windtunnel::WT_KERNELS
