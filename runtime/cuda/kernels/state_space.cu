#include "runtime/cuda/kernels/state_space.h"

#include <algorithm>

#include "runtime/cuda/kernels/causal_convolution.h"
#include "runtime/cuda/kernels/math.h"
#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/state_space_scan.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

// ---- steps and decays

// Tokens behind a sequence's end get zeros.
template <typename T>
struct StepsKernel {
  static constexpr int kThreads = 256;
  int batch, seq, heads;
  int64_t time, packed;
  const T *dt, *dt_bias, *a_log, *d_in;  // dt: its first column in `packed`
  float *step, *decay, *rate, *d;        // [heads, batch, time], [heads]

  WT_DEVICE void operator()() const {
    const int64_t all = batch * time * heads, first = FirstIndex<kThreads>();
    for (int64_t i = first; i < all; i += IndexStride<kThreads>()) {
      const int head = static_cast<int>(i % heads);
      const int64_t place = i / heads, sequence = place / time, t = place % time;
      float size = 0.0f, a = 0.0f;
      if (t < seq) {
        const float raw = Float(dt[(sequence * seq + t) * packed + head]) + Float(dt_bias[head]);
        size = raw > 20.0f ? raw : std::log1p(std::exp(raw));
        a = std::exp(size * RateOf(head));
      }
      step[head * batch * time + place] = size;
      decay[head * batch * time + place] = a;
    }
    for (int64_t head = first; head < heads; head += IndexStride<kThreads>()) {
      rate[head] = RateOf(head);
      d[head] = Float(d_in[head]);
    }
  }
  WT_DEVICE float RateOf(int64_t head) const { return -std::exp(Float(a_log[head])); }
};

// A block computes the gradients of a head's steps in one sequence. Each thread has a run of tokens.
template <typename T>
struct StepGradientsKernel {
  static constexpr int kThreads = 128;
  int seq, heads, batch;
  int64_t time, packed;
  const float *step, *rate, *of_token, *of_step;
  T* ddt;           // its first column in `packed`
  float* partials;  // [batch, 2, heads]: of dt_bias and of a_log

  WT_DEVICE void operator()() const {
    const int head = BlockX(), sequence = BlockY();
    const int run = (seq + kThreads - 1) / kThreads;
    const int begin = Thread() * run < seq ? Thread() * run : seq,
              end = begin + run < seq ? begin + run : seq;
    const int64_t of_head = (static_cast<int64_t>(head) * batch + sequence) * time;
    double* const place = SharedMemory<double>();  // [kThreads]
    double own = 0.0;
    for (int t = begin; t < end; ++t) own += of_token[of_head + t];
    place[Thread()] = own;
    SyncThreads();
    double of_decay = 0.0;  // dL/d(log a_t): the sum over this token and those behind it
    for (int thread = Thread() + 1; thread < kThreads; ++thread) of_decay += place[thread];
    const float of_head_rate = rate[head];
    double of_bias = 0.0, of_log = 0.0;
    for (int t = end; t-- > begin;) {
      const double size = step[of_head + t];
      of_decay += of_token[of_head + t];
      // softplus' derivative from its value: 1 - e^-d
      const double raw = (of_step[of_head + t] + of_decay * of_head_rate) * -std::expm1(-size);
      ddt[(static_cast<int64_t>(sequence) * seq + t) * packed + head] = Rounded<T>(static_cast<float>(raw));
      of_bias += raw;
      of_log += of_decay * size * of_head_rate;
    }
    SyncThreads();
    of_bias = ReduceBlock<kThreads>(of_bias, 0.0, place, Sum());
    of_log = ReduceBlock<kThreads>(of_log, 0.0, place, Sum());
    if (Thread() > 0) return;
    partials[sequence * 2 * heads + head] = static_cast<float>(of_bias);
    partials[(sequence * 2 + 1) * heads + head] = static_cast<float>(of_log);
  }
};

// ---- the gate and the norm

