#include "runtime/cuda/kernels/optimizer.h"

#include <cmath>
#include <cstring>

#include "runtime/adam_constants.h"
#include "runtime/cuda/kernels/chunks.h"
#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"
#include "runtime/dynamic8.h"
#include "runtime/loss_scale.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kFloats = kVector<float>;

// Whether a piece may be loaded at once through each of the pointers; null pointers may.
template <typename... Pointers>
WT_DEVICE bool AlignedHere(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...)) % 16 == 0;
}

// The number of blocks of a launch over the table's chunks.
template <int kMost>
int64_t ChunkBlocks(const Queue& queue, const ChunkTable<kMost>& table) {
  return queue.BlocksFor(table.chunks(), 1);
}

// Each block's sum of squares, weighted by tensor.
struct SquaresKernel {
  static constexpr int kThreads = 512, kMost = 96;
  ChunkTable<kMost> table = {};
  const float* x[kMost] = {};
  double weight[kMost] = {};
  double* sums = nullptr;  // by block

  WT_DEVICE void operator()() const {
    double own = 0.0;
    table.ForEachOfBlock([&](int tensor, int64_t begin, int64_t end) {
      const float* const from = x[tensor] + begin;
      double of_tensor = 0.0;
      ForEachPiece<kFloats>(end - begin, AlignedHere(from), Thread(), kThreads, [&](auto width, int64_t i) {
        constexpr int kPiece = decltype(width)::value;
        const Pack<float, kPiece> v = Load<kPiece>(from + i);
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) of_tensor += static_cast<double>(v.at[j]) * v.at[j];
      });
      own += of_tensor * weight[tensor];
    });
    own = ReduceBlock<kThreads>(own, 0.0, SharedMemory<double>(), Sum());
    if (Thread() == 0) sums[BlockX()] = own;
  }
};

struct SquareRootKernel {
  static constexpr int kThreads = kWarp;
  float* x;
  WT_DEVICE void operator()() const {
    if (Thread() == 0) *x = std::sqrt(*x);
  }
};

// Calls change(element) for every element of the block's chunks.
template <int kThreads, int kMost, typename Change>
WT_DEVICE void ChangeEach(const ChunkTable<kMost>& table, float* const (&x)[kMost], Change change) {
  table.ForEachOfBlock([&](int tensor, int64_t begin, int64_t end) {
    float* const at = x[tensor] + begin;
    ForEachPiece<kFloats>(end - begin, AlignedHere(at), Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      Pack<float, kPiece> v = Load<kPiece>(at + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) change(v.at[j]);
      Store(at + i, v);
    });
  });
}

struct ClipKernel {
  static constexpr int kThreads = 512, kMost = 96;
  ChunkTable<kMost> table = {};
  double max_norm = 0.0;
  const float* norm = nullptr;
  float* x[kMost] = {};

  WT_DEVICE void operator()() const {
    const double factor = max_norm / (static_cast<double>(*norm) + 1e-6);
    if (factor >= 1.0) return;  // a NaN norm passes this test and spreads
    const float scale = static_cast<float>(factor);
    ChangeEach<kThreads>(table, x, [&](float& value) { value *= scale; });
  }
};

struct ClearKernel {
  static constexpr int kThreads = kWarp;
  float* x;
  WT_DEVICE void operator()() const {
    if (Thread() == 0) *x = 0.0f;
  }
};

// found_inf was cleared before; all threads that find an infinity or NaN write the same value.
struct UnscaleKernel {
  static constexpr int kThreads = 512, kMost = 96;
  ChunkTable<kMost> table = {};
  const float* scale = nullptr;
  float* found_inf = nullptr;
  float* x[kMost] = {};

  WT_DEVICE void operator()() const {
    const float factor = static_cast<float>(1.0 / static_cast<double>(*scale));
    bool is_finite = true;
    ChangeEach<kThreads>(table, x, [&](float& value) {
      uint32_t bits = 0;
      memcpy(&bits, &value, sizeof(bits));
      is_finite = is_finite && (bits & 0x7f800000u) != 0x7f800000u;
      value *= factor;
    });
    if (!is_finite) *found_inf = 1.0f;
  }
};

struct UpdateScaleKernel {
  static constexpr int kThreads = kWarp;
  UpdateLossScale op;
  const float* found_inf;
  float* numbers;
  WT_DEVICE void operator()() const {
    if (Thread() == 0) UpdateScale(op, *found_inf != 0.0f, numbers);
  }
};

