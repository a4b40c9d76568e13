// The cpu device's state space models against their definition (plan/state_space_ops.h) in double precision:
// what forward returns, and gradients as differences of it.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

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
using Inputs = std::array<Values, 7>;

double Silu(double x) { return x / (1 + std::exp(-x)); }

struct Reference {
  Values y, scanned;
};

// Column by column and token by token, as the definition has it.
Reference Definition(const StateSpaceShape& s, const Inputs& in) {
  const auto& [packed, conv, conv_bias, dt_bias, a_log, d, gamma] = in;
  const auto at = [&, &packed = packed](int64_t token, int64_t column) {
    return packed[static_cast<size_t>(token * s.packed() + column)];
  };
  Values u(static_cast<size_t>(s.tokens() * s.convolved()));
  for (int64_t token = 0; token < s.tokens(); ++token)
    for (int64_t c = 0; c < s.convolved(); ++c) {
      double v = conv_bias[c];
      for (int64_t j = 0; j < s.conv; ++j) {
        const int64_t back = s.conv - 1 - j;
        if (token % s.seq >= back) v += conv[c * s.conv + j] * at(token - back, s.inner() + c);
      }
      u[token * s.convolved() + c] = Silu(v);
    }
  Reference result{Values(static_cast<size_t>(s.tokens() * s.inner())), {}};
  result.scanned = result.y;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t head = 0; head < s.heads; ++head) {
      Values h(static_cast<size_t>(s.head_dim * s.state));
      const int64_t group = head / s.heads_of_group();
      for (int64_t t = 0; t < s.seq; ++t) {
        const int64_t token = b * s.seq + t;
        const double raw = at(token, s.packed() - s.heads + head) + dt_bias[head];
        const double step = std::log1p(std::exp(raw)), decay = std::exp(-step * std::exp(a_log[head]));
        const double* row = u.data() + token * s.convolved();
        const double *of_b = row + s.inner() + group * s.state, *of_c = of_b + s.shared();
        for (int64_t i = 0; i < s.head_dim; ++i) {
          const double x = row[head * s.head_dim + i];
          double sum = d[head] * x;
          for (int64_t k = 0; k < s.state; ++k) {
            double& state = h[i * s.state + k];
            state = decay * state + step * x * of_b[k];
            sum += state * of_c[k];
          }
          result.scanned[token * s.inner() + head * s.head_dim + i] = sum;
        }
      }
    }
  const int64_t of_group = s.inner() / s.groups;
  for (int64_t token = 0; token < s.tokens(); ++token)
    for (int64_t group = 0; group < s.groups; ++group) {
      double squares = 0;
      const auto gated = [&](int64_t i) {
        const int64_t column = group * of_group + i;
        return result.scanned[token * s.inner() + column] * Silu(at(token, column));
      };
      for (int64_t i = 0; i < of_group; ++i) squares += gated(i) * gated(i);
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(of_group) + kEpsilon);
      for (int64_t i = 0; i < of_group; ++i) {
        const int64_t column = group * of_group + i;
        result.y[token * s.inner() + column] = gated(i) * inverse * gamma[column];
      }
    }
  return result;
}

Inputs RandomInputs(const StateSpaceShape& s) {
  Inputs in = {RandomValues(1, s.tokens() * s.packed()),
               RandomValues(2, s.convolved() * s.conv, 0.5),
               RandomValues(3, s.convolved(), 0.3),
               RandomValues(4, s.heads, 0.5),
               RandomValues(5, s.heads, 0.5),
               RandomValues(6, s.heads),
               RandomValues(7, s.inner())};
  for (double& gamma : in[6]) gamma += 1;
  return in;
}