// Of a token and a group of n columns.
template <typename T>
struct GateNormForwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t rows, n, inner, packed;
  int groups;
  bool aligned;
  float epsilon;
  const T *z, *scanned, *gamma;  // z: rows are `packed` apart
  T* y;
  float* statistics;

  WT_DEVICE void operator()() const {
    for (int64_t row = BlockX(); row < rows; row += GridX()) Normalize(row);
  }

  WT_DEVICE void Normalize(int64_t row) const {
    const int64_t token = row / groups, column = row % groups * n;
    const T *gate = z + token * packed + column, *in = scanned + token * inner + column;
    T* const out = y + token * inner + column;
    float squares = 0.0f;
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Gated<kPiece>(gate + i, in + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) squares += v.at[j] * v.at[j];
    });
    squares = ReduceBlock<kThreads>(squares, 0.0f, SharedMemory<float>(), Sum());
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon);
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      Pack<float, kPiece> v = Gated<kPiece>(gate + i, in + i);
      const Pack<float, kPiece> g = Load<kPiece>(gamma + column + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) v.at[j] *= inverse * g.at[j];
      Store(out + i, v);
    });
    if (Thread() == 0) statistics[row] = inverse;
  }

  template <int kPiece>
  static WT_DEVICE Pack<float, kPiece> Gated(const T* gate, const T* in) {
    const Pack<float, kPiece> g = Load<kPiece>(gate);
    Pack<float, kPiece> v = Load<kPiece>(in);
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) v.at[j] *= g.at[j] * Sigmoid(g.at[j]);
    return v;
  }
};

// A block computes one group of tokens, in turn.
template <typename T>
struct GateNormBackwardKernel {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp, kWidth = kVector<T>;
  int64_t tokens, n, inner, packed;
  int groups;
  bool aligned;
  const T *dy, *z, *scanned, *gamma;
  const float* statistics;
  float* ds;        // [T, inner]
  T* dz;            // rows are `packed` apart
  float* partials;  // [GridX, inner]: of gamma

  WT_DEVICE void operator()() const {
    // [n], then a number for each warp. Each thread updates the sums of its own elements.
    float* const sums = SharedMemory<float>();
    for (int64_t i = Thread(); i < n; i += kThreads) sums[i] = 0.0f;
    SyncThreads();
    for (int64_t token = BlockX(); token < tokens; token += GridX()) AddToken(token, sums);
    SyncThreads();
    for (int64_t i = Thread(); i < n; i += kThreads) partials[BlockX() * inner + BlockY() * n + i] = sums[i];
  }

  // As of the norm of v = s silu(z): dv = inverse (dy gamma - v inverse^2 mean(dy gamma v)).
  WT_DEVICE void AddToken(int64_t token, float* sums) const {
    const int64_t column = BlockY() * n, at = token * inner + column, of_z = token * packed + column;
    const float inverse = statistics[token * groups + BlockY()];
    float dot = 0.0f;
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const auto gate = Load<kPiece>(z + of_z + i), value = Load<kPiece>(scanned + at + i),
                 gradient = Load<kPiece>(dy + at + i), g = Load<kPiece>(gamma + column + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        const float gated = value.at[j] * gate.at[j] * Sigmoid(gate.at[j]);
        sums[i + j] += gradient.at[j] * gated * inverse;
        dot += gradient.at[j] * g.at[j] * gated;
      }
    });
    dot = ReduceBlock<kThreads>(dot, 0.0f, sums + n, Sum());
    const float factor = dot * inverse * inverse / static_cast<float>(n);
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const auto gate = Load<kPiece>(z + of_z + i), value = Load<kPiece>(scanned + at + i),
                 gradient = Load<kPiece>(dy + at + i), g = Load<kPiece>(gamma + column + i);
      Pack<float, kPiece> of_scanned, of_gate;
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        const float sigmoid = Sigmoid(gate.at[j]), silu = gate.at[j] * sigmoid;
        const float dgated = inverse * (gradient.at[j] * g.at[j] - value.at[j] * silu * factor);
        of_scanned.at[j] = dgated * silu;
        of_gate.at[j] = dgated * value.at[j] * sigmoid * (1.0f + gate.at[j] * (1.0f - sigmoid));
      }
      Store(ds + at + i, of_scanned);
      Store(dz + of_z + i, of_gate);
    });
  }
};