// The values of one element that an update rule reads and writes.
struct Element {
  float gradient, parameter, m, v;
};

struct SgdRule {
  static constexpr int kStates = 0;
  float lr, weight_decay;
  WT_DEVICE void Skip(float) {}
  WT_DEVICE void operator()(Element& e) const {
    e.parameter -= lr * (e.gradient + weight_decay * e.parameter);
  }
};

// momentum = momentum * mu + g. It starts at zero, which gives torch's first step (momentum = g).
struct MomentumRule {
  static constexpr int kStates = 1;
  float lr, weight_decay, momentum;
  WT_DEVICE void Skip(float) {}
  WT_DEVICE void operator()(Element& e) const {
    e.m = momentum * e.m + (e.gradient + weight_decay * e.parameter);
    e.parameter -= lr * e.m;
  }
};

struct AdamRule {
  static constexpr int kStates = 2;
  AdamConstants c;  // runtime/adam_constants.h has the formulas
  double lr, beta1, beta2, t;

  // Corrects the bias corrections if `steps` of the earlier steps were skipped.
  WT_DEVICE void Skip(float steps) {
    const double done = t - static_cast<double>(steps);
    c.step_size = static_cast<float>(lr / (1.0 - std::pow(beta1, done)));
    c.v_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, done)));
  }

  WT_DEVICE void operator()(Element& e) const {
    const float g = e.gradient + c.coupled_decay * e.parameter;
    e.m = c.beta1 * e.m + c.one_minus_beta1 * g;
    e.v = c.beta2 * e.v + c.one_minus_beta2 * g * g;
    e.parameter =
        e.parameter * c.decoupled_decay - c.step_size * e.m / (std::sqrt(e.v) * c.v_correction + c.eps);
  }
};

// Of guarded updates (OptimizerUpdate::guarded).
struct Guard {
  const float* found_inf = nullptr;  // null: not guarded
  const float* loss_scale = nullptr;

  // Whether this step is skipped. If not, the rule learns of those that were.
  template <typename Rule>
  WT_DEVICE bool Skips(Rule& rule) const {
    if (found_inf == nullptr) return false;
    if (*found_inf != 0.0f) return true;
    if (loss_scale[2] != 0.0f) rule.Skip(loss_scale[2]);
    return false;
  }
};

// M: the type of moments.
template <typename Rule, typename M>
struct UpdateKernel {
  static constexpr int kThreads = 512, kMost = 72;
  ChunkTable<kMost> table = {};
  Rule rule;
  const float* gradient[kMost] = {};
  float* parameter[kMost] = {};
  M* m[kMost] = {};  // if the rule has them
  M* v[kMost] = {};
  Guard guard = {};

  WT_DEVICE void operator()() const {
    Rule own = rule;
    if (guard.Skips(own)) return;
    table.ForEachOfBlock([&](int tensor, int64_t begin, int64_t end) {
      const float* const of_gradient = gradient[tensor] + begin;
      float* const of_parameter = parameter[tensor] + begin;
      M* const of_m = Rule::kStates > 0 ? m[tensor] + begin : nullptr;
      M* const of_v = Rule::kStates > 1 ? v[tensor] + begin : nullptr;
      ForEachPiece<kFloats>(end - begin, AlignedHere(of_gradient, of_parameter, of_m, of_v), Thread(),
                            kThreads, [&](auto width, int64_t i) {
                              constexpr int kPiece = decltype(width)::value;
                              const Pack<float, kPiece> g = Load<kPiece>(of_gradient + i);
                              Pack<float, kPiece> p = Load<kPiece>(of_parameter + i), first{}, second{};
                              if constexpr (Rule::kStates > 0) first = Load<kPiece>(of_m + i);
                              if constexpr (Rule::kStates > 1) second = Load<kPiece>(of_v + i);
                              WT_UNROLL
                              for (int j = 0; j < kPiece; ++j) {
                                Element e{g.at[j], p.at[j], first.at[j], second.at[j]};
                                own(e);
                                p.at[j] = e.parameter;
                                first.at[j] = e.m;
                                second.at[j] = e.v;
                              }
                              Store(of_parameter + i, p);
                              if constexpr (Rule::kStates > 0) Store(of_m + i, first);
                              if constexpr (Rule::kStates > 1) Store(of_v + i, second);
                            });
    });
  }
};

