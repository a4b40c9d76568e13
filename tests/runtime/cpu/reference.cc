#include "tests/runtime/cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace windtunnel::reference {
namespace {

constexpr double kEpsilon = 1e-5;

Values Zeros(int64_t n) { return Values(static_cast<size_t>(n), 0.0); }

double Phi(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double Density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi); }
double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Mean and 1 / deviation of a row; for RMS norm 0 and 1 / rms.
struct RowStatistics {
  double mean, inverse;
};
RowStatistics StatisticsOf(NormKind kind, int64_t n, const double* x) {
  double mean = 0.0, variance = 0.0;
  if (kind == NormKind::kLayerNorm) {
    for (int64_t i = 0; i < n; ++i) mean += x[i] / static_cast<double>(n);
  }
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
  return {mean, 1.0 / std::sqrt(variance + kEpsilon)};
}

// Element indices of the packed projections.
struct Packed {
  const AttentionShape& s;
  int64_t At(int64_t b, int64_t t, int64_t head, int64_t i) const {
    return (b * s.rows() + t) * s.packed() + head * s.head_dim + i;
  }
  int64_t Query(int64_t b, int64_t t, int64_t head, int64_t i) const { return At(b, t, head, i); }
  int64_t Key(int64_t b, int64_t t, int64_t head, int64_t i) const {
    return At(b, t, s.heads + head / (s.heads / s.kv_heads), i);
  }
  int64_t Value(int64_t b, int64_t t, int64_t head, int64_t i) const {
    return At(b, t, s.heads + s.kv_heads + head / (s.heads / s.kv_heads), i);
  }
  int64_t Out(int64_t b, int64_t t, int64_t head, int64_t i) const {
    return (b * s.seq + t) * s.heads * s.head_dim + head * s.head_dim + i;
  }
  int64_t Row(int64_t b, int64_t head, int64_t t) const { return (b * s.heads + head) * s.seq + t; }
};

Values Rotate(const AttentionShape& s, const Values& qkv, double sign) {
  Values out = qkv;
  const Packed at{s};
  const int64_t half = s.head_dim / 2;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t t = 0; t < s.seq; ++t)
      for (int64_t head = 0; head < s.heads + s.kv_heads; ++head)
        for (int64_t i = 0; i < half; ++i) {
          const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim);
          const double theta = sign * static_cast<double>(t) * std::pow(10'000.0, exponent);
          const int64_t first = at.At(b, t, head, i), second = at.At(b, t, head, i + half);
          out[first] = qkv[first] * std::cos(theta) - qkv[second] * std::sin(theta);
          out[second] = qkv[second] * std::cos(theta) + qkv[first] * std::sin(theta);
        }
  return out;
}

}  // namespace

Values Gemm(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, const Values& a,
            const Values& b) {
  Values c = Zeros(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        c[i * n + j] += a[transpose_a ? l * m + i : i * k + l] * b[transpose_b ? j * k + l : l * n + j];
  return c;
}

Values Norm(NormKind kind, int64_t rows, int64_t columns, const Values& x, const Values& gamma,
            const Values& beta) {
  Values y = Zeros(rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    const RowStatistics s = StatisticsOf(kind, columns, x.data() + row * columns);
    for (int64_t i = 0; i < columns; ++i) {
      const double h = (x[row * columns + i] - s.mean) * s.inverse;
      y[row * columns + i] = h * gamma[i] + (beta.empty() ? 0.0 : beta[i]);
    }
  }
  return y;
}

NormGradients NormBackward(NormKind kind, int64_t rows, int64_t columns, const Values& dy, const Values& x,
                           const Values& gamma) {
  NormGradients g{Zeros(rows * columns), Zeros(columns), Zeros(columns)};
  for (int64_t row = 0; row < rows; ++row) {
    const RowStatistics s = StatisticsOf(kind, columns, x.data() + row * columns);
    double mean_g = 0.0, mean_gh = 0.0;
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t at = row * columns + i;
      const double h = (x[at] - s.mean) * s.inverse;
      g.dgamma[i] += dy[at] * h;
      g.dbeta[i] += dy[at];
      if (kind == NormKind::kLayerNorm) mean_g += dy[at] * gamma[i] / static_cast<double>(columns);
      mean_gh += dy[at] * gamma[i] * h / static_cast<double>(columns);
    }
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t at = row * columns + i;
      const double h = (x[at] - s.mean) * s.inverse;
      g.dx[at] = (dy[at] * gamma[i] - mean_g - h * mean_gh) * s.inverse;
    }
  }
  return g;
}

