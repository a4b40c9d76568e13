#include "runtime/cpu/state_space.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/causal_convolution.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

// The parameters in fp32. taps[j][column] is the weight of the token j before.
struct Weights {
  float *taps, *conv_bias, *dt_bias, *a_log, *d, *gamma;

  static int64_t Elements(const StateSpaceShape& s) {
    return s.convolved() * (s.conv + 1) + 3 * s.heads + s.inner();
  }
  Weights(const StateSpaceShape& s, float* place)
      : taps(place),
        conv_bias(taps + s.convolved() * s.conv),
        dt_bias(conv_bias + s.convolved()),
        a_log(dt_bias + s.heads),
        d(a_log + s.heads),
        gamma(d + s.heads) {}
};

template <typename T>
Weights Loaded(const StateSpaceShape& s, const Operands& operands, size_t first, float* place) {
  Weights w(s, place);
  LoadTaps(s.convolved(), s.conv, operands.In<T>(first, s.convolved() * s.conv), w.taps);
  const auto load = [&](size_t i, int64_t n, float* to) {
    Convert(n, 1.0f, operands.In<T>(first + i, n), to);
  };
  load(1, s.convolved(), w.conv_bias);
  load(2, s.heads, w.dt_bias);
  load(3, s.heads, w.a_log);
  load(4, s.heads, w.d);
  load(5, s.inner(), w.gamma);
  return w;
}

// Writes the gradients in `sums`, or adds them.
template <typename T>
void Store(const StateSpaceShape& s, const Weights& sums, bool accumulate, const Operands& operands,
           size_t first) {
  const auto add = [&](T& out, float value) {
    out = FromFloat<T>(value + (accumulate ? ToFloat(out) : 0.0f));
  };
  StoreTaps(s.convolved(), s.conv, sums.taps, accumulate, operands.Out<T>(first, s.convolved() * s.conv));
  const auto store = [&](size_t i, int64_t n, const float* from) {
    T* out = operands.Out<T>(first + i, n);
    for (int64_t k = 0; k < n; ++k) add(out[k], from[k]);
  };
  store(1, s.convolved(), sums.conv_bias);
  store(2, s.heads, sums.dt_bias);
  store(3, s.heads, sums.a_log);
  store(4, s.heads, sums.d);
  store(5, s.inner(), sums.gamma);
}

float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// Of x, B and C.
CausalConvolution ConvolutionOf(const StateSpaceShape& s, const Weights& w) {
  return {s.tokens(), s.seq, s.convolved(), s.conv, s.packed(), w.taps, w.conv_bias};
}

// A head of one sequence. Rows of u (what the convolution made) are `convolved` apart.
struct HeadOfSequence {
  const float *x, *b, *c;
  int64_t head;
};
HeadOfSequence HeadAt(const StateSpaceShape& s, int64_t sequence, int64_t head, const float* u) {
  const float* rows = u + sequence * s.seq * s.convolved();
  const float* b = rows + s.inner() + head / s.heads_of_group() * s.state;
  return {rows + head * s.head_dim, b, b + s.shared(), head};
}

// The steps and decays of a head, token by token. `dt`: its column in `packed`.
template <typename T>
void FindSteps(const StateSpaceShape& s, const Weights& w, int64_t head, const T* dt, float* step,
               float* decay) {
  const float rate = -std::exp(w.a_log[head]);
  for (int64_t t = 0; t < s.seq; ++t) {
    step[t] = Softplus(ToFloat(dt[t * s.packed()]) + w.dt_bias[head]);
    decay[t] = std::exp(step[t] * rate);
  }
}

// scanned: rows of `inner`, from the head's columns on. h: [head_dim, state].
template <typename T>
WT_CPU_KERNEL void Scan(const StateSpaceShape& s, const HeadOfSequence& in, float d, const float* step,
                        const float* decay, float* h, T* scanned) {
  const int64_t n = s.state, width = s.convolved();
  std::fill_n(h, s.head_dim * n, 0.0f);
  for (int64_t t = 0; t < s.seq; ++t) {
    const float *x = in.x + t * width, *b = in.b + t * width, *c = in.c + t * width;
    const float a = decay[t];
    T* out = scanned + t * s.inner();
    for (int64_t i = 0; i < s.head_dim; ++i) {
      float* row = h + i * n;
      const float input = step[t] * x[i];
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < n; ++k) {
        const float value = a * row[k] + input * b[k];
        row[k] = value;
        sum += value * c[k];
      }
      out[i] = FromFloat<T>(sum + d * x[i]);
    }
  }
}