// Adam with moments in 8 bits (runtime/dynamic8.h). A thread block takes a chunk's blocks of moments in turn,
// each thread one element.
struct AdamIn8BitsKernel {
  static constexpr int kThreads = dynamic8::kBlock, kMost = 72;
  static_assert(kChunk % dynamic8::kBlock == 0);
  ChunkTable<kMost> table = {};
  AdamRule rule;
  const float* gradient[kMost] = {};
  float* parameter[kMost] = {};
  uint8_t* m[kMost] = {};
  uint8_t* v[kMost] = {};
  Guard guard = {};

  // Writes a block's moments, of which this thread has `x` if it `has_one`.
  template <bool kSigned>
  static WT_DEVICE void Write(float x, bool has_one, uint8_t* element) {
    const uint32_t bits = has_one ? dynamic8::MagnitudeBits(x) : 0;
    const float scale =
        dynamic8::FromBits(ReduceBlock<kThreads>(bits, uint32_t{0}, SharedMemory<uint32_t>(), Maximum()));
    if (Thread() == 0) dynamic8::SetScale(element, scale);
    if (has_one) element[Thread()] = dynamic8::ByteOf<kSigned>(x, scale);
  }

  WT_DEVICE void operator()() const {
    AdamRule own = rule;
    if (guard.Skips(own)) return;
    table.ForEachOfBlock([&](int tensor, int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += dynamic8::kBlock) {
        const int64_t i = first + Thread(), place = first / dynamic8::kBlock * dynamic8::kBytes;
        uint8_t* const of_m = m[tensor] + place;
        uint8_t* const of_v = v[tensor] + place;
        const bool has_one = i < end;
        Element e{};
        if (has_one) {
          e = {gradient[tensor][i], parameter[tensor][i],
               dynamic8::ValueOf<true>(of_m[Thread()]) * dynamic8::ScaleOf(of_m),
               dynamic8::ValueOf<false>(of_v[Thread()]) * dynamic8::ScaleOf(of_v)};
          own(e);
          parameter[tensor][i] = e.parameter;
        }
        SyncThreads();  // the scales have been read
        Write<true>(e.m, has_one, of_m);
        Write<false>(e.v, has_one, of_v);
      }
    });
  }
};

// Launches `kernel` over all tensors, as many at a time as its operands hold. add(at, i) enters tensor i's
// pointers at index `at`; launch() is called when the table is full and after the last tensor.
template <typename Kernel, typename Add, typename Launch>
void ForEachTable(Kernel& kernel, std::span<const TensorRef> tensors, Add add, Launch launch) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].elements > 0) {
      add(kernel.table.tensors, i);
      kernel.table.Add(tensors[i].elements);
    }
    if ((kernel.table.Full() || i + 1 == tensors.size()) && kernel.table.tensors > 0) {
      launch();
      kernel.table.tensors = 0;
    }
  }
}

int64_t MostSquareBlocks(int64_t tensors, const Traits& traits) {
  return CeilDivide(tensors, SquaresKernel::kMost) * Queue::BlocksOn(traits, int64_t{1} << 40, 1, 8);
}

}  // namespace

int64_t ScratchBytes(const GradientNorm& op, const Traits& traits) {
  return MostSquareBlocks(op.tensors, traits) * 8;
}

void Run(Queue& queue, const GradientNorm& op, const Operands& operands) {
  double* sums =
      queue.Scratch<double>(MostSquareBlocks(static_cast<int64_t>(operands.reads.size()), queue.traits()));
  int64_t blocks = 0;
  SquaresKernel kernel;
  ForEachTable(
      kernel, operands.reads,
      [&](int at, size_t i) {
        kernel.x[at] = operands.reads[i].f32();
        kernel.weight[at] = op.replicas.empty() ? 1.0 : 1.0 / op.replicas[i];
      },
      [&] {
        const int64_t of_launch = ChunkBlocks(queue, kernel.table);
        kernel.sums = sums + blocks;
        queue.Launch(kernel, {of_launch}, SquaresKernel::kThreads / kWarp * 8);
        blocks += of_launch;
      });
  LaunchSumNumbers(queue, blocks, 1.0, !op.squared, sums, operands.Out(0, 1));
}

void Run(Queue& queue, const SquareRoot&, const Operands& operands) {
  queue.Launch(SquareRootKernel{operands.Out(0, 1)}, {});
}