// The gradients of what the convolution made, activated: of x, and of B and C in parts.
struct StateSpaceGradientAt {
  int64_t inner, shared, of_part;  // shared: columns of B and C; of_part: elements of a part of dbc
  int parts;
  const float *dx, *dbc;  // [T, inner], [parts, T, shared]

  WT_DEVICE float operator()(int64_t token, int64_t column) const {
    if (column < inner) return dx[token * inner + column];
    const float* const at = dbc + token * shared + (column - inner);
    float sum = at[0];
    for (int part = 1; part < parts; ++part) sum += at[part * of_part];
    return sum;
  }
};

// ---- launches

// Of x, B and C.
template <typename T>
Columns<T> ColumnsOf(const StateSpaceShape& s, const T* packed, const T* weight, const T* bias) {
  return {s.batch, s.seq, s.conv, s.convolved(), s.packed(), packed + s.inner(), weight, bias};
}

// Where numbers lie in scratch memory.
struct ScratchLayout {
  int64_t scalars, heads;
  int64_t of_scalars = 0, of_d = 0, of_convolution = 0;  // partial sums
  bool backward;

  ScratchLayout(const StateSpaceShape& s, bool is_backward, const Traits& traits)
      : scalars(s.heads * s.batch * CeilDivide(s.seq, kScanTokens) * kScanTokens),
        heads(s.heads),
        backward(is_backward) {
    if (!backward) return;
    of_scalars = s.batch * 2 * heads;
    of_d = s.batch * StateSpaceChunks(s, traits).count * heads;
    const Columns<float> columns = ColumnsOf<float>(s, nullptr, nullptr, nullptr);
    of_convolution = columns.GridOf(traits).y * s.convolved() * (s.conv + 1);
  }
  // In this order: step, decay and, in backward, of_decay and of_step; rate, d; the partial sums.
  int64_t elements() const {
    return (backward ? 4 : 2) * scalars + 2 * heads + of_scalars + of_d + of_convolution;
  }
};

struct ScratchMemory {
  float *step, *decay, *of_decay, *of_step, *rate, *d, *of_scalars, *of_d, *of_convolution;

  ScratchMemory(const ScratchLayout& layout, float* at)
      : step(at),
        decay(step + layout.scalars),
        of_decay(decay + layout.scalars),
        of_step(of_decay + (layout.backward ? layout.scalars : 0)),
        rate(of_step + (layout.backward ? layout.scalars : 0)),
        d(rate + layout.heads),
        of_scalars(d + layout.heads),
        of_d(of_scalars + layout.of_scalars),
        of_convolution(of_d + layout.of_d) {}
};

// The parameters' values, from the `first` read on.
template <typename T>
struct Parameters {
  const T *weight, *bias, *dt_bias, *a_log, *d, *gamma;

  Parameters(const StateSpaceShape& s, const Operands& operands, size_t first)
      : weight(operands.In<T>(first, s.convolved() * s.conv)),
        bias(operands.In<T>(first + 1, s.convolved())),
        dt_bias(operands.In<T>(first + 2, s.heads)),
        a_log(operands.In<T>(first + 3, s.heads)),
        d(operands.In<T>(first + 4, s.heads)),
        gamma(operands.In<T>(first + 5, s.inner())) {}
};

// Whether rows of a group's columns are whole pieces wherever they lie, if they begin so.
template <typename T>
bool GroupsAligned(const StateSpaceShape& s) {
  return s.inner() / s.groups % kVector<T> == 0 && s.packed() % kVector<T> == 0;
}