template <typename T>
WT_CPU_KERNEL void GateAndNorm(const StateSpaceShape& s, float epsilon, const float* gamma, const T* packed,
                               const T* scanned, T* y, float* statistics) {
  const int64_t n = s.inner() / s.groups;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t group = 0; group < s.groups; ++group) {
      const T* z = packed + token * s.packed() + group * n;
      const T* in = scanned + token * s.inner() + group * n;
      T* out = y + token * s.inner() + group * n;
      const float* g = gamma + group * n;
      float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < n; ++i) {
        const float gate = ToFloat(z[i]), value = ToFloat(in[i]) * gate * Sigmoid(gate);
        squares += value * value;
      }
      const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float gate = ToFloat(z[i]), value = ToFloat(in[i]) * gate * Sigmoid(gate);
        out[i] = FromFloat<T>(value * inverse * g[i]);
      }
      statistics[token * s.groups + group] = inverse;
    }
  }
}

// As RmsNormBackward (norm.cc), of value = s silu(z). Writes ds (fp32), and dz to `dpacked`.
template <typename T>
WT_CPU_KERNEL void GateAndNormBackward(const StateSpaceShape& s, const float* gamma, const T* dy,
                                       const T* packed, const T* scanned, const float* statistics, float* ds,
                                       T* dpacked, float* dgamma) {
  const int64_t n = s.inner() / s.groups;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t group = 0; group < s.groups; ++group) {
      const int64_t at = token * s.inner() + group * n;
      const T *z = packed + token * s.packed() + group * n, *in = scanned + at, *of_y = dy + at;
      T* dz = dpacked + token * s.packed() + group * n;
      const float* g = gamma + group * n;
      float* sums = dgamma + group * n;
      const float inverse = statistics[token * s.groups + group];
      float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
      for (int64_t i = 0; i < n; ++i) {
        const float gate = ToFloat(z[i]), value = ToFloat(in[i]) * gate * Sigmoid(gate);
        const float gradient = ToFloat(of_y[i]);
        sums[i] += gradient * value * inverse;
        dot += gradient * g[i] * value;
      }
      const float factor = dot * inverse * inverse / static_cast<float>(n);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float gate = ToFloat(z[i]), sigmoid = Sigmoid(gate), value = ToFloat(in[i]);
        const float gated = value * gate * sigmoid;
        const float dgated = inverse * (ToFloat(of_y[i]) * g[i] - gated * factor);
        ds[at + i] = dgated * gate * sigmoid;
        dz[i] = FromFloat<T>(dgated * value * sigmoid * (1.0f + gate * (1.0f - sigmoid)));
      }
    }
  }
}

// What backward knows and makes of one head's sequence. Rows of ds and dx are `inner` apart, those of db and
// dc twice `shared`.
struct HeadGradients {
  const float* ds;
  float *dx, *db, *dc;
};

// Makes the states again. Adds the head's part of dc; pairs[t] becomes ds_t . (a_t h_{t-1} C_t). `row`:
// [state].
WT_CPU_KERNEL void ScanAgain(const StateSpaceShape& s, const HeadOfSequence& in, const float* step,
                             const float* decay, const HeadGradients& of, float* h, float* row,
                             double* pairs) {
  const int64_t n = s.state, width = s.convolved();
  std::fill_n(h, s.head_dim * n, 0.0f);
  for (int64_t t = 0; t < s.seq; ++t) {
    const float *x = in.x + t * width, *b = in.b + t * width, *c = in.c + t * width;
    const float* ds = of.ds + t * s.inner();
    const float a = decay[t];
    std::fill_n(row, n, 0.0f);
    float own = 0.0f;  // ds_t . (d_t x_t)
    for (int64_t i = 0; i < s.head_dim; ++i) {
      float* state = h + i * n;
      const float input = step[t] * x[i], gradient = ds[i];
#pragma omp simd
      for (int64_t k = 0; k < n; ++k) {
        const float before = a * state[k];
        row[k] += gradient * before;
        state[k] = before + input * b[k];
      }
      own += gradient * input;
    }
    float* dc = of.dc + t * 2 * s.shared();
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < n; ++k) {
      sum += row[k] * c[k];
      dc[k] += row[k] + own * b[k];
    }
    pairs[t] = sum;
  }
}