// The derivatives of sum(weight y) by each input.
Inputs Differences(const StateSpaceShape& s, Inputs in, const Values& weight) {
  const auto value = [&] {
    const Values y = Definition(s, in).y;
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  Inputs gradients;
  for (size_t i = 0; i < in.size(); ++i)
    for (double& x : in[i]) {
      const double at = x;
      x = at + kStep;
      const double more = value();
      x = at - kStep;
      gradients[i].push_back((more - value()) / (2 * kStep));
      x = at;
    }
  return gradients;
}

struct Case {
  const char* name;
  StateSpaceShape shape;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class StateSpaceKernel : public testing::TestWithParam<Case> {
 protected:
  const StateSpaceShape shape = GetParam().shape;

  // Runs forward, and backward if `dy` is not null, in type T.
  template <typename T>
  void Run(const Inputs& in, const Values* dy, bool accumulate, TensorOf<T>& y,
           std::array<TensorOf<T>, 7>* gradients) {
    StateSpaceForward forward{shape, kEpsilon};
    forward.dtype = TypeOf<T>();
    const int64_t elements = shape.tokens() * shape.inner();
    std::vector<TensorOf<T>> inputs;
    for (const Values& values : in) inputs.emplace_back(values);
    TensorOf<T> scanned(elements);
    TensorOf<float> statistics(shape.tokens() * shape.groups);
    TensorOf<float> workspace(StateSpaceWorkspaceElements(shape, /*backward=*/true));
    std::vector<TensorRef> reads;
    for (auto& input : inputs) reads.push_back(input.ref());
    ASSERT_EQ(Launch(forward, reads, {y.ref(), scanned.ref(), statistics.ref(), workspace.ref()}), "");
    if (dy == nullptr) return;
    StateSpaceBackward backward{shape, accumulate};
    backward.dtype = TypeOf<T>();
    TensorOf<T> of_y(*dy);
    reads.insert(reads.begin(), of_y.ref());
    reads.push_back(scanned.ref());
    reads.push_back(statistics.ref());
    std::vector<TensorRef> writes;
    for (auto& gradient : *gradients) writes.push_back(gradient.ref());
    std::fill(workspace.begin(), workspace.end(), std::nanf(""));
    writes.push_back(workspace.ref());
    ASSERT_EQ(Launch(backward, reads, writes), "");
  }
};

INSTANTIATE_TEST_SUITE_P(Shapes, StateSpaceKernel,
                         testing::Values(Case{"one", {1, 1, 1, 1, 1, 1, 1, 1}},
                                         Case{"one_group", {2, 5, 2, 1, 3, 4, 4, 2}},
                                         Case{"groups", {1, 6, 4, 2, 2, 3, 2, 4}},
                                         Case{"heads_alone", {2, 3, 3, 3, 2, 5, 3, 8}},
                                         Case{"wide", {1, 4, 2, 1, 5, 17, 4, 4}}));

TEST_P(StateSpaceKernel, ComputesItsDefinition) {
  const Inputs in = RandomInputs(shape);
  TensorOf<float> y(shape.tokens() * shape.inner());
  Run<float>(in, nullptr, false, y, nullptr);
  EXPECT_LT(RelativeError(y, Definition(shape, in).y), 2e-6);
}

TEST_P(StateSpaceKernel, GradientsAreThoseOfTheDefinition) {
  const Inputs in = RandomInputs(shape);
  const int64_t elements = shape.tokens() * shape.inner();
  const Values dy = RandomValues(8, elements);
  const Inputs expected = Differences(shape, in, dy);
  TensorOf<float> y(elements);
  std::array<TensorOf<float>, 7> gradients = {TensorOf<float>(shape.tokens() * shape.packed()),
                                              TensorOf<float>(shape.convolved() * shape.conv),
                                              TensorOf<float>(shape.convolved()),
                                              TensorOf<float>(shape.heads),
                                              TensorOf<float>(shape.heads),
                                              TensorOf<float>(shape.heads),
                                              TensorOf<float>(shape.inner())};
  Run<float>(in, &dy, false, y, &gradients);
  for (size_t i = 0; i < gradients.size(); ++i)
    EXPECT_LT(RelativeError(gradients[i], expected[i]), 1e-5) << "input " << i;
  // Added to what was there; the gradient of `packed` is overwritten.
  Run<float>(in, &dy, true, y, &gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    Values twice = expected[i];
    for (double& value : twice) value *= i > 0 ? 2 : 1;
    EXPECT_LT(RelativeError(gradients[i], twice), 1e-5) << "input " << i;
  }
}

TEST(StateSpace, RoundsToSixteenBitsOnlyWhatItWrites) {
  const StateSpaceShape shape{2, 40, 4, 2, 8, 16, 4, 16};
  Inputs in = RandomInputs(shape);
  for (Values& values : in) values = test::RoundedTo<test::BFloat16>(values);
  StateSpaceForward op{shape, kEpsilon};
  op.dtype = DType::kBFloat16;
  std::vector<TensorOf<test::BFloat16>> inputs;
  std::vector<TensorRef> reads;
  for (const Values& values : in) inputs.emplace_back(values);
  for (auto& input : inputs) reads.push_back(input.ref());
  const int64_t elements = shape.tokens() * shape.inner();
  TensorOf<test::BFloat16> y(elements), scanned(elements);
  TensorOf<float> statistics(shape.tokens() * shape.groups),
      workspace(StateSpaceWorkspaceElements(shape, /*backward=*/false));
  ASSERT_EQ(Launch(op, reads, {y.ref(), scanned.ref(), statistics.ref(), workspace.ref()}), "");
  const Reference expected = Definition(shape, in);
  EXPECT_LT(RelativeError(scanned, expected.scanned), 3e-3);
  EXPECT_LT(RelativeError(y, expected.y), 4e-3);
}

// The derivative of sum(dy y) by the only head's A_log, as a difference.
double DecayDifference(const StateSpaceShape& shape, const Inputs& in) {
  const Values dy = RandomValues(8, shape.tokens() * shape.inner());
  const auto loss = [&](double change) {
    Inputs at = in;
    at[4][0] += change;
    const Values y = Definition(shape, at).y;
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  return (loss(kStep) - loss(-kStep)) / (2 * kStep);
}

// The same by the kernels, in fp32.
double DecayGradient(const StateSpaceShape& shape, const Inputs& in) {
  const int64_t elements = shape.tokens() * shape.inner();
  std::vector<TensorOf<float>> inputs;
  std::vector<TensorRef> reads;
  for (const Values& values : in) inputs.emplace_back(values);
  for (auto& input : inputs) reads.push_back(input.ref());
  TensorOf<float> y(elements), scanned(elements), statistics(shape.tokens()),
      workspace(StateSpaceWorkspaceElements(shape, /*backward=*/true));
  EXPECT_EQ(Launch(StateSpaceForward{shape, kEpsilon}, reads,
                   {y.ref(), scanned.ref(), statistics.ref(), workspace.ref()}),
            "");
  TensorOf<float> dy(RandomValues(8, elements)), dpacked(shape.tokens() * shape.packed()),
      dconv(shape.convolved() * shape.conv), dbias(shape.convolved()), ddt(1), da(1), dd(1),
      dgamma(shape.inner());
  reads.insert(reads.begin(), dy.ref());
  reads.push_back(scanned.ref());
  reads.push_back(statistics.ref());
  EXPECT_EQ(Launch(StateSpaceBackward{shape, false}, reads,
                   {dpacked.ref(), dconv.ref(), dbias.ref(), ddt.ref(), da.ref(), dd.ref(), dgamma.ref(),
                    workspace.ref()}),
            "");
  return da[0];
}

// A long sequence: gradients of decays are sums over all of it, of terms that nearly cancel.
TEST(StateSpace, LongSequencesKeepTheirPrecision) {
  const StateSpaceShape shape{1, 600, 1, 1, 4, 8, 4, 64};
  const Inputs in = RandomInputs(shape);
  const double expected = DecayDifference(shape, in);
  EXPECT_NEAR(DecayGradient(shape, in), expected, 1e-4 * std::fabs(expected));
}

// Decays of e^-16 a step: nearly all that a token gives is its own output, and what decays touch is the rest.
TEST(StateSpace, FastDecaysKeepTheirPrecision) {
  const StateSpaceShape shape{1, 1500, 1, 1, 4, 8, 4, 64};
  Inputs in = RandomInputs(shape);
  in[4][0] = std::log(16.0);
  for (const double bias : {-2.0, 0.0}) {
    in[3][0] = bias;
    EXPECT_NEAR(DecayGradient(shape, in), DecayDifference(shape, in),
                2e-3 * std::fabs(DecayDifference(shape, in)))
        << bias;
  }
}

}  // namespace
}  // namespace windtunnel