void Run(Queue& queue, const ClipGradients& op, const Operands& operands) {
  ClipKernel kernel;
  kernel.max_norm = op.max_norm;
  kernel.norm = operands.In(0, 1);
  ForEachTable(
      kernel, operands.writes, [&](int at, size_t i) { kernel.x[at] = operands.writes[i].f32(); },
      [&] { queue.Launch(kernel, {ChunkBlocks(queue, kernel.table)}); });
}

void Run(Queue& queue, const UnscaleGradients&, const Operands& operands) {
  UnscaleKernel kernel;
  kernel.scale = operands.In(0, kLossScaleNumbers);
  kernel.found_inf = operands.Out(0, 1);
  queue.Launch(ClearKernel{kernel.found_inf}, {});
  const auto gradients = operands.writes.subspan(1);
  ForEachTable(
      kernel, gradients, [&](int at, size_t i) { kernel.x[at] = gradients[i].f32(); },
      [&] { queue.Launch(kernel, {ChunkBlocks(queue, kernel.table)}); });
}

void Run(Queue& queue, const UpdateLossScale& op, const Operands& operands) {
  queue.Launch(UpdateScaleKernel{op, operands.In(0, 1), operands.Out(0, kLossScaleNumbers)}, {});
}

template <typename M, typename Rule>
void Update(Queue& queue, const OptimizerUpdate& op, const Rule& rule, const Operands& operands) {
  const size_t tensors = operands.reads.size() - (op.guarded ? 2 : 0);
  UpdateKernel<Rule, M> kernel{.rule = rule};
  if (op.guarded) kernel.guard = {operands.In(tensors, 1), operands.In(tensors + 1, kLossScaleNumbers)};
  ForEachTable(
      kernel, operands.reads.first(tensors),
      [&](int at, size_t i) {
        const int64_t n = operands.reads[i].elements;
        kernel.gradient[at] = operands.reads[i].f32();
        kernel.parameter[at] = operands.Out(i, n);
        if (Rule::kStates > 0) kernel.m[at] = operands.Out<M>(tensors + i, n);
        if (Rule::kStates > 1) kernel.v[at] = operands.Out<M>(2 * tensors + i, n);
      },
      [&] { queue.Launch(kernel, {ChunkBlocks(queue, kernel.table)}); });
}

void UpdateIn8Bits(Queue& queue, const OptimizerUpdate& op, const AdamRule& rule, const Operands& operands) {
  const size_t tensors = operands.reads.size() - (op.guarded ? 2 : 0);
  AdamIn8BitsKernel kernel{.rule = rule};
  if (op.guarded) kernel.guard = {operands.In(tensors, 1), operands.In(tensors + 1, kLossScaleNumbers)};
  ForEachTable(
      kernel, operands.reads.first(tensors),
      [&](int at, size_t i) {
        const int64_t n = operands.reads[i].elements, blocks = ElementsFor(n, DType::kDynamic8);
        kernel.gradient[at] = operands.reads[i].f32();
        kernel.parameter[at] = operands.Out(i, n);
        kernel.m[at] = operands.Out<uint8_t>(tensors + i, blocks);
        kernel.v[at] = operands.Out<uint8_t>(2 * tensors + i, blocks);
      },
      [&] {
        queue.Launch(kernel, {ChunkBlocks(queue, kernel.table)}, AdamIn8BitsKernel::kThreads / kWarp * 4);
      });
}

void Run(Queue& queue, const OptimizerUpdate& op, const KernelContext& context, const Operands& operands) {
  OptimizerSpec spec = op.spec;
  spec.lr *= context.lr_factor;
  const float lr = static_cast<float>(spec.lr), decay = static_cast<float>(spec.weight_decay);
  const auto update = [&](const auto& rule) {
    if (MomentsOf(spec) == DType::kBFloat16) return Update<BFloat16>(queue, op, rule, operands);
    return Update<float>(queue, op, rule, operands);
  };
  if (spec.kind != OptimizerKind::kSgd) {
    const AdamRule rule{AdamConstantsOf(spec, context.step), spec.lr, spec.beta1, spec.beta2,
                        static_cast<double>(context.step + 1)};
    if (IsDynamic8(MomentsOf(spec))) return UpdateIn8Bits(queue, op, rule, operands);
    update(rule);
  } else if (spec.momentum != 0.0) {
    update(MomentumRule{lr, decay, static_cast<float>(spec.momentum)});
  } else {
    Update<float>(queue, op, SgdRule{lr, decay}, operands);
  }
}

}  // namespace windtunnel::WT_KERNELS
