#include "runtime/cpu/delta_net.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/causal_convolution.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

// The parameters in fp32, or sums of their gradients.
struct Weights {
  float *taps, *a_log, *dt_bias, *gamma;

  static int64_t Elements(const DeltaNetShape& s) {
    return s.convolved() * s.conv + 2 * s.value_heads + s.value_dim;
  }
  Weights(const DeltaNetShape& s, float* place)
      : taps(place),
        a_log(taps + s.convolved() * s.conv),
        dt_bias(a_log + s.value_heads),
        gamma(dt_bias + s.value_heads) {}
};

template <typename T>
Weights Loaded(const DeltaNetShape& s, const Operands& operands, size_t first, float* place) {
  Weights w(s, place);
  LoadTaps(s.convolved(), s.conv, operands.In<T>(first, s.convolved() * s.conv), w.taps);
  const auto load = [&](size_t i, int64_t n, float* to) {
    Convert(n, 1.0f, operands.In<T>(first + i, n), to);
  };
  load(1, s.value_heads, w.a_log);
  load(2, s.value_heads, w.dt_bias);
  load(3, s.value_dim, w.gamma);
  return w;
}

// Writes the gradients in `sums`, or adds them.
template <typename T>
void Store(const DeltaNetShape& s, const Weights& sums, bool accumulate, const Operands& operands,
           size_t first) {
  StoreTaps(s.convolved(), s.conv, sums.taps, accumulate, operands.Out<T>(first, s.convolved() * s.conv));
  const auto store = [&](size_t i, int64_t n, const float* from) {
    T* out = operands.Out<T>(first + i, n);
    for (int64_t k = 0; k < n; ++k) out[k] = FromFloat<T>(from[k] + (accumulate ? ToFloat(out[k]) : 0.0f));
  };
  store(1, s.value_heads, sums.a_log);
  store(2, s.value_heads, sums.dt_bias);
  store(3, s.value_dim, sums.gamma);
}

// Of q, k and v.
CausalConvolution ConvolutionOf(const DeltaNetShape& s, const Weights& w) {
  return {s.tokens(), s.seq, s.convolved(), s.conv, s.packed(), w.taps, /*bias=*/nullptr};
}

constexpr float kNormEpsilon = 1e-6f;  // of queries and keys

float QueryScale(const DeltaNetShape& s) { return 1.0f / std::sqrt(static_cast<float>(s.key_dim)); }

// Normalises the heads of q and k that the convolution made, and scales q. Writes what they are multiplied by
// (without the scale) to `factors` [T, 2 key_heads], unless it is null.
WT_CPU_KERNEL void NormaliseHeads(const DeltaNetShape& s, float* made, float* factors) {
  const float scale = QueryScale(s);
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t head = 0; head < 2 * s.key_heads; ++head) {
      float* x = made + token * s.convolved() + head * s.key_dim;
      float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < s.key_dim; ++i) squares += x[i] * x[i];
      const float inverse = 1.0f / std::sqrt(squares + kNormEpsilon);
      const float factor = head < s.key_heads ? inverse * scale : inverse;
#pragma omp simd
      for (int64_t i = 0; i < s.key_dim; ++i) x[i] *= factor;
      if (factors != nullptr) factors[token * 2 * s.key_heads + head] = inverse;
    }
  }
}

// Replaces the gradients of q and k as heads take them, in rows of `convolved`, by those of what the
// convolution made, given the former in `made`: with n = x / |x|, dx = (dn - n (n . dn)) / |x|.
WT_CPU_KERNEL void NormaliseHeadsBackward(const DeltaNetShape& s, const float* made, const float* factors,
                                          float* gradients) {
  const float scale = QueryScale(s);
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t head = 0; head < 2 * s.key_heads; ++head) {
      const int64_t at = token * s.convolved() + head * s.key_dim;
      const float* n = made + at;
      float* d = gradients + at;
      float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
      for (int64_t i = 0; i < s.key_dim; ++i) dot += n[i] * d[i];
      const float inverse = factors[token * 2 * s.key_heads + head];
      // q is n times the scale, and its gradient that of n over the scale.
      const float of_gradient = head < s.key_heads ? inverse * scale : inverse;
      const float of_norm = head < s.key_heads ? inverse * dot / scale : inverse * dot;
#pragma omp simd
      for (int64_t i = 0; i < s.key_dim; ++i) d[i] = of_gradient * d[i] - of_norm * n[i];
    }
  }
}