AttentionResult Attention(const AttentionShape& s, const Values& qkv) {
  const Packed at{s};
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  AttentionResult r{Zeros(s.out_elements()), Zeros(s.batch * s.heads * s.seq * s.keys()),
                    Zeros(s.batch * s.heads * s.seq)};
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t t = 0; t < s.seq; ++t) {
        double* p = r.probabilities.data() + at.Row(b, head, t) * s.keys();
        double sum = 0.0;
        for (int64_t u = s.FirstKey(t); u < s.EndOfKeys(t); ++u) {
          double score = 0.0;
          for (int64_t i = 0; i < s.head_dim; ++i)
            score += qkv[at.Query(b, t, head, i)] * qkv[at.Key(b, u, head, i)];
          p[u] = std::exp(score * scale + (s.bias ? s.bias(head, t, u) : 0.0));
          sum += p[u];
        }
        r.log_sum_exp[at.Row(b, head, t)] = std::log(sum);
        for (int64_t u = s.FirstKey(t); u < s.EndOfKeys(t); ++u) {
          p[u] /= sum;
          for (int64_t i = 0; i < s.head_dim; ++i)
            r.out[at.Out(b, t, head, i)] += p[u] * s.Factor(b, head, t, u) * qkv[at.Value(b, u, head, i)];
        }
      }
  return r;
}

Values AttentionBackward(const AttentionShape& s, const Values& dout, const Values& qkv, Values* dscores) {
  const Packed at{s};
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  const AttentionResult r = Attention(s, qkv);
  Values dqkv = Zeros(s.qkv_elements());
  if (dscores != nullptr) *dscores = Zeros(s.batch * s.heads * s.seq * s.keys());
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t t = 0; t < s.seq; ++t) {
        const double* p = r.probabilities.data() + at.Row(b, head, t) * s.keys();
        Values dp = Zeros(s.EndOfKeys(t));
        double mean = 0.0;
        for (int64_t u = s.FirstKey(t); u < s.EndOfKeys(t); ++u) {
          const double factor = s.Factor(b, head, t, u);
          for (int64_t i = 0; i < s.head_dim; ++i) {
            dp[u] += factor * dout[at.Out(b, t, head, i)] * qkv[at.Value(b, u, head, i)];
            dqkv[at.Value(b, u, head, i)] += p[u] * factor * dout[at.Out(b, t, head, i)];
          }
          mean += p[u] * dp[u];
        }
        for (int64_t u = s.FirstKey(t); u < s.EndOfKeys(t); ++u) {
          const double ds = p[u] * (dp[u] - mean) * scale;
          if (dscores != nullptr) (*dscores)[at.Row(b, head, t) * s.keys() + u] = ds / scale;
          for (int64_t i = 0; i < s.head_dim; ++i) {
            dqkv[at.Query(b, t, head, i)] += ds * qkv[at.Key(b, u, head, i)];
            dqkv[at.Key(b, u, head, i)] += ds * qkv[at.Query(b, t, head, i)];
          }
        }
      }
  return dqkv;
}

Values Rope(const AttentionShape& shape, const Values& qkv) { return Rotate(shape, qkv, 1.0); }
// A rotation's transpose is the rotation by the opposite angle.
Values RopeBackward(const AttentionShape& shape, const Values& dqkv) { return Rotate(shape, dqkv, -1.0); }

namespace {

// The value and the derivative of a function at one point.
struct Point {
  double value, slope;
};

Point GeluAt(double x) { return {x * Phi(x), Phi(x) + x * Density(x)}; }
Point SiluAt(double x, double steepness) {
  const double s = Sigmoid(steepness * x);
  return {x * s, s * (1.0 + steepness * x * (1.0 - s))};
}
// x clamped to [lowest, highest].
Point ClampAt(double x, double lowest, double highest) {
  return {std::clamp(x, lowest, highest), x < lowest || x > highest ? 0.0 : 1.0};
}
Point FunctionAt(ActivationKind kind, double x) {
  if (kind == ActivationKind::kGelu) return GeluAt(x);
  const double positive = std::max(x, 0.0), step = x > 0.0 ? 1.0 : 0.0;
  if (kind == ActivationKind::kRelu) return {positive, step};
  return {positive * positive, 2.0 * positive};
}
Point GateAt(ActivationKind kind, double gate) {
  if (kind == ActivationKind::kSwiglu) return SiluAt(gate, 1.0);
  if (kind == ActivationKind::kGeglu) return GeluAt(gate);
  const Point clamped = ClampAt(gate, -std::numeric_limits<double>::infinity(), 7.0);
  const Point silu = SiluAt(clamped.value, 1.702);
  return {silu.value, silu.slope * clamped.slope};
}
Point GatedAt(ActivationKind kind, double up) {
  if (kind != ActivationKind::kClampedSwiglu) return {up, 1.0};
  const Point clamped = ClampAt(up, -7.0, 7.0);
  return {clamped.value + 1.0, clamped.slope};
}

}  // namespace

