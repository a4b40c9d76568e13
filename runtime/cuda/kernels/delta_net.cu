#include "runtime/cuda/kernels/delta_net.h"

#include "runtime/cuda/kernels/causal_convolution.h"
#include "runtime/cuda/kernels/delta_net_scan.h"
#include "runtime/cuda/kernels/math.h"
#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/reduce.h"

namespace windtunnel::WT_KERNELS {
namespace {

// ---- queries and keys

inline constexpr float kNormEpsilon = 1e-6f;

// Normalises the heads of q and k that the convolution made, and scales q; a warp has a head of a token.
// Keeps what they are multiplied by (without the scale), unless `factors` is null.
struct NormaliseHeadsKernel {
  static constexpr int kThreads = 128;
  int64_t rows, convolved;  // rows: of all tokens
  int key_heads, key_dim;
  float scale;
  float *made, *factors;  // [T, convolved], [rows]

  WT_DEVICE void operator()() const {
    const int64_t first = static_cast<int64_t>(BlockX()) * (kThreads / kWarp) + Thread() / kWarp;
    for (int64_t row = first; row < rows; row += static_cast<int64_t>(GridX()) * (kThreads / kWarp)) {
      const int head = static_cast<int>(row % (2 * key_heads));
      float* const x = made + row / (2 * key_heads) * convolved + head * key_dim;
      float squares = 0.0f;
      for (int i = Lane(); i < key_dim; i += kWarp) squares += x[i] * x[i];
      const float inverse = 1.0f / std::sqrt(ReduceLanes(squares, Sum()) + kNormEpsilon);
      const float factor = head < key_heads ? inverse * scale : inverse;
      for (int i = Lane(); i < key_dim; i += kWarp) x[i] *= factor;
      if (factors != nullptr && Lane() == 0) factors[row] = inverse;
    }
  }
};

// Adds up the gradients of q and k by heads of values and parts, and makes them those of what the convolution
// made (runtime/cpu/delta_net.cc).
struct HeadGradientsKernel {
  static constexpr int kThreads = 128;
  int64_t rows, convolved, of_head;  // of_head: numbers of one part and head of values in `sums`
  int key_heads, key_dim, value_heads, parts;
  float scale;
  const float *made, *factors, *sums;  // sums: [parts, value_heads, T, 2 key_dim]
  float* gradients;                    // [T, convolved]

  WT_DEVICE void operator()() const {
    const int64_t first = static_cast<int64_t>(BlockX()) * (kThreads / kWarp) + Thread() / kWarp;
    for (int64_t row = first; row < rows; row += static_cast<int64_t>(GridX()) * (kThreads / kWarp)) {
      const int head = static_cast<int>(row % (2 * key_heads));
      const int64_t token = row / (2 * key_heads);
      const bool is_query = head < key_heads;
      const int64_t at = token * convolved + head * key_dim;
      const int of_key = value_heads / key_heads, first_value = head % key_heads * of_key;
      const float* const of_token = sums + token * 2 * key_dim + (is_query ? 0 : key_dim);
      float dot = 0.0f;
      for (int i = Lane(); i < key_dim; i += kWarp) {
        float sum = 0.0f;
        for (int part = 0; part < parts; ++part)
          for (int value = 0; value < of_key; ++value)
            sum += of_token[(static_cast<int64_t>(part) * value_heads + first_value + value) * of_head + i];
        gradients[at + i] = sum;
        dot += made[at + i] * sum;
      }
      dot = ReduceLanes(dot, Sum());
      const float inverse = factors[row];
      const float of_gradient = is_query ? inverse * scale : inverse;
      const float of_norm = is_query ? inverse * dot / scale : inverse * dot;
      for (int i = Lane(); i < key_dim; i += kWarp)
        gradients[at + i] = of_gradient * gradients[at + i] - of_norm * made[at + i];
    }
  }
};

// ---- decays and corrections

WT_DEVICE float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

template <typename T>
struct FactorsKernel {
  static constexpr int kThreads = 256;
  int64_t tokens, packed;
  int heads;
  const T *b, *a_log, *dt_bias;  // b: its first column in `packed`; those of a follow
  float *decay, *correction;     // [heads, T]