// A head of values of one sequence. Rows are `convolved` apart.
struct HeadOfSequence {
  const float *q, *k, *v;
};
HeadOfSequence HeadAt(const DeltaNetShape& s, int64_t sequence, int64_t head, const float* made) {
  const float* rows = made + sequence * s.seq * s.convolved();
  const float* q = rows + head / s.values_of_key() * s.key_dim;
  return {q, q + s.keys(), rows + 2 * s.keys() + head * s.value_dim};
}

float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// e and c of a head, token by token. `b`: its column in `packed`, behind which is that of a.
template <typename T>
void FindFactors(const DeltaNetShape& s, const Weights& w, int64_t head, const T* b, float* decay,
                 float* correction) {
  const float rate = -std::exp(w.a_log[head]);
  for (int64_t t = 0; t < s.seq; ++t) {
    const T* at = b + t * s.packed();
    decay[t] = std::exp(rate * Softplus(ToFloat(at[s.value_heads]) + w.dt_bias[head]));
    correction[t] = 1.0f / (1.0f + std::exp(-ToFloat(at[0])));
  }
}

// scanned: rows of `inner`, from the head's columns on. state: [key_dim, value_dim]; row: [value_dim].
template <typename T>
WT_CPU_KERNEL void Scan(const DeltaNetShape& s, const HeadOfSequence& in, const float* decay,
                        const float* correction, float* state, float* row, T* scanned) {
  const int64_t n = s.value_dim, width = s.convolved();
  std::fill_n(state, s.key_dim * n, 0.0f);
  for (int64_t t = 0; t < s.seq; ++t) {
    const float *q = in.q + t * width, *k = in.k + t * width, *v = in.v + t * width;
    const float e = decay[t], c = correction[t];
    std::fill_n(row, n, 0.0f);
    for (int64_t i = 0; i < s.key_dim; ++i) {
      float* of_key = state + i * n;
      const float key = k[i];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        of_key[j] *= e;
        row[j] += key * of_key[j];
      }
    }
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) row[j] = c * (v[j] - row[j]);
    float* sums = row + n;
    std::fill_n(sums, n, 0.0f);
    for (int64_t i = 0; i < s.key_dim; ++i) {
      float* of_key = state + i * n;
      const float key = k[i], query = q[i];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        of_key[j] += key * row[j];
        sums[j] += query * of_key[j];
      }
    }
    T* out = scanned + t * s.inner();
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) out[j] = FromFloat<T>(sums[j]);
  }
}

template <typename T>
WT_CPU_KERNEL void NormAndGate(const DeltaNetShape& s, float epsilon, const float* gamma, const T* z,
                               const T* scanned, T* y, float* statistics) {
  const int64_t n = s.value_dim;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t head = 0; head < s.value_heads; ++head) {
      const int64_t at = token * s.inner() + head * n;
      const T *gate = z + token * s.packed() + head * n, *in = scanned + at;
      float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
      for (int64_t j = 0; j < n; ++j) squares += ToFloat(in[j]) * ToFloat(in[j]);
      const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon);
      T* out = y + at;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        const float g = ToFloat(gate[j]);
        out[j] = FromFloat<T>(ToFloat(in[j]) * inverse * gamma[j] * g * Sigmoid(g));
      }
      statistics[token * s.value_heads + head] = inverse;
    }
  }
}