// The sums of a head's scalars over its sequences.
struct ScalarGradients {
  double d = 0, a_log = 0, dt_bias = 0;
};

// Backwards, with g what later tokens add to dL/dh. Writes dx, adds the head's part of db, and writes the
// gradient of dt to its column of `dpacked`.
template <typename T>
WT_CPU_KERNEL void ScanBackwards(const StateSpaceShape& s, const HeadOfSequence& in, float d, float rate,
                                 const float* step, const float* decay, const double* pairs,
                                 const HeadGradients& of, float* g, float* row, T* ddt,
                                 ScalarGradients& scalars) {
  const int64_t n = s.state, width = s.convolved();
  std::fill_n(g, s.head_dim * n, 0.0f);
  double of_decay = 0;  // dL/d(log a_t)
  for (int64_t t = s.seq; t-- > 0;) {
    const float *x = in.x + t * width, *b = in.b + t * width, *c = in.c + t * width;
    const float* ds = of.ds + t * s.inner();
    float* dx = of.dx + t * s.inner();
    const float a = decay[t], size = step[t];
    std::fill_n(row, n, 0.0f);
    float product = 0.0f;  // B_t . C_t
#pragma omp simd reduction(+ : product)
    for (int64_t k = 0; k < n; ++k) product += b[k] * c[k];
    float of_later = 0.0f, of_d = 0.0f;  // x_t . (g B_t), ds_t . x_t
    for (int64_t i = 0; i < s.head_dim; ++i) {
      float* state = g + i * n;
      const float gradient = ds[i], value = x[i];
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < n; ++k) {
        sum += state[k] * b[k];
        row[k] += value * state[k];
        state[k] = a * (state[k] + gradient * c[k]);
      }
      dx[i] = size * (sum + gradient * product) + d * gradient;
      of_later += sum * value;
      of_d += gradient * value;
    }
    float* db = of.db + t * 2 * s.shared();
#pragma omp simd
    for (int64_t k = 0; k < n; ++k) db[k] += size * (row[k] + of_d * c[k]);
    of_decay += pairs[t] - static_cast<double>(size) * of_later;
    const double of_step = of_later + static_cast<double>(of_d) * product;
    // softplus' derivative from its value: 1 - e^-d
    const double raw = (of_step + of_decay * rate) * -std::expm1(-static_cast<double>(size));
    ddt[t * s.packed()] = FromFloat<T>(static_cast<float>(raw));
    scalars.dt_bias += raw;
    scalars.a_log += of_decay * size * rate;
    scalars.d += of_d;
  }
}

template <typename T>
void Forward(Scratch& scratch, const StateSpaceForward& op, const Operands& operands) {
  const StateSpaceShape& s = op;
  const int64_t elements = s.tokens() * s.inner();
  const T* packed = operands.In<T>(0, s.tokens() * s.packed());
  T *y = operands.Out<T>(0, elements), *scanned = operands.Out<T>(1, elements);
  float* statistics = operands.Out(2, s.tokens() * s.groups);
  float* u = operands.Out(3, StateSpaceWorkspaceElements(s, /*backward=*/false));
  const int64_t of_state = s.head_dim * s.state;
  float* place = scratch.Floats(Weights::Elements(s) + of_state + 2 * s.seq);
  const Weights w = Loaded<T>(s, operands, 1, place);
  float *h = place + Weights::Elements(s), *step = h + of_state, *decay = step + s.seq;
  ConvolveAll(ConvolutionOf(s, w), packed + s.inner(), u);
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    const T* rows = packed + sequence * s.seq * s.packed();
    for (int64_t head = 0; head < s.heads; ++head) {
      FindSteps(s, w, head, rows + s.packed() - s.heads + head, step, decay);
      Scan(s, HeadAt(s, sequence, head, u), w.d[head], step, decay, h,
           scanned + sequence * s.seq * s.inner() + head * s.head_dim);
    }
  }
  GateAndNorm(s, static_cast<float>(op.epsilon), w.gamma, packed, scanned, y, statistics);
}

