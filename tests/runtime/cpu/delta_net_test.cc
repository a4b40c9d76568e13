// The cpu device's gated delta networks against their definition (plan/delta_net_ops.h) in double precision:
// what forward returns, and gradients as differences of it.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "plan/op.h"
#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomValues;
using test::RelativeError;
using test::TensorOf;
using test::TypeOf;
using test::Values;

constexpr double kEpsilon = 1e-5;

// What an operator reads: packed, then the parameters.
using Inputs = std::array<Values, 5>;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Silu(double x) { return x * Sigmoid(x); }

// What the convolution makes, activated, with the heads of queries and keys normalised and queries scaled.
Values Convolved(const DeltaNetShape& s, const Inputs& in) {
  const auto& [packed, conv, a_log, dt_bias, gamma] = in;
  Values made(static_cast<size_t>(s.tokens() * s.convolved()));
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t c = 0; c < s.convolved(); ++c) {
      double v = 0;
      for (int64_t j = 0; j < s.conv; ++j) {
        const int64_t back = s.conv - 1 - j;
        if (token % s.seq >= back) v += conv[c * s.conv + j] * packed[(token - back) * s.packed() + c];
      }
      made[token * s.convolved() + c] = Silu(v);
    }
    for (int64_t head = 0; head < 2 * s.key_heads; ++head) {
      double* x = made.data() + token * s.convolved() + head * s.key_dim;
      double squares = 0;
      for (int64_t i = 0; i < s.key_dim; ++i) squares += x[i] * x[i];
      const double scale = head < s.key_heads ? 1 / std::sqrt(static_cast<double>(s.key_dim)) : 1;
      for (int64_t i = 0; i < s.key_dim; ++i) x[i] *= scale / std::sqrt(squares + 1e-6);
    }
  }
  return made;
}

struct Reference {
  Values y, scanned;
};

// Token by token, as the definition has it.
Reference Definition(const DeltaNetShape& s, const Inputs& in) {
  const auto& [packed, conv, a_log, dt_bias, gamma] = in;
  const Values made = Convolved(s, in);
  Reference result{Values(static_cast<size_t>(s.tokens() * s.inner())), {}};
  result.scanned = result.y;
  const int64_t factors = s.convolved() + s.inner();
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t head = 0; head < s.value_heads; ++head) {
      Values state(static_cast<size_t>(s.key_dim * s.value_dim));
      for (int64_t t = 0; t < s.seq; ++t) {
        const int64_t token = b * s.seq + t;
        const double* of_token = packed.data() + token * s.packed() + factors + head;
        const double correction = Sigmoid(of_token[0]);
        const double raw = of_token[s.value_heads] + dt_bias[head];
        const double decay = std::exp(-std::exp(a_log[head]) * std::log1p(std::exp(raw)));
        const double* row = made.data() + token * s.convolved();
        const double* q = row + head / s.values_of_key() * s.key_dim;
        const double *k = q + s.keys(), *v = row + 2 * s.keys() + head * s.value_dim;
        for (double& x : state) x *= decay;
        for (int64_t j = 0; j < s.value_dim; ++j) {
          double seen = 0, sum = 0;
          for (int64_t i = 0; i < s.key_dim; ++i) seen += state[i * s.value_dim + j] * k[i];
          for (int64_t i = 0; i < s.key_dim; ++i) {
            double& x = state[i * s.value_dim + j];
            x += k[i] * correction * (v[j] - seen);
            sum += x * q[i];
          }
          result.scanned[token * s.inner() + head * s.value_dim + j] = sum;
        }
      }
    }
  for (int64_t token = 0; token < s.tokens(); ++token)
    for (int64_t head = 0; head < s.value_heads; ++head) {
      const int64_t first = head * s.value_dim, at = token * s.inner() + first;
      double squares = 0;
      for (int64_t j = 0; j < s.value_dim; ++j) squares += result.scanned[at + j] * result.scanned[at + j];
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(s.value_dim) + kEpsilon);
      for (int64_t j = 0; j < s.value_dim; ++j)
        result.y[at + j] = result.scanned[at + j] * inverse * gamma[j] *
                           Silu(packed[token * s.packed() + s.convolved() + first + j]);
    }
  return result;
}