// Writes ds (fp32), and dz; adds to the gradient of gamma.
template <typename T>
WT_CPU_KERNEL void NormAndGateBackward(const DeltaNetShape& s, const float* gamma, const T* dy, const T* z,
                                       const T* scanned, const float* statistics, float* ds, T* dz,
                                       float* dgamma) {
  const int64_t n = s.value_dim;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t head = 0; head < s.value_heads; ++head) {
      const int64_t at = token * s.inner() + head * n, of_z = token * s.packed() + head * n;
      const T *gate = z + of_z, *in = scanned + at, *of_y = dy + at;
      const float inverse = statistics[token * s.value_heads + head];
      float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
      for (int64_t j = 0; j < n; ++j) {
        const float g = ToFloat(gate[j]), value = ToFloat(in[j]);
        const float gradient = ToFloat(of_y[j]) * g * Sigmoid(g);
        dgamma[j] += gradient * value * inverse;
        dot += gradient * gamma[j] * value;
      }
      const float factor = dot * inverse * inverse / static_cast<float>(n);
      float* d = ds + at;
      T* of_gate = dz + of_z;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        const float g = ToFloat(gate[j]), sigmoid = Sigmoid(g), value = ToFloat(in[j]);
        const float gradient = ToFloat(of_y[j]) * gamma[j];
        d[j] = inverse * (gradient * g * sigmoid - value * factor);
        of_gate[j] = FromFloat<T>(gradient * value * inverse * sigmoid * (1.0f + g * (1.0f - sigmoid)));
      }
    }
  }
}

// What backward knows and makes of one head's sequence. Rows of ds and of the residuals r (delta_net.h) are
// `inner` apart, those of the others `convolved`.
struct HeadGradients {
  const float* ds;
  float *residuals, *dq, *dk, *dv;
};

// Makes the states again, and with them r. Adds the head's part of dq; terms[t] becomes ds_t . (S'^T q_t).
WT_CPU_KERNEL void ScanAgain(const DeltaNetShape& s, const HeadOfSequence& in, const float* decay,
                             const float* correction, const HeadGradients& of, float* state, float* row,
                             double* terms) {
  const int64_t n = s.value_dim, width = s.convolved();
  std::fill_n(state, s.key_dim * n, 0.0f);
  for (int64_t t = 0; t < s.seq; ++t) {
    const float *q = in.q + t * width, *k = in.k + t * width, *v = in.v + t * width;
    const float *ds = of.ds + t * s.inner(), e = decay[t], c = correction[t];
    float *r = of.residuals + t * s.inner(), *dq = of.dq + t * width;
    std::fill_n(row, 2 * n, 0.0f);
    float *of_keys = row, *of_queries = row + n;
    for (int64_t i = 0; i < s.key_dim; ++i) {
      float* of_key = state + i * n;
      const float key = k[i], query = q[i];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        of_key[j] *= e;
        of_keys[j] += key * of_key[j];
        of_queries[j] += query * of_key[j];
      }
    }
    float term = 0.0f;
#pragma omp simd reduction(+ : term)
    for (int64_t j = 0; j < n; ++j) {
      r[j] = v[j] - of_keys[j];
      term += ds[j] * of_queries[j];
    }
    terms[t] = term;
    for (int64_t i = 0; i < s.key_dim; ++i) {
      float* of_key = state + i * n;
      const float key = c * k[i];
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; ++j) {
        of_key[j] += key * r[j];
        sum += of_key[j] * ds[j];
      }
      dq[i] += sum;
    }
  }
}

// With g what later tokens add to dL/dS: writes dv, adds the part of dk that goes to u, and the terms of e's
// gradient. corrections[t], c_t, becomes its gradient.
WT_CPU_KERNEL void ScanBackwards(const DeltaNetShape& s, const HeadOfSequence& in, const float* decay,
                                 float* corrections, const HeadGradients& of, float* g, float* row,
                                 double* terms) {
  const int64_t n = s.value_dim, width = s.convolved();
  std::fill_n(g, s.key_dim * n, 0.0f);
  for (int64_t t = s.seq; t-- > 0;) {
    const float *q = in.q + t * width, *k = in.k + t * width;
    const float *ds = of.ds + t * s.inner(), *r = of.residuals + t * s.inner();
    float *dk = of.dk + t * width, *dv = of.dv + t * width;
    const float e = decay[t], c = corrections[t];
    float pair = 0.0f;  // q_t . k_t
#pragma omp simd reduction(+ : pair)
    for (int64_t i = 0; i < s.key_dim; ++i) pair += q[i] * k[i];
    std::fill_n(row, n, 0.0f);
    for (int64_t i = 0; i < s.key_dim; ++i) {
      const float *of_key = g + i * n, key = k[i];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) row[j] += key * of_key[j];
    }
    float of_later = 0.0f, of_correction = 0.0f, own = 0.0f;  // r . (G^T k), r . du, r . ds
#pragma omp simd reduction(+ : of_later, of_correction, own)
    for (int64_t j = 0; j < n; ++j) {
      const float du = row[j] + pair * ds[j];
      of_later += r[j] * row[j];
      of_correction += r[j] * du;
      own += r[j] * ds[j];
      dv[j] = c * du;
    }
    terms[t] -= static_cast<double>(c) * of_later;
    corrections[t] = of_correction;
    for (int64_t i = 0; i < s.key_dim; ++i) {
      float* of_key = g + i * n;
      const float key = k[i], query = q[i];
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; ++j) {
        sum += of_key[j] * r[j];
        of_key[j] = e * (of_key[j] + query * ds[j] - key * dv[j]);
      }
      dk[i] += c * (sum + query * own);
    }
  }
}