  WT_DEVICE void operator()() const {
    for (int64_t i = FirstIndex<kThreads>(); i < tokens * heads; i += IndexStride<kThreads>()) {
      const int64_t token = i / heads;
      const int head = static_cast<int>(i % heads);
      const T* const at = b + token * packed + head;
      const float raw = Float(at[heads]) + Float(dt_bias[head]);
      decay[head * tokens + token] = std::exp(-std::exp(Float(a_log[head])) * Softplus(raw));
      correction[head * tokens + token] = Sigmoid(Float(at[0]));
    }
  }
};

// A block computes the gradients of a head's factors in one sequence. Each thread has a run of tokens.
template <typename T>
struct FactorGradientsKernel {
  static constexpr int kThreads = 128;
  int seq, heads, parts;
  int64_t tokens, packed;
  const T *b, *a_log, *dt_bias;
  const float *correction, *terms, *corrections;  // [heads, T]; [parts, heads, T]
  T* db;                                          // its first column in `dpacked`; those of a follow
  float* partials;                                // [batch, 2, heads]: of a_log and of dt_bias

  WT_DEVICE void operator()() const {
    const int head = BlockX(), sequence = BlockY();
    const int run = (seq + kThreads - 1) / kThreads;
    const int begin = Thread() * run < seq ? Thread() * run : seq,
              end = begin + run < seq ? begin + run : seq;
    const int64_t first = static_cast<int64_t>(sequence) * seq, of_head = head * tokens + first;
    double* const place = SharedMemory<double>();  // [kThreads]
    double own = 0.0;
    for (int t = begin; t < end; ++t) own += SumOf(terms, of_head + t);
    place[Thread()] = own;
    SyncThreads();
    double of_decay = 0.0;  // dL/d(log e_t): the sum over this token and those behind it
    for (int thread = Thread() + 1; thread < kThreads; ++thread) of_decay += place[thread];
    const double rate = -std::exp(static_cast<double>(Float(a_log[head])));
    double of_log = 0.0, of_bias = 0.0;
    for (int t = end; t-- > begin;) {
      of_decay += SumOf(terms, of_head + t);
      const int64_t at = (first + t) * packed + head;
      const float raw = Float(b[at + heads]) + Float(dt_bias[head]);
      of_log += of_decay * rate * Softplus(raw);
      const double of_raw = of_decay * rate / (1.0 + std::exp(-static_cast<double>(raw)));
      of_bias += of_raw;
      db[at + heads] = Rounded<T>(static_cast<float>(of_raw));
      const float c = correction[of_head + t];
      db[at] = Rounded<T>(static_cast<float>(SumOf(corrections, of_head + t)) * c * (1.0f - c));
    }
    SyncThreads();
    of_log = ReduceBlock<kThreads>(of_log, 0.0, place, Sum());
    of_bias = ReduceBlock<kThreads>(of_bias, 0.0, place, Sum());
    if (Thread() > 0) return;
    partials[sequence * 2 * heads + head] = static_cast<float>(of_log);
    partials[(sequence * 2 + 1) * heads + head] = static_cast<float>(of_bias);
  }
  // Over parts.
  WT_DEVICE double SumOf(const float* from, int64_t place) const {
    double sum = 0.0;
    for (int part = 0; part < parts; ++part) sum += from[part * heads * tokens + place];
    return sum;
  }
};

// ---- the norm and the gate: a warp has a head of a token

template <typename T>
struct NormGateForwardKernel {
  static constexpr int kThreads = 128;
  int64_t rows, packed;
  int heads, n;
  float epsilon;
  const T *z, *scanned, *gamma;  // z: rows are `packed` apart
  T* y;
  float* statistics;