// What both directions begin with: the convolution, the steps and the decays.
template <typename T>
StateSpaceScan LaunchInputs(Queue& queue, const StateSpaceShape& s, const Columns<T>& columns,
                            const T* packed, const Parameters<T>& p, const ScratchMemory& scratch, float* u) {
  StateSpaceScan scan;
  scan.batch = static_cast<int>(s.batch);
  scan.seq = static_cast<int>(s.seq);
  scan.heads = static_cast<int>(s.heads);
  scan.heads_of_group = static_cast<int>(s.heads_of_group());
  scan.groups = static_cast<int>(s.groups);
  scan.head_dim = static_cast<int>(s.head_dim);
  scan.state = static_cast<int>(s.state);
  scan.inner = s.inner();
  scan.shared = s.shared();
  scan.convolved = s.convolved();
  scan.time = CeilDivide(s.seq, kScanTokens) * kScanTokens;
  scan.aligned = s.head_dim % 4 == 0 && s.state % 4 == 0 && Aligned(u);
  scan.u = u;
  scan.step = scratch.step;
  scan.decay = scratch.decay;
  scan.d = scratch.d;
  queue.Launch(ConvolveKernel<T>{columns, u}, columns.GridOf(queue.traits()));
  queue.Launch(
      StepsKernel<T>{scan.batch, scan.seq, scan.heads, scan.time, s.packed(), packed + s.packed() - s.heads,
                     p.dt_bias, p.a_log, p.d, scratch.step, scratch.decay, scratch.rate, scratch.d},
      {queue.BlocksFor(scan.scalars(), StepsKernel<T>::kThreads)});
  return scan;
}

template <typename T>
void Forward(Queue& queue, const StateSpaceForward& op, const Operands& operands) {
  const StateSpaceShape& s = op;
  const int64_t elements = s.tokens() * s.inner();
  const T* packed = operands.In<T>(0, s.tokens() * s.packed());
  const Parameters<T> p(s, operands, 1);
  T *y = operands.Out<T>(0, elements), *scanned = operands.Out<T>(1, elements);
  float* statistics = operands.Out(2, s.tokens() * s.groups);
  float* u = operands.Out(3, StateSpaceWorkspaceElements(s, /*backward=*/false));
  const ScratchLayout layout(s, /*is_backward=*/false, queue.traits());
  const ScratchMemory scratch(layout, queue.Scratch(layout.elements()));
  const Columns<T> columns = ColumnsOf(s, packed, p.weight, p.bias);
  ScanForward(queue, LaunchInputs(queue, s, columns, packed, p, scratch, u), scanned);
  using Norm = GateNormForwardKernel<T>;
  const int64_t rows = s.tokens() * s.groups;
  const bool aligned = GroupsAligned<T>(s) && Aligned(packed, scanned, p.gamma, y);
  queue.Launch(Norm{rows, s.inner() / s.groups, s.inner(), s.packed(), static_cast<int>(s.groups), aligned,
                    static_cast<float>(op.epsilon), packed, scanned, p.gamma, y, statistics},
               {queue.BlocksFor(rows, 1, 16)}, Norm::kThreads / kWarp * 4);
}

// Writes ds, dz and the gradient of gamma. `place`: [T, inner] of the workspace, for partial sums.
template <typename T>
void LaunchGateNormBackward(Queue& queue, const StateSpaceBackward& op, const Operands& operands,
                            const T* gamma, float* ds, float* place) {
  const StateSpaceShape& s = op;
  const int64_t tokens = s.tokens(), elements = tokens * s.inner();
  GateNormBackwardKernel<T> k;
  k.tokens = tokens;
  k.n = s.inner() / s.groups;
  k.inner = s.inner();
  k.packed = s.packed();
  k.groups = static_cast<int>(s.groups);
  k.dy = operands.In<T>(0, elements);
  k.z = operands.In<T>(1, tokens * s.packed());
  k.scanned = operands.In<T>(8, elements);
  k.gamma = gamma;
  k.statistics = operands.In(9, tokens * s.groups);
  k.ds = ds;
  k.dz = operands.Out<T>(0, tokens * s.packed());
  k.partials = place;
  k.aligned = GroupsAligned<T>(s) && Aligned(k.dy, k.z, k.scanned, gamma, ds, k.dz);
  const int64_t blocks = queue.BlocksFor(tokens, 1, CeilDivide(4, s.groups));
  queue.Launch(k, {blocks, s.groups}, (k.n + k.kWarps) * 4);
  LaunchAddPartials(queue, blocks, s.inner(), s.inner(), op.accumulate, place, operands.Out<T>(6, s.inner()));
}