// Makes the states once more. Adds the part of dk that comes by r, and the last term of e's gradient.
WT_CPU_KERNEL void ScanForKeys(const DeltaNetShape& s, const HeadOfSequence& in, const float* decay,
                               const float* correction, const HeadGradients& of, float* state,
                               double* terms) {
  const int64_t n = s.value_dim, width = s.convolved();
  std::fill_n(state, s.key_dim * n, 0.0f);
  for (int64_t t = 0; t < s.seq; ++t) {
    const float* k = in.k + t * width;
    const float *r = of.residuals + t * s.inner(), *dv = of.dv + t * width;
    float* dk = of.dk + t * width;
    const float e = decay[t], c = correction[t];
    float term = 0.0f;  // dv . (S'^T k)
    for (int64_t i = 0; i < s.key_dim; ++i) {
      float* of_key = state + i * n;
      const float key = c * k[i];
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; ++j) {
        const float decayed = e * of_key[j];
        sum += decayed * dv[j];
        of_key[j] = decayed + key * r[j];
      }
      dk[i] -= sum;
      term += k[i] * sum;
    }
    terms[t] -= term;
  }
}

// From what tokens add to the gradients of log e, and the gradients of c, those of a and b (their columns in
// `dpacked`), of a_log and of dt_bias.
template <typename T>
void FactorGradients(const DeltaNetShape& s, const Weights& w, int64_t head, const T* b, const double* terms,
                     const float* correction, const float* dcorrection, T* db, Weights& sums) {
  const double rate = -std::exp(static_cast<double>(w.a_log[head]));
  double of_decay = 0, of_log = 0, of_bias = 0;  // of_decay: dL/d(log e_t)
  for (int64_t t = s.seq; t-- > 0;) {
    of_decay += terms[t];
    const float raw = ToFloat(b[t * s.packed() + s.value_heads]) + w.dt_bias[head];
    of_log += of_decay * rate * Softplus(raw);
    const double of_raw = of_decay * rate / (1.0 + std::exp(-static_cast<double>(raw)));
    of_bias += of_raw;
    T* out = db + t * s.packed();
    out[s.value_heads] = FromFloat<T>(static_cast<float>(of_raw));
    out[0] = FromFloat<T>(dcorrection[t] * correction[t] * (1.0f - correction[t]));
  }
  sums.a_log[head] += static_cast<float>(of_log);
  sums.dt_bias[head] += static_cast<float>(of_bias);
}

template <typename T>
void Forward(Scratch& scratch, const DeltaNetForward& op, const Operands& operands) {
  const DeltaNetShape& s = op;
  const int64_t elements = s.tokens() * s.inner(), of_state = s.key_dim * s.value_dim;
  const T* packed = operands.In<T>(0, s.tokens() * s.packed());
  T *y = operands.Out<T>(0, elements), *scanned = operands.Out<T>(1, elements);
  float* statistics = operands.Out(2, s.tokens() * s.value_heads);
  float* made = operands.Out(3, DeltaNetWorkspaceElements(s, /*backward=*/false));
  float* place = scratch.Floats(Weights::Elements(s) + of_state + 2 * s.value_dim + 2 * s.seq);
  const Weights w = Loaded<T>(s, operands, 1, place);
  float *state = place + Weights::Elements(s), *row = state + of_state, *decay = row + 2 * s.value_dim,
        *correction = decay + s.seq;
  ConvolveAll(ConvolutionOf(s, w), packed, made);
  NormaliseHeads(s, made, nullptr);
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    const int64_t first = sequence * s.seq;
    for (int64_t head = 0; head < s.value_heads; ++head) {
      FindFactors(s, w, head, packed + first * s.packed() + s.convolved() + s.inner() + head, decay,
                  correction);
      Scan(s, HeadAt(s, sequence, head, made), decay, correction, state, row,
           scanned + first * s.inner() + head * s.value_dim);
    }
  }
  NormAndGate(s, static_cast<float>(op.epsilon), w.gamma, packed + s.convolved(), scanned, y, statistics);
}