Inputs RandomInputs(const DeltaNetShape& s) {
  Inputs in = {RandomValues(1, s.tokens() * s.packed()), RandomValues(2, s.convolved() * s.conv, 0.5),
               RandomValues(3, s.value_heads, 0.5), RandomValues(4, s.value_heads, 0.5),
               RandomValues(5, s.value_dim)};
  for (double& gamma : in[4]) gamma += 1;
  return in;
}

double LossOf(const DeltaNetShape& s, const Inputs& in, const Values& weight) {
  const Values y = Definition(s, in).y;
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
  return sum;
}

constexpr double kStep = 1e-5;

// The derivatives of sum(weight y) by each input.
Inputs Differences(const DeltaNetShape& s, Inputs in, const Values& weight) {
  Inputs gradients;
  for (size_t i = 0; i < in.size(); ++i)
    for (double& x : in[i]) {
      const double at = x;
      x = at + kStep;
      const double more = LossOf(s, in, weight);
      x = at - kStep;
      gradients[i].push_back((more - LossOf(s, in, weight)) / (2 * kStep));
      x = at;
    }
  return gradients;
}

template <typename T>
using Gradients = std::array<TensorOf<T>, 5>;

template <typename T>
Gradients<T> Room(const DeltaNetShape& s) {
  return {TensorOf<T>(s.tokens() * s.packed()), TensorOf<T>(s.convolved() * s.conv),
          TensorOf<T>(s.value_heads), TensorOf<T>(s.value_heads), TensorOf<T>(s.value_dim)};
}

// Runs forward, and backward if `dy` is not null, in type T.
template <typename T>
void RunKernels(DeltaNetShape s, const Inputs& in, const Values* dy, bool accumulate, TensorOf<T>& y,
                TensorOf<T>& scanned, Gradients<T>* gradients) {
  s.dtype = TypeOf<T>();
  std::vector<TensorOf<T>> inputs;
  std::vector<TensorRef> reads;
  for (const Values& values : in) inputs.emplace_back(values);
  for (auto& input : inputs) reads.push_back(input.ref());
  TensorOf<float> statistics(s.tokens() * s.value_heads);
  TensorOf<float> workspace(DeltaNetWorkspaceElements(s, /*backward=*/true));
  ASSERT_EQ(Launch(DeltaNetForward{s, kEpsilon}, reads,
                   {y.ref(), scanned.ref(), statistics.ref(), workspace.ref()}),
            "");
  if (dy == nullptr) return;
  TensorOf<T> of_y(*dy);
  reads.insert(reads.begin(), of_y.ref());
  reads.push_back(scanned.ref());
  reads.push_back(statistics.ref());
  std::vector<TensorRef> writes;
  for (auto& gradient : *gradients) writes.push_back(gradient.ref());
  std::fill(workspace.begin(), workspace.end(), std::nanf(""));
  writes.push_back(workspace.ref());
  ASSERT_EQ(Launch(DeltaNetBackward{s, accumulate}, reads, writes), "");
}