Values Activation(ActivationKind kind, int64_t rows, int64_t columns, const Values& in) {
  Values out = Zeros(rows * columns);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < columns; ++i) {
      double& y = out[row * columns + i];
      if (IsGated(kind)) {
        const double gate = in[row * 2 * columns + i], up = in[row * 2 * columns + columns + i];
        y = GateAt(kind, gate).value * GatedAt(kind, up).value;
      } else {
        y = FunctionAt(kind, in[row * columns + i]).value;
      }
    }
  return out;
}

Values ActivationBackward(ActivationKind kind, int64_t rows, int64_t columns, const Values& dout,
                          const Values& in) {
  Values din = Zeros(static_cast<int64_t>(in.size()));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < columns; ++i) {
      const double dy = dout[row * columns + i];
      if (IsGated(kind)) {
        const int64_t gate_at = row * 2 * columns + i, up_at = gate_at + columns;
        const Point gate = GateAt(kind, in[gate_at]), up = GatedAt(kind, in[up_at]);
        din[gate_at] = dy * gate.slope * up.value;
        din[up_at] = dy * gate.value * up.slope;
      } else {
        din[row * columns + i] = dy * FunctionAt(kind, in[row * columns + i]).slope;
      }
    }
  return din;
}

LossResult CrossEntropy(int64_t rows, int64_t vocab, const Values& logits,
                        const std::vector<int32_t>& targets) {
  LossResult r{0.0, Zeros(rows * vocab)};
  for (int64_t row = 0; row < rows; ++row) {
    const double* x = logits.data() + row * vocab;
    const double maximum = *std::max_element(x, x + vocab);
    double sum = 0.0;
    for (int64_t j = 0; j < vocab; ++j) sum += std::exp(x[j] - maximum);
    r.loss += (maximum + std::log(sum) - x[targets[row]]) / static_cast<double>(rows);
    for (int64_t j = 0; j < vocab; ++j) {
      const double hit = j == targets[row] ? 1.0 : 0.0;
      r.gradient[row * vocab + j] = (std::exp(x[j] - maximum) / sum - hit) / static_cast<double>(rows);
    }
  }
  return r;
}

LossResult MeanSquaredError(const Values& prediction, const Values& target) {
  LossResult r{0.0, Zeros(static_cast<int64_t>(prediction.size()))};
  const double count = static_cast<double>(prediction.size());
  for (size_t i = 0; i < prediction.size(); ++i) {
    const double difference = prediction[i] - target[i];
    r.loss += difference * difference / count;
    r.gradient[i] = 2.0 * difference / count;
  }
  return r;
}

void OptimizerUpdate(const OptimizerSpec& spec, int64_t step, const Values& gradient, Values& parameter,
                     Values& m, Values& v) {
  const double t = static_cast<double>(step + 1);
  for (size_t i = 0; i < gradient.size(); ++i) {
    double& p = parameter[i];
    double g = gradient[i];
    if (spec.kind == OptimizerKind::kAdamW) {
      p -= spec.lr * spec.weight_decay * p;
    } else {
      g += spec.weight_decay * p;
    }
    if (spec.kind == OptimizerKind::kSgd) {
      if (spec.momentum != 0.0) g = m[i] = spec.momentum * m[i] + g;
      p -= spec.lr * g;
      continue;
    }
    m[i] = spec.beta1 * m[i] + (1.0 - spec.beta1) * g;
    v[i] = spec.beta2 * v[i] + (1.0 - spec.beta2) * g * g;
    const double m_hat = m[i] / (1.0 - std::pow(spec.beta1, t)),
                 v_hat = v[i] / (1.0 - std::pow(spec.beta2, t));
    p -= spec.lr * m_hat / (std::sqrt(v_hat) + spec.eps);
  }
}

}  // namespace windtunnel::reference
