#include "runtime/cpu/head_norm.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::Plus;
using test::RandomValues;
using test::RelativeError;
using test::TensorOf;
using test::Values;

struct HeadNormCase {
  int64_t tokens, heads, kv_heads, head_dim;
  bool whole = false;

  int64_t packed() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t elements() const { return tokens * packed(); }
  int64_t query_width() const { return whole ? heads * head_dim : head_dim; }
  int64_t key_width() const { return whole ? kv_heads * head_dim : head_dim; }
  int64_t rows() const { return whole ? 2 : heads + kv_heads; }
};

// The reference's RMS norm, applied to one head, or all heads of a token, at a time.
struct Reference {
  HeadNormCase c;
  Values x, query_gamma, key_gamma;

  // Calls f(the first element, how many, whether they are queries).
  template <typename F>
  void ForEachRow(F f) const {
    for (int64_t token = 0; token < c.tokens; ++token) {
      const int64_t first = token * c.packed(), keys = c.heads * c.head_dim;
      for (int64_t at = 0; at < keys; at += c.query_width()) f(first + at, c.query_width(), true);
      for (int64_t at = 0; at < c.kv_heads * c.head_dim; at += c.key_width())
        f(first + keys + at, c.key_width(), false);
    }
  }
  static Values Part(const Values& values, int64_t first, int64_t n) {
    return {values.begin() + first, values.begin() + first + n};
  }
  Values Forward() const {
    Values y = x;
    ForEachRow([&](int64_t first, int64_t n, bool is_query) {
      const Values row = reference::Norm(NormKind::kRmsNorm, 1, n, Part(x, first, n),
                                         is_query ? query_gamma : key_gamma, {});
      std::copy(row.begin(), row.end(), y.begin() + first);
    });
    return y;
  }
  struct Gradients {
    Values dx, queries, keys;
  };
  Gradients Backward(const Values& dy) const {
    Gradients g{dy, Values(query_gamma.size()), Values(key_gamma.size())};
    ForEachRow([&](int64_t first, int64_t n, bool is_query) {
      const auto row = reference::NormBackward(NormKind::kRmsNorm, 1, n, Part(dy, first, n),
                                               Part(x, first, n), is_query ? query_gamma : key_gamma);
      std::copy(row.dx.begin(), row.dx.end(), g.dx.begin() + first);
      Values& sum = is_query ? g.queries : g.keys;
      sum = Plus(sum, row.dgamma);
    });
    return g;
  }
};

template <typename T>
class HeadNormKernel : public testing::Test {};
using Elements = testing::Types<float, test::BFloat16, test::Float16>;
TYPED_TEST_SUITE(HeadNormKernel, Elements);

TYPED_TEST(HeadNormKernel, MatchesTheReferenceForwardAndBackward) {
  const double tolerance = sizeof(TypeParam) == 4                         ? 1e-6
                           : test::TypeOf<TypeParam>() == DType::kFloat16 ? 1e-3
                                                                          : 8e-3;
  for (const HeadNormCase& c :
       {HeadNormCase{5, 4, 2, 16}, HeadNormCase{1, 3, 3, 7}, HeadNormCase{9, 8, 1, 128},
        HeadNormCase{5, 4, 2, 16, true}, HeadNormCase{1, 3, 3, 7, true}, HeadNormCase{9, 8, 1, 128, true}}) {
    const auto stored = [](const Values& values) { return test::ValuesOf(TensorOf<TypeParam>(values)); };
    const Reference reference{c, stored(RandomValues(1, c.elements(), 3.0)),
                              stored(RandomValues(2, c.query_width())),
                              stored(RandomValues(3, c.key_width()))};
    TensorOf<TypeParam> x = reference.x, queries = reference.query_gamma, keys = reference.key_gamma,
                        y(c.elements());
    test::Tensor statistics(c.tokens * c.rows());
    const DType dtype = test::TypeOf<TypeParam>();
    HeadNormForward forward{c.tokens, c.heads, c.kv_heads, c.head_dim, dtype};
    forward.whole = c.whole;
    ASSERT_EQ(Launch(forward, {x.ref(), queries.ref(), keys.ref()}, {y.ref(), statistics.ref()}), "");
    EXPECT_LT(RelativeError(y, reference.Forward()), tolerance);

    const Values gradient = stored(RandomValues(4, c.elements())),
                 queries_before = stored(RandomValues(5, c.query_width())),
                 keys_before = stored(RandomValues(6, c.key_width()));
    const auto expected = reference.Backward(gradient);
    for (bool accumulate : {false, true}) {
      for (bool in_place : {false, true}) {
        TensorOf<TypeParam> dy = gradient, dx(c.elements()), dqueries = queries_before, dkeys = keys_before;
        HeadNormBackward backward{c.tokens, c.heads, c.kv_heads, c.head_dim, accumulate, dtype};
        backward.whole = c.whole;
        ASSERT_EQ(Launch(backward, {dy.ref(), x.ref(), queries.ref(), keys.ref(), statistics.ref()},
                         {in_place ? dy.ref() : dx.ref(), dqueries.ref(), dkeys.ref()}),
                  "");
        const auto with = [&](const Values& before, const Values& sum) {
          return accumulate ? Plus(sum, before) : sum;
        };
        EXPECT_LT(RelativeError(in_place ? dy : dx, expected.dx), tolerance);
        EXPECT_LT(RelativeError(dqueries, with(queries_before, expected.queries)), tolerance);
        EXPECT_LT(RelativeError(dkeys, with(keys_before, expected.keys)), tolerance);
        TensorOf<TypeParam> frozen_dy = gradient;
        HeadNormBackward frozen = backward;
        frozen.frozen = true;
        ASSERT_EQ(Launch(frozen, {frozen_dy.ref(), x.ref(), queries.ref(), keys.ref(), statistics.ref()},
                         {in_place ? frozen_dy.ref() : dx.ref()}),
                  "");
        EXPECT_LT(RelativeError(in_place ? frozen_dy : dx, expected.dx), tolerance);
      }
    }
  }
}

TEST(HeadNormKernelEpsilon, IsTheOperators) {
  // One head each of queries, keys and values, of one element.
  test::Tensor x = Values{3, 4, 1}, gamma = Values{1}, y(3), statistics(2);
  HeadNormForward op{.tokens = 1, .heads = 1, .kv_heads = 1, .head_dim = 1};
  op.epsilon = 27;  // 3^2 + 27 = 6^2
  ASSERT_EQ(Launch(op, {x.ref(), gamma.ref(), gamma.ref()}, {y.ref(), statistics.ref()}), "");
  EXPECT_FLOAT_EQ(y[0], 0.5);
}

}  // namespace
}  // namespace windtunnel