struct Case {
  const char* name;
  DeltaNetShape shape;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class DeltaNetKernel : public testing::TestWithParam<Case> {
 protected:
  const DeltaNetShape shape = GetParam().shape;
  const int64_t elements = shape.tokens() * shape.inner();
};

INSTANTIATE_TEST_SUITE_P(Shapes, DeltaNetKernel,
                         testing::Values(Case{"one", {1, 1, 1, 1, 2, 2, 1}},
                                         Case{"repeated_keys", {2, 5, 1, 2, 4, 3, 4}},
                                         Case{"two_keys", {1, 6, 2, 4, 3, 2, 2}},
                                         Case{"heads_alone", {2, 3, 3, 3, 5, 2, 3}},
                                         Case{"wide", {1, 4, 1, 2, 17, 5, 4}}));

TEST_P(DeltaNetKernel, ComputesItsDefinition) {
  const Inputs in = RandomInputs(shape);
  TensorOf<float> y(elements), scanned(elements);
  RunKernels<float>(shape, in, nullptr, false, y, scanned, nullptr);
  const Reference expected = Definition(shape, in);
  EXPECT_LT(RelativeError(scanned, expected.scanned), 2e-6);
  EXPECT_LT(RelativeError(y, expected.y), 3e-6);
}

TEST_P(DeltaNetKernel, GradientsAreThoseOfTheDefinition) {
  const Inputs in = RandomInputs(shape);
  const Values dy = RandomValues(8, elements);
  const Inputs expected = Differences(shape, in, dy);
  TensorOf<float> y(elements), scanned(elements);
  Gradients<float> gradients = Room<float>(shape);
  RunKernels<float>(shape, in, &dy, false, y, scanned, &gradients);
  for (size_t i = 0; i < gradients.size(); ++i)
    EXPECT_LT(RelativeError(gradients[i], expected[i]), 2e-5) << "input " << i;
  // Added to what was there; the gradient of `packed` is overwritten.
  RunKernels<float>(shape, in, &dy, true, y, scanned, &gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    Values twice = expected[i];
    for (double& value : twice) value *= i > 0 ? 2 : 1;
    EXPECT_LT(RelativeError(gradients[i], twice), 2e-5) << "input " << i;
  }
}

TEST(DeltaNet, RoundsToSixteenBitsOnlyWhatItWrites) {
  const DeltaNetShape shape{2, 40, 2, 4, 16, 8, 4};
  Inputs in = RandomInputs(shape);
  for (Values& values : in) values = test::RoundedTo<test::BFloat16>(values);
  const int64_t elements = shape.tokens() * shape.inner();
  TensorOf<test::BFloat16> y(elements), scanned(elements);
  RunKernels<test::BFloat16>(shape, in, nullptr, false, y, scanned, nullptr);
  const Reference expected = Definition(shape, in);
  EXPECT_LT(RelativeError(scanned, expected.scanned), 3e-3);
  EXPECT_LT(RelativeError(y, expected.y), 4e-3);
}

// The derivatives by the only head's a_log and dt_bias: sums over the whole sequence.
void ExpectDecayGradients(const DeltaNetShape& shape, const Inputs& in, double tolerance) {
  const int64_t elements = shape.tokens() * shape.inner();
  const Values dy = RandomValues(8, elements);
  TensorOf<float> y(elements), scanned(elements);
  Gradients<float> gradients = Room<float>(shape);
  RunKernels<float>(shape, in, &dy, false, y, scanned, &gradients);
  for (const size_t parameter : {2, 3}) {
    Inputs at = in;
    at[parameter][0] += kStep;
    const double more = LossOf(shape, at, dy);
    at[parameter][0] -= 2 * kStep;
    const double expected = (more - LossOf(shape, at, dy)) / (2 * kStep);
    EXPECT_NEAR(gradients[parameter][0], expected, tolerance * std::fabs(expected)) << parameter;
  }
}

// Terms of long sequences nearly cancel.
TEST(DeltaNet, LongSequencesKeepTheirPrecision) {
  const DeltaNetShape shape{1, 600, 1, 1, 8, 4, 4};
  ExpectDecayGradients(shape, RandomInputs(shape), 1e-4);
}

// Decays of e^-16 a step: nearly all that a token gives is its own output, and what decays touch is the rest.
TEST(DeltaNet, FastDecaysKeepTheirPrecision) {
  const DeltaNetShape shape{1, 1500, 1, 1, 8, 4, 4};
  Inputs in = RandomInputs(shape);
  in[2][0] = std::log(16.0);
  for (const double bias : {-2.0, 0.0}) {
    in[3][0] = bias;
    ExpectDecayGradients(shape, in, 2e-3);
  }
}

}  // namespace
}  // namespace windtunnel