template <typename T>
void Backward(Scratch& scratch, const DeltaNetBackward& op, const Operands& operands) {
  const DeltaNetShape& s = op;
  const int64_t tokens = s.tokens(), elements = tokens * s.inner(), of_state = s.key_dim * s.value_dim;
  const T *dy = operands.In<T>(0, elements), *packed = operands.In<T>(1, tokens * s.packed());
  const T* scanned = operands.In<T>(6, elements);
  const float* statistics = operands.In(7, tokens * s.value_heads);
  T* dpacked = operands.Out<T>(0, tokens * s.packed());
  float* made = operands.Out(5, DeltaNetWorkspaceElements(s, /*backward=*/true));
  float *gradients = made + tokens * s.convolved(), *ds = gradients + tokens * s.convolved(),
        *residuals = ds + elements, *norms = residuals + elements;
  const int64_t of_weights = Weights::Elements(s);
  float* place =
      scratch.Floats(2 * of_weights + of_state + std::max(2 * s.value_dim, s.convolved()) + 3 * s.seq);
  const Weights w = Loaded<T>(s, operands, 2, place);
  Weights sums(s, place + of_weights);
  std::fill_n(place + of_weights, of_weights, 0.0f);
  float *decay = place + 2 * of_weights, *correction = decay + s.seq, *dcorrection = correction + s.seq,
        *state = dcorrection + s.seq, *row = state + of_state;
  std::vector<double> terms(static_cast<size_t>(s.seq));

  const CausalConvolution convolution = ConvolutionOf(s, w);
  ConvolveAll(convolution, packed, made);
  NormaliseHeads(s, made, norms);
  NormAndGateBackward(s, w.gamma, dy, packed + s.convolved(), scanned, statistics, ds,
                      dpacked + s.convolved(), sums.gamma);
  std::fill_n(gradients, tokens * s.convolved(), 0.0f);
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    for (int64_t head = 0; head < s.value_heads; ++head) {
      const int64_t first = sequence * s.seq, column = first * s.inner() + head * s.value_dim;
      float* dq = gradients + first * s.convolved() + head / s.values_of_key() * s.key_dim;
      const HeadGradients of = {ds + column, residuals + column, dq, dq + s.keys(),
                                gradients + first * s.convolved() + 2 * s.keys() + head * s.value_dim};
      const HeadOfSequence in = HeadAt(s, sequence, head, made);
      const int64_t b = first * s.packed() + s.convolved() + s.inner() + head;
      FindFactors(s, w, head, packed + b, decay, correction);
      std::copy_n(correction, s.seq, dcorrection);
      ScanAgain(s, in, decay, correction, of, state, row, terms.data());
      ScanBackwards(s, in, decay, dcorrection, of, state, row, terms.data());
      ScanForKeys(s, in, decay, correction, of, state, terms.data());
      FactorGradients(s, w, head, packed + b, terms.data(), correction, dcorrection, dpacked + b, sums);
    }
  }
  NormaliseHeadsBackward(s, made, norms, gradients);
  const ColumnsOfGradients all[] = {{0, s.convolved(), gradients}};
  ConvolutionWeights(convolution, packed, all, row, sums.taps, /*dbias=*/nullptr);
  ConvolutionInputs(convolution, all, row, dpacked);
  Store<T>(s, sums, op.accumulate, operands, 1);
}

}  // namespace

Status Run(Scratch& scratch, const DeltaNetForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Forward<decltype(element)>(scratch, op, operands); });
  return Ok();
}

Status Run(Scratch& scratch, const DeltaNetBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Backward<decltype(element)>(scratch, op, operands); });
  return Ok();
}

}  // namespace windtunnel::cpu