  WT_DEVICE void operator()() const {
    const int64_t first = static_cast<int64_t>(BlockX()) * (kThreads / kWarp) + Thread() / kWarp;
    for (int64_t row = first; row < rows; row += static_cast<int64_t>(GridX()) * (kThreads / kWarp)) {
      const T *gate = z + row / heads * packed + row % heads * n, *in = scanned + row * n;
      float squares = 0.0f;
      for (int j = Lane(); j < n; j += kWarp) squares += Float(in[j]) * Float(in[j]);
      squares = ReduceLanes(squares, Sum());
      const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon);
      for (int j = Lane(); j < n; j += kWarp) {
        const float g = Float(gate[j]);
        y[row * n + j] = Rounded<T>(Float(in[j]) * inverse * Float(gamma[j]) * g * Sigmoid(g));
      }
      if (Lane() == 0) statistics[row] = inverse;
    }
  }
};

template <typename T>
struct NormGateBackwardKernel {
  static constexpr int kThreads = 128, kWarps = kThreads / kWarp;
  int64_t rows, packed;
  int heads, n;
  const T *dy, *z, *scanned, *gamma;
  const float* statistics;
  float* ds;        // [T, inner]
  T* dz;            // rows are `packed` apart
  float* partials;  // [GridX, n]: of gamma

  WT_DEVICE void operator()() const {
    float* const sums = SharedMemory<float>() + Thread() / kWarp * n;  // [kWarps, n]
    for (int j = Lane(); j < n; j += kWarp) sums[j] = 0.0f;
    const int64_t first = static_cast<int64_t>(BlockX()) * kWarps + Thread() / kWarp;
    for (int64_t row = first; row < rows; row += static_cast<int64_t>(GridX()) * kWarps) AddRow(row, sums);
    SyncThreads();
    for (int j = Thread(); j < n; j += kThreads) {
      float sum = 0.0f;
      for (int warp = 0; warp < kWarps; ++warp) sum += SharedMemory<float>()[warp * n + j];
      partials[BlockX() * static_cast<int64_t>(n) + j] = sum;
    }
  }

  // As of the norm of s, by dy silu(z): ds = inverse (d gamma - s inverse^2 mean(d gamma s)).
  WT_DEVICE void AddRow(int64_t row, float* sums) const {
    const int64_t at = row * n, of_z = row / heads * packed + row % heads * n;
    const float inverse = statistics[row];
    float dot = 0.0f;
    for (int j = Lane(); j < n; j += kWarp) {
      const float g = Float(z[of_z + j]), value = Float(scanned[at + j]);
      const float gradient = Float(dy[at + j]) * g * Sigmoid(g);
      sums[j] += gradient * value * inverse;
      dot += gradient * Float(gamma[j]) * value;
    }
    const float factor = ReduceLanes(dot, Sum()) * inverse * inverse / static_cast<float>(n);
    for (int j = Lane(); j < n; j += kWarp) {
      const float g = Float(z[of_z + j]), sigmoid = Sigmoid(g), value = Float(scanned[at + j]);
      const float gradient = Float(dy[at + j]) * Float(gamma[j]);
      ds[at + j] = inverse * (gradient * g * sigmoid - value * factor);
      dz[of_z + j] = Rounded<T>(gradient * value * inverse * sigmoid * (1.0f + g * (1.0f - sigmoid)));
    }
  }
};

// The gradients of what the convolution made, activated.
struct DeltaNetGradientAt {
  int64_t convolved;
  const float* gradients;
  WT_DEVICE float operator()(int64_t token, int64_t column) const {
    return gradients[token * convolved + column];
  }
};

// ---- launches

template <typename T>
Columns<T> ColumnsOf(const DeltaNetShape& s, const T* packed, const T* weight) {
  return {s.batch, s.seq, s.conv, s.convolved(), s.packed(), packed, weight, /*conv_bias=*/nullptr};
}

int64_t BlocksOfNormBackward(const DeltaNetShape& s, const Traits& traits) {
  return Queue::BlocksOn(traits, s.tokens() * s.value_heads, 4, 4);
}

// The partial sums of the parameters' gradients, in scratch memory.
struct PartialSums {
  int64_t of_gamma, of_factors, of_convolution;

  PartialSums(const DeltaNetShape& s, const Traits& traits)
      : of_gamma(BlocksOfNormBackward(s, traits) * s.value_dim),
        of_factors(s.batch * 2 * s.value_heads),
        of_convolution(ColumnsOf<float>(s, nullptr, nullptr).GridOf(traits).y * s.convolved() *
                       (s.conv + 1)) {}
  int64_t elements() const { return of_gamma + of_factors + of_convolution; }
};

// The parameters' values, from the `first` read on.
template <typename T>
struct Parameters {
  const T *weight, *a_log, *dt_bias, *gamma;