template <typename T>
void Backward(Queue& queue, const StateSpaceBackward& op, const Operands& operands) {
  const StateSpaceShape& s = op;
  const int64_t tokens = s.tokens(), elements = tokens * s.inner();
  const T* packed = operands.In<T>(1, tokens * s.packed());
  const Parameters<T> p(s, operands, 2);
  T* dpacked = operands.Out<T>(0, tokens * s.packed());
  float* u = operands.Out(7, StateSpaceWorkspaceElements(s, /*backward=*/true));
  float *ds = u + tokens * s.convolved(), *dx = ds + elements, *dbc = dx + elements;
  const ScratchLayout layout(s, /*is_backward=*/true, queue.traits());
  const ScratchMemory scratch(layout, queue.Scratch(layout.elements()));
  const Columns<T> columns = ColumnsOf(s, packed, p.weight, p.bias);

  const StateSpaceScan scan = LaunchInputs(queue, s, columns, packed, p, scratch, u);
  LaunchGateNormBackward(queue, op, operands, p.gamma, ds, dx);
  const StateSpaceChunks chunks(s, queue.traits());
  ScanBackward(queue, scan,
               {chunks, static_cast<int>(StateSpacePartsOf(s.heads_of_group())), ds, dx, dbc,
                scratch.of_decay, scratch.of_step, scratch.of_d});
  LaunchAddPartials(queue, s.batch * chunks.count, s.heads, s.heads, op.accumulate, scratch.of_d,
                    operands.Out<T>(5, s.heads));
  using Steps = StepGradientsKernel<T>;
  queue.Launch(Steps{scan.seq, scan.heads, scan.batch, scan.time, s.packed(), scratch.step, scratch.rate,
                     scratch.of_decay, scratch.of_step, dpacked + s.packed() - s.heads, scratch.of_scalars},
               {s.heads, s.batch}, Steps::kThreads * sizeof(double));
  LaunchAddPartials(queue, s.batch, s.heads, 2 * s.heads, op.accumulate, scratch.of_scalars,
                    operands.Out<T>(3, s.heads), operands.Out<T>(4, s.heads));
  const StateSpaceGradientAt gradient{s.inner(),
                                      2 * s.shared(),
                                      tokens * 2 * s.shared(),
                                      static_cast<int>(StateSpacePartsOf(s.heads_of_group())),
                                      dx,
                                      dbc};
  LaunchConvolveBackward(queue, columns, gradient, op.accumulate, dpacked + s.inner(), scratch.of_convolution,
                         operands.Out<T>(1, s.convolved() * s.conv), operands.Out<T>(2, s.convolved()));
}

}  // namespace

int64_t StateSpaceSharedBytes(const StateSpaceForward& op) { return ScanSharedBytes(op.state); }
int64_t StateSpaceSharedBytes(const StateSpaceBackward& op) {
  const int64_t of_norm = (op.inner() / op.groups + GateNormBackwardKernel<float>::kWarps) * 4;
  return std::max(ScanSharedBytes(op.state), of_norm);
}

int64_t ScratchBytes(const StateSpaceForward& op, const Traits& traits) {
  return ScratchLayout(op, /*is_backward=*/false, traits).elements() * 4;
}
int64_t ScratchBytes(const StateSpaceBackward& op, const Traits& traits) {
  return ScratchLayout(op, /*is_backward=*/true, traits).elements() * 4;
}

void Run(Queue& queue, const StateSpaceForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Forward<decltype(element)>(queue, op, operands); });
}

void Run(Queue& queue, const StateSpaceBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Backward<decltype(element)>(queue, op, operands); });
}

}  // namespace windtunnel::WT_KERNELS
