#include "runtime/cuda/kernels/embedding.h"

#include "runtime/cuda/kernels/fault.h"
#include "runtime/cuda/kernels/token_place.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

// The rows of the vocabulary in a rank's table.
struct VocabRows {
  int64_t first, count, all;
  bool ends;

  template <typename Embedding>
  VocabRows(const Embedding& op, const TensorPosition& tensor)
      : first(op.vocab_parallel ? tensor.rank * op.vocab : 0),
        count(op.vocab),
        all(op.vocab_parallel ? tensor.ranks * op.vocab : op.vocab),
        ends(op.ends) {}
  WT_DEVICE bool Know(int64_t id) const { return (id >= 0 && id < all) || (ends && id == kNoToken); }
  WT_DEVICE bool Hold(int64_t id) const { return id >= first && id < first + count; }
};

// One block per token.
template <typename T>
struct EmbeddingForwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t tokens, n;
  bool aligned;
  VocabRows rows;
  TokenPlace place;
  const int32_t* ids;
  const T *table, *positions;  // positions may be null
  T* x;
  Fault* fault;

  WT_DEVICE void operator()() const {
    for (int64_t t = BlockX(); t < tokens; t += GridX()) {
      const int64_t id = ids[t];
      if (!rows.Know(id) && Thread() == 0)
        Report(fault, Fault::kTokenId, static_cast<int32_t>(id), t, rows.all);
      Gather(rows.Hold(id) ? table + (id - rows.first) * n : nullptr,
             positions == nullptr ? nullptr : positions + place.PositionOf(t) * n, x + t * n);
    }
  }

  WT_DEVICE void Gather(const T* row, const T* position, T* out) const {
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      Pack<float, kPiece> v{};
      if (row != nullptr) {
        v = Load<kPiece>(row + i);
        if (position != nullptr) {
          const Pack<float, kPiece> p = Load<kPiece>(position + i);
          WT_UNROLL
          for (int j = 0; j < kPiece; ++j) v.at[j] += p.at[j];
        }
      }
      Store(out + i, v);
    });
  }
};

// Gradients of the rows that tokens use. The block of the first token with an id finds the others and adds
// their gradients in order. Each row is thus written once, by one block, and runs are bitwise reproducible.
// Comparing all ids with each other takes tokens^2 / 2 comparisons of cached values, by an estimate 0.2 ms
// for 32,768 tokens on 100 multiprocessors; sorting would take several launches.
template <typename T>
struct EmbeddingBackwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>, kWarps = kThreads / kWarp;
  int64_t tokens, n;
  bool aligned, accumulate;
  VocabRows rows;
  const int32_t* ids;
  const T* dx;
  T* dtable;
  Fault* fault;

  // Columns of a block: one piece per thread.
  WT_DEVICE int64_t ColumnsOfBlock() const { return aligned ? kThreads * kWidth : kThreads; }

  WT_DEVICE void operator()() const {
    for (int64_t t = BlockX(); t < tokens; t += GridX()) {
      const int64_t id = ids[t];
      if (!rows.Know(id) && Thread() == 0)
        Report(fault, Fault::kTokenId, static_cast<int32_t>(id), t, rows.all);
      if (!rows.Hold(id) || UsedBefore(t)) continue;
      if (aligned) {
        SumUses<kWidth>(t);
      } else {
        SumUses<1>(t);
      }
    }
  }

  // Returns the same in all threads of the block.
  WT_DEVICE bool UsedBefore(int64_t t) const {
    const int32_t id = ids[t];
    for (int64_t first = 0; first < t; first += kThreads) {
      const int64_t other = first + Thread();
      if (MatchesOfBlock(other < t && ids[other] == id).any) return true;
    }
    return false;
  }

  struct Matches {
    uint32_t of_warp[kWarps];
    bool any;
  };
  WT_DEVICE Matches MatchesOfBlock(bool matches) const {
    uint32_t* const place = SharedMemory<uint32_t>();  // [kWarps]
    const uint32_t bits = Ballot(matches);
    if (Lane() == 0) place[Thread() / kWarp] = bits;
    SyncThreads();
    Matches all{};
    WT_UNROLL
    for (int warp = 0; warp < kWarps; ++warp) {
      all.of_warp[warp] = place[warp];
      all.any |= all.of_warp[warp] != 0;
    }
    SyncThreads();
    return all;
  }

  // Adds the gradients of a warp's tokens that `bits` names, in their order. Several loads are under way at
  // once: an id that every tenth token has would otherwise wait for memory thousands of times in a row.
  template <int kPiece>
  WT_DEVICE void AddUses(const T* of_warp, uint32_t bits, Pack<float, kPiece>& sum) const {
    constexpr int kAtOnce = 4;
    while (bits != 0) {
      Pack<float, kPiece> d[kAtOnce];
      const uint32_t before = bits;
      WT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (bits == 0) continue;
        d[i] = Load<kPiece>(of_warp + CountBits((bits & -bits) - 1) * n);
        bits &= bits - 1;
      }
      uint32_t added = before;
      WT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (added == 0) continue;
        added &= added - 1;
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) sum.at[j] += d[i].at[j];
      }
    }
  }

  template <int kPiece>
  WT_DEVICE void SumUses(int64_t t) const {
    const int32_t id = ids[t];
    const int64_t column = BlockY() * ColumnsOfBlock() + Thread() * kPiece;
    const bool mine = column < n;
    T* const out = dtable + (id - rows.first) * n + column;
    Pack<float, kPiece> sum{};
    if (mine && accumulate) sum = Load<kPiece>(out);
    for (int64_t first = t; first < tokens; first += kThreads) {
      const int64_t other = first + Thread();
      const Matches matches = MatchesOfBlock(other < tokens && ids[other] == id);
      if (!matches.any || !mine) continue;
      for (int warp = 0; warp < kWarps; ++warp) {
        AddUses<kPiece>(dx + (first + warp * kWarp) * n + column, matches.of_warp[warp], sum);
      }
    }
    if (mine) Store(out, sum);
  }
};

