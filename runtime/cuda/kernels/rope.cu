#include "runtime/cuda/kernels/rope.h"

#include <cmath>
#include <numbers>

#include "runtime/cuda/kernels/token_place.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

// One block per token computes the sines and cosines once for all heads. Angles are reduced in double
// precision, since the largest are a hundred thousand radians.
template <typename T>
struct RopeKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t tokens, packed;
  int half, heads, head_dim;  // of queries and keys together
  float sign;       // -1 backward
  bool aligned;
  TokenPlace place;
  T* qkv;
  // By frequency: half turns per position.
  double half_turns[kMostRopeHeadDim / 2];

  WT_DEVICE void operator()() const {
    float* const cosines = SharedMemory<float>();  // [half], then the sines
    float* const sines = cosines + half;
    for (int64_t t = BlockX(); t < tokens; t += GridX()) {
      const double position = static_cast<double>(place.PositionOf(t));
      for (int i = Thread(); i < half; i += kThreads) {
        const double angle = position * half_turns[i];
        SineCosine(static_cast<float>(angle - 2.0 * std::rint(0.5 * angle)), sines[i], cosines[i]);
        sines[i] *= sign;
      }
      SyncThreads();
      ForEachPiece<kWidth>(static_cast<int64_t>(heads) * half, aligned, Thread(), kThreads,
                           [&](auto width, int64_t pair) { Rotate(width, t, pair, cosines, sines); });
      SyncThreads();
    }
  }

  // The pairs of a piece belong to one head, since `half` is a whole number of pieces.
  template <typename Piece>
  WT_DEVICE void Rotate(Piece, int64_t t, int64_t pair, const float* cosines, const float* sines) const {
    constexpr int kPiece = Piece::value;
    const int head = static_cast<int>(pair) / half, i = static_cast<int>(pair) % half;
    T* const first = qkv + t * packed + head * head_dim + i;
    T* const second = first + half;
    Pack<float, kPiece> a = Load<kPiece>(first), b = Load<kPiece>(second);
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) {
      const float x = a.at[j], y = b.at[j], c = cosines[i + j], s = sines[i + j];
      a.at[j] = x * c - y * s;
      b.at[j] = y * c + x * s;
    }
    Store(first, a);
    Store(second, b);
  }
};

}  // namespace

void Run(Queue& queue, const Rope& op, const KernelContext& context, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t packed = (op.heads + 2 * op.kv_heads) * op.head_dim, tokens = op.batch * op.seq;
    T* qkv = operands.Out<T>(0, tokens * packed);
    const int half = static_cast<int>(op.rotated_columns() / 2);
    const bool aligned = half % kVector<T> == 0 && op.head_dim % kVector<T> == 0 && Aligned(qkv);
    RopeKernel<T> kernel{tokens,
                         packed,
                         half,
                         static_cast<int>(op.heads + op.kv_heads),
                         static_cast<int>(op.head_dim),
                         op.backward ? -1.0f : 1.0f,
                         aligned,
                         TokenPlace(op.context, context.context.rank, op.seq),
                         qkv,
                         {}};
    for (int i = 0; i < half; ++i) {
      const double frequency = std::pow(op.theta, -2.0 * i / static_cast<double>(op.rotated_columns()));
      kernel.half_turns[i] = frequency / std::numbers::pi;
    }
    queue.Launch(kernel, {queue.BlocksFor(tokens, 1, 16)}, op.rotated_columns() * 4);
  });
}

}  // namespace windtunnel::WT_KERNELS