template <typename T>
void Backward(Scratch& scratch, const StateSpaceBackward& op, const Operands& operands) {
  const StateSpaceShape& s = op;
  const int64_t tokens = s.tokens(), elements = tokens * s.inner(), of_state = s.head_dim * s.state;
  const T *dy = operands.In<T>(0, elements), *packed = operands.In<T>(1, tokens * s.packed());
  const T* scanned = operands.In<T>(8, elements);
  const float* statistics = operands.In(9, tokens * s.groups);
  T* dpacked = operands.Out<T>(0, tokens * s.packed());
  float* u = operands.Out(7, StateSpaceWorkspaceElements(s, /*backward=*/true));
  float *ds = u + tokens * s.convolved(), *dx = ds + elements, *dbc = dx + elements;
  const int64_t of_weights = Weights::Elements(s);
  float* place = scratch.Floats(2 * of_weights + of_state + s.convolved() + 4 * s.seq);
  const Weights w = Loaded<T>(s, operands, 2, place);
  Weights sums(s, place + of_weights);
  std::fill_n(place + of_weights, of_weights, 0.0f);
  float *state = place + 2 * of_weights, *row = state + of_state, *step = row + s.convolved(),
        *decay = step + s.seq;
  std::vector<double> pairs(static_cast<size_t>(s.seq));

  ConvolveAll(ConvolutionOf(s, w), packed + s.inner(), u);
  GateAndNormBackward(s, w.gamma, dy, packed, scanned, statistics, ds, dpacked, sums.gamma);
  std::fill_n(dbc, tokens * 2 * s.shared(), 0.0f);
  for (int64_t head = 0; head < s.heads; ++head) {
    ScalarGradients scalars;
    const int64_t shared = head / s.heads_of_group() * s.state;
    for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
      const int64_t first = sequence * s.seq, column = first * s.inner() + head * s.head_dim;
      float* db = dbc + first * 2 * s.shared() + shared;
      const HeadGradients of = {ds + column, dx + column, db, db + s.shared()};
      const HeadOfSequence in = HeadAt(s, sequence, head, u);
      const int64_t dt = first * s.packed() + s.packed() - s.heads + head;
      FindSteps(s, w, head, packed + dt, step, decay);
      ScanAgain(s, in, step, decay, of, state, row, pairs.data());
      ScanBackwards(s, in, w.d[head], -std::exp(w.a_log[head]), step, decay, pairs.data(), of, state, row,
                    dpacked + dt, scalars);
    }
    sums.d[head] = static_cast<float>(scalars.d);
    sums.a_log[head] = static_cast<float>(scalars.a_log);
    sums.dt_bias[head] = static_cast<float>(scalars.dt_bias);
  }
  const ColumnsOfGradients parts[2] = {{0, s.inner(), dx}, {s.inner(), 2 * s.shared(), dbc}};
  const CausalConvolution convolution = ConvolutionOf(s, w);
  ConvolutionWeights(convolution, packed + s.inner(), parts, row, sums.taps, sums.conv_bias);
  ConvolutionInputs(convolution, parts, row, dpacked + s.inner());
  Store<T>(s, sums, op.accumulate, operands, 1);
}

}  // namespace

Status Run(Scratch& scratch, const StateSpaceForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Forward<decltype(element)>(scratch, op, operands); });
  return Ok();
}

Status Run(Scratch& scratch, const StateSpaceBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Backward<decltype(element)>(scratch, op, operands); });
  return Ok();
}

}  // namespace windtunnel::cpu