// One block per position: the sum over sequences.
template <typename T>
struct PositionBackwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t tokens, seq, n;
  bool aligned, accumulate;
  TokenPlace place;
  const T* dx;
  T* dpositions;

  WT_DEVICE void operator()() const {
    for (int64_t position = BlockX(); position < seq && position < tokens; position += GridX()) {
      T* const out = dpositions + place.PositionOf(position) * n;
      ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
        constexpr int kPiece = decltype(width)::value;
        Pack<float, kPiece> sum{};
        if (accumulate) sum = Load<kPiece>(out + i);
        for (int64_t t = position; t < tokens; t += seq) {
          const Pack<float, kPiece> d = Load<kPiece>(dx + t * n + i);
          WT_UNROLL
          for (int j = 0; j < kPiece; ++j) sum.at[j] += d.at[j];
        }
        Store(out + i, sum);
      });
    }
  }
};

}  // namespace

void Run(Queue& queue, const EmbeddingForward& op, const KernelContext& context, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = EmbeddingForwardKernel<T>;
    const int32_t* ids = operands.In<int32_t>(0, op.tokens);
    const T* table = operands.In<T>(1, op.vocab * op.hidden);
    const T* positions =
        op.learned_positions ? operands.In<T>(2, op.seq * op.context.ranks * op.hidden) : nullptr;
    T* x = operands.Out<T>(0, op.tokens * op.hidden);
    const bool aligned = op.hidden % Kernel::kWidth == 0 && Aligned(table, positions, x);
    queue.Launch(
        Kernel{op.tokens, op.hidden, aligned, VocabRows(op, context.tensor),
               TokenPlace(op.context, context.context.rank, op.seq), ids, table, positions, x, queue.fault()},
        {queue.BlocksFor(op.tokens, 1, 16)});
  });
}

void Run(Queue& queue, const EmbeddingBackward& op, const KernelContext& context, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = EmbeddingBackwardKernel<T>;
    const int32_t* ids = operands.In<int32_t>(0, op.tokens);
    const T* dx = operands.In<T>(1, op.tokens * op.hidden);
    T* dtable = operands.Out<T>(0, op.vocab * op.hidden);
    constexpr int64_t kSize = sizeof(T);
    if (!op.accumulate_table) queue.Clear(dtable, op.vocab * op.hidden * kSize);
    const bool aligned = op.hidden % Kernel::kWidth == 0 && Aligned(dx, dtable);
    const int64_t across = CeilDivide(op.hidden, Kernel::kThreads * (aligned ? Kernel::kWidth : 1));
    queue.Launch(Kernel{op.tokens, op.hidden, aligned, op.accumulate_table, VocabRows(op, context.tensor),
                        ids, dx, dtable, queue.fault()},
                 {queue.BlocksFor(op.tokens, 1, 16), across}, Kernel::kWarps * 4);
    if (!op.learned_positions) return;

    using Positions = PositionBackwardKernel<T>;
    const int64_t all = op.seq * op.context.ranks * op.hidden;
    T* dpositions = operands.Out<T>(1, all);
    // Positions of other context-parallel ranks' tokens get no gradient.
    if (op.context.ranks > 1 && !op.accumulate_positions) queue.Clear(dpositions, all * kSize);
    queue.Launch(
        Positions{op.tokens, op.seq, op.hidden, op.hidden % Kernel::kWidth == 0 && Aligned(dx, dpositions),
                  op.accumulate_positions, TokenPlace(op.context, context.context.rank, op.seq), dx,
                  dpositions},
        {queue.BlocksFor(op.seq, 1, 16)});
  });
}

}  // namespace windtunnel::WT_KERNELS
