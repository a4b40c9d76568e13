#include "runtime/cuda/kernels/muon.h"

#include <cmath>

#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"
#include "runtime/muon_constants.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kFloats = kVector<float>;

// M: the type of the momentum.
template <typename M>
struct DirectKernel {
  static constexpr int kThreads = 512;
  int64_t n;
  bool aligned;
  MuonConstants c;
  const float *gradient, *found_inf;  // found_inf: null if not guarded
  M* momentum;
  BFloat16* x;
  double* sums;  // by block, of the squares of x

  WT_DEVICE void operator()() const {
    const bool skips = found_inf != nullptr && *found_inf != 0.0f;
    double own = 0.0;
    ForEachPiece<kFloats>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                          [&](auto width, int64_t i) {
                            constexpr int kPiece = decltype(width)::value;
                            Pack<float, kPiece> direction{};
                            if (!skips) {
                              const Pack<float, kPiece> g = Load<kPiece>(gradient + i);
                              Pack<float, kPiece> m = Load<kPiece>(momentum + i);
                              WT_UNROLL
                              for (int j = 0; j < kPiece; ++j) {
                                m.at[j] = c.momentum * m.at[j] + c.one_minus_momentum * g.at[j];
                                direction.at[j] = c.one_minus_momentum * g.at[j] + c.momentum * m.at[j];
                                const double rounded = Float(Rounded<BFloat16>(direction.at[j]));
                                own += rounded * rounded;
                              }
                              Store(momentum + i, m);
                            }
                            Store(x + i, direction);
                          });
    own = ReduceBlock<kThreads>(own, 0.0, SharedMemory<double>(), Sum());
    if (Thread() == 0) sums[BlockX()] = own;
  }
};

struct DivideKernel {
  static constexpr int kThreads = 256, kWidth = kVector<BFloat16>;
  int64_t n;
  bool aligned;
  const float* norm;
  BFloat16* x;

  WT_DEVICE void operator()() const {
    const float divisor = fmaxf(*norm, kMuonEpsilon);
    ForEachPiece<kWidth>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           Pack<float, kPiece> value = Load<kPiece>(x + i);
                           WT_UNROLL
                           for (int j = 0; j < kPiece; ++j) value.at[j] /= divisor;
                           Store(x + i, value);
                         });
  }
};

struct MuonUpdateKernel {
  static constexpr int kThreads = 256;
  int64_t n;
  bool aligned;
  MuonRates rates;
  const BFloat16* x;
  const float* found_inf;  // null: not guarded
  float* parameter;

  WT_DEVICE void operator()() const {
    if (found_inf != nullptr && *found_inf != 0.0f) return;
    ForEachPiece<kFloats>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                          [&](auto width, int64_t i) {
                            constexpr int kPiece = decltype(width)::value;
                            const Pack<float, kPiece> direction = Load<kPiece>(x + i);
                            Pack<float, kPiece> p = Load<kPiece>(parameter + i);
                            WT_UNROLL
                            for (int j = 0; j < kPiece; ++j)
                              p.at[j] = rates.kept * p.at[j] - rates.rate * direction.at[j];
                            Store(parameter + i, p);
                          });
  }
};

int64_t DirectBlocks(int64_t n, const Traits& traits) {
  return Queue::BlocksOn(traits, n, DirectKernel<float>::kThreads * kFloats, 8);
}

template <typename M>
void Direct(Queue& queue, const MuonDirection& op, const Operands& operands) {
  const int64_t n = op.elements, blocks = DirectBlocks(n, queue.traits());
  double* const sums = queue.Scratch<double>(blocks + 1);
  DirectKernel<M> kernel{.n = n,
                         .aligned = false,
                         .c = MuonConstantsOf(op.spec),
                         .gradient = operands.In(0, n),
                         .found_inf = op.guarded ? operands.In(1, 1) : nullptr,
                         .momentum = operands.Out<M>(0, n),
                         .x = operands.Out<BFloat16>(1, n),
                         .sums = sums};
  kernel.aligned = Aligned(kernel.gradient, kernel.momentum, kernel.x);
  queue.Launch(kernel, {blocks}, DirectKernel<M>::kThreads / kWarp * sizeof(double));
  auto* const norm = reinterpret_cast<float*>(sums + blocks);
  LaunchSumNumbers(queue, blocks, 1.0, /*root=*/true, sums, norm);
  queue.Launch(DivideKernel{n, Aligned(kernel.x), norm, kernel.x},
               {queue.BlocksFor(n, DivideKernel::kThreads * DivideKernel::kWidth)});
}

}  // namespace

int64_t ScratchBytes(const MuonDirection& op, const Traits& traits) {
  return (DirectBlocks(op.elements, traits) + 1) * static_cast<int64_t>(sizeof(double));
}

void Run(Queue& queue, const MuonDirection& op, const Operands& operands) {
  if (MomentsOf(op.spec) == DType::kBFloat16) Direct<BFloat16>(queue, op, operands);
  else Direct<float>(queue, op, operands);
}

void Run(Queue& queue, const MuonUpdate& op, const KernelContext& context, const Operands& operands) {
  const int64_t n = op.elements;
  MuonUpdateKernel kernel{.n = n,
                          .aligned = false,
                          .rates = MuonRatesOf(op, context.lr_factor),
                          .x = operands.In<BFloat16>(0, n),
                          .found_inf = op.guarded ? operands.In(1, 1) : nullptr,
                          .parameter = operands.Out(0, n)};
  kernel.aligned = Aligned(kernel.x, kernel.parameter);
  queue.Launch(kernel, {queue.BlocksFor(n, MuonUpdateKernel::kThreads * kFloats)});
}

}  // namespace windtunnel::WT_KERNELS