  Parameters(const DeltaNetShape& s, const Operands& operands, size_t first)
      : weight(operands.In<T>(first, s.convolved() * s.conv)),
        a_log(operands.In<T>(first + 1, s.value_heads)),
        dt_bias(operands.In<T>(first + 2, s.value_heads)),
        gamma(operands.In<T>(first + 3, s.value_dim)) {}
};

// What both directions begin with: the convolution, the norms, the decays and the corrections (of `factors`:
// [2 heads, T]). `norms`: NormaliseHeadsKernel::factors.
template <typename T>
DeltaNetScan LaunchInputs(Queue& queue, const DeltaNetShape& s, const T* packed, const Parameters<T>& p,
                          float* made, float* factors, float* norms) {
  DeltaNetScan scan;
  scan.batch = static_cast<int>(s.batch);
  scan.seq = static_cast<int>(s.seq);
  scan.heads = static_cast<int>(s.value_heads);
  scan.values_of_key = static_cast<int>(s.values_of_key());
  scan.key_dim = static_cast<int>(s.key_dim);
  scan.value_dim = static_cast<int>(s.value_dim);
  scan.tokens = s.tokens();
  scan.keys = s.keys();
  scan.inner = s.inner();
  scan.convolved = s.convolved();
  scan.made = made;
  scan.decay = factors;
  scan.correction = factors + s.value_heads * s.tokens();
  const Columns<T> columns = ColumnsOf(s, packed, p.weight);
  queue.Launch(ConvolveKernel<T>{columns, made}, columns.GridOf(queue.traits()));
  const int64_t rows = s.tokens() * 2 * s.key_heads;
  queue.Launch(NormaliseHeadsKernel{rows, s.convolved(), static_cast<int>(s.key_heads), scan.key_dim,
                                    1.0f / std::sqrt(static_cast<float>(s.key_dim)), made, norms},
               {queue.BlocksFor(rows, NormaliseHeadsKernel::kThreads / kWarp)});
  using Factors = FactorsKernel<T>;
  queue.Launch(Factors{s.tokens(), s.packed(), scan.heads, packed + s.convolved() + s.inner(), p.a_log,
                       p.dt_bias, factors, factors + s.value_heads * s.tokens()},
               {queue.BlocksFor(s.tokens() * s.value_heads, Factors::kThreads)});
  return scan;
}

template <typename T>
void Forward(Queue& queue, const DeltaNetForward& op, const Operands& operands) {
  const DeltaNetShape& s = op;
  const int64_t elements = s.tokens() * s.inner(), rows = s.tokens() * s.value_heads;
  const T* packed = operands.In<T>(0, s.tokens() * s.packed());
  const Parameters<T> p(s, operands, 1);
  T *y = operands.Out<T>(0, elements), *scanned = operands.Out<T>(1, elements);
  float* statistics = operands.Out(2, rows);
  float* made = operands.Out(3, DeltaNetWorkspaceElements(s, /*backward=*/false));
  float* factors = made + s.tokens() * s.convolved();
  DeltaNetScanForward(queue, LaunchInputs(queue, s, packed, p, made, factors, /*norms=*/nullptr), scanned);
  using Norm = NormGateForwardKernel<T>;
  queue.Launch(Norm{rows, s.packed(), static_cast<int>(s.value_heads), static_cast<int>(s.value_dim),
                    static_cast<float>(op.epsilon), packed + s.convolved(), scanned, p.gamma, y, statistics},
               {queue.BlocksFor(rows, Norm::kThreads / kWarp)});
}

// Writes ds, dz and the gradient of gamma.
template <typename T>
void LaunchNormGateBackward(Queue& queue, const DeltaNetBackward& op, const Operands& operands,
                            const T* gamma, float* ds, float* partials) {
  const DeltaNetShape& s = op;
  const int64_t tokens = s.tokens(), elements = tokens * s.inner();
  NormGateBackwardKernel<T> k;
  k.rows = tokens * s.value_heads;
  k.packed = s.packed();
  k.heads = static_cast<int>(s.value_heads);
  k.n = static_cast<int>(s.value_dim);
  k.dy = operands.In<T>(0, elements);
  k.z = operands.In<T>(1, tokens * s.packed()) + s.convolved();
  k.scanned = operands.In<T>(6, elements);
  k.gamma = gamma;
  k.statistics = operands.In(7, k.rows);
  k.ds = ds;
  k.dz = operands.Out<T>(0, tokens * s.packed()) + s.convolved();
  k.partials = partials;
  const int64_t blocks = BlocksOfNormBackward(s, queue.traits());
  queue.Launch(k, {blocks}, k.kWarps * s.value_dim * 4);
  LaunchAddPartials(queue, blocks, s.value_dim, s.value_dim, op.accumulate, partials,
                    operands.Out<T>(4, s.value_dim));
}

template <typename T>
void Backward(Queue& queue, const DeltaNetBackward& op, const Operands& operands) {
  const DeltaNetShape& s = op;
  const int64_t tokens = s.tokens(), elements = tokens * s.inner();
  const T* packed = operands.In<T>(1, tokens * s.packed());
  const Parameters<T> p(s, operands, 2);
  T* dpacked = operands.Out<T>(0, tokens * s.packed());
  float* made = operands.Out(5, DeltaNetWorkspaceElements(s, /*backward=*/true));
  float *gradients = made + tokens * s.convolved(), *ds = gradients + tokens * s.convolved(),
        *residuals = ds + elements, *norms = residuals + elements,
        *factors = norms + tokens * 2 * s.key_heads, *heads = factors + tokens * 2 * s.value_heads;
  const int64_t parts = DeltaNetPartsOf(s.value_dim), of_parts = parts * s.value_heads * tokens;
  float *terms = heads + of_parts * 2 * s.key_dim, *corrections = terms + of_parts;
  const PartialSums sums(s, queue.traits());
  float* of_gamma = queue.Scratch(sums.elements());
  float *of_factors = of_gamma + sums.of_gamma, *of_convolution = of_factors + sums.of_factors;

  const DeltaNetScan scan = LaunchInputs(queue, s, packed, p, made, factors, norms);
  LaunchNormGateBackward(queue, op, operands, p.gamma, ds, of_gamma);
  DeltaNetScanBackward(queue, scan, {ds, residuals, gradients, heads, terms, corrections});
  const int64_t rows = tokens * 2 * s.key_heads;
  queue.Launch(
      HeadGradientsKernel{rows, s.convolved(), tokens * 2 * s.key_dim, static_cast<int>(s.key_heads),
                          scan.key_dim, scan.heads, static_cast<int>(parts),
                          1.0f / std::sqrt(static_cast<float>(s.key_dim)), made, norms, heads, gradients},
      {queue.BlocksFor(rows, HeadGradientsKernel::kThreads / kWarp)});
  using Factors = FactorGradientsKernel<T>;
  const int64_t b = s.convolved() + s.inner();
  queue.Launch(Factors{scan.seq, scan.heads, static_cast<int>(parts), tokens, s.packed(), packed + b, p.a_log,
                       p.dt_bias, scan.correction, terms, corrections, dpacked + b, of_factors},
               {s.value_heads, s.batch}, Factors::kThreads * sizeof(double));
  LaunchAddPartials(queue, s.batch, s.value_heads, 2 * s.value_heads, op.accumulate, of_factors,
                    operands.Out<T>(2, s.value_heads), operands.Out<T>(3, s.value_heads));
  LaunchConvolveBackward<T>(queue, ColumnsOf(s, packed, p.weight),
                            DeltaNetGradientAt{s.convolved(), gradients}, op.accumulate, dpacked,
                            of_convolution, operands.Out<T>(1, s.convolved() * s.conv), /*bias=*/nullptr);
}

}  // namespace

int64_t ScratchBytes(const DeltaNetBackward& op, const Traits& traits) {
  return PartialSums(op, traits).elements() * 4;
}

void Run(Queue& queue, const DeltaNetForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Forward<decltype(element)>(queue, op, operands); });
}

void Run(Queue& queue, const DeltaNetBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Backward<decltype(element)>(queue, op, operands); });
}

}  // namespace windtunnel::WT_KERNELS
