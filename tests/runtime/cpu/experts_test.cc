#include "runtime/cpu/experts.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::RandomValues;
using test::RefOf;
using test::RelativeError;
using test::Tensor;
using test::Values;
using test::ValuesOf;

// Three tokens, three experts, two experts per token, room for two tokens at each expert.
TEST(RouteKernel, ChoosesTheLargestAndGivesRoomInOrder) {
  Tensor logits = Values{3, 1, 2, 3, 3, 0, 5, 1, 4}, probabilities(9), weights(6);
  std::vector<int32_t> slots(6);
  ASSERT_EQ(
      Launch(RouteTokens{3, 3, 2, 2}, {logits.ref()}, {probabilities.ref(), weights.ref(), RefOf(slots)}),
      "");
  // Token 0: experts 0 and 2; token 1: 0 (the first of equals) and 1; token 2: 0, which is full, and 2.
  EXPECT_EQ(slots, (std::vector<int32_t>{0, 4, 1, 2, -1, 5}));
  const double p = 1 / (1 + std::exp(-1.0));
  EXPECT_LT(RelativeError(weights, Values{p, 1 - p, 0.5, 0.5, p, 1 - p}), 1e-6);
  EXPECT_LT(RelativeError(probabilities, Values{p, 0, 1 - p, 0.5, 0.5, 0, p, 0, 1 - p}), 1e-6);
}

// Three groups of two experts. A token's experts are in the two groups with the largest logits, even if other
// logits are larger than the second ones in those groups. Of equal groups the first are taken.
TEST(RouteKernel, ChoosesAmongTheBestGroups) {
  Tensor logits = Values{5, -9, 4, 3, 4, 4.5, 1, 1, 1, 1, 1, 1}, probabilities(12), weights(6);
  std::vector<int32_t> slots(6);
  const RouteTokens op{.tokens = 2, .experts = 6, .top_k = 3, .capacity = 2, .groups = 3, .top_k_groups = 2};
  ASSERT_EQ(Launch(op, {logits.ref()}, {probabilities.ref(), weights.ref(), RefOf(slots)}), "");
  EXPECT_EQ(slots, (std::vector<int32_t>{0, 10, 8, 1, 2, 4}));
  EXPECT_EQ(probabilities[2], 0);  // logit 4, of the group in between, which is not chosen
}

TEST(RouteKernel, WeighsASingleExpertAmongAll) {
  Tensor logits = Values{0, std::log(3.0)}, probabilities(2), weights(1);
  std::vector<int32_t> slots(1);
  ASSERT_EQ(
      Launch(RouteTokens{1, 2, 1, 1}, {logits.ref()}, {probabilities.ref(), weights.ref(), RefOf(slots)}),
      "");
  EXPECT_EQ(slots[0], 1);
  EXPECT_NEAR(weights[0], 0.75, 1e-6);
}

// The softmax is over all experts even if one group of several is chosen: it includes the other groups'
// experts.
TEST(RouteKernel, WeighsASingleExpertOfAGroupAmongAll) {
  Tensor logits = Values{0, 0, std::log(2.0), 0}, probabilities(4), weights(1);
  std::vector<int32_t> slots(1);
  const RouteTokens op{.tokens = 1, .experts = 4, .top_k = 1, .capacity = 1, .groups = 2, .top_k_groups = 1};
  ASSERT_EQ(Launch(op, {logits.ref()}, {probabilities.ref(), weights.ref(), RefOf(slots)}), "");
  EXPECT_EQ(slots[0], 2);
  EXPECT_NEAR(weights[0], 0.4, 1e-6);
  EXPECT_LT(RelativeError(probabilities, Values{0.2, 0.2, 0.4, 0.2}), 1e-6);
}

TEST(RouteKernel, RefusesRowsWithoutAPlace) {
  Tensor logits = Values{0, 1}, probabilities(2), weights(1);
  std::vector<int32_t> slots(1);
  EXPECT_NE(
      Launch(RouteTokens{1, 2, 1, 0}, {logits.ref()}, {probabilities.ref(), weights.ref(), RefOf(slots)})
          .find("capacity_factor"),
      std::string::npos);
}

// The gradient of sum(dweights . weights), by finite differences.
TEST(RouteKernel, BackwardIsTheDerivativeOfTheWeights) {
  for (int64_t top_k : {1, 2}) {
    const int64_t tokens = 4, experts = 5;
    const Values logits = RandomValues(1, tokens * experts), dweights = RandomValues(2, tokens * top_k);
    const auto objective = [&](const Values& at) {
      Tensor x = at, probabilities(tokens * experts), weights(tokens * top_k);
      std::vector<int32_t> slots(static_cast<size_t>(tokens * top_k));
      EXPECT_EQ(Launch(RouteTokens{tokens, experts, top_k, tokens}, {x.ref()},
                       {probabilities.ref(), weights.ref(), RefOf(slots)}),
                "");
      double sum = 0;
      for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * dweights[i];
      return sum;
    };
    Tensor x = logits, probabilities(tokens * experts), weights(tokens * top_k), g = dweights,
           dlogits(tokens * experts);
    std::vector<int32_t> slots(static_cast<size_t>(tokens * top_k));
    ASSERT_EQ(Launch(RouteTokens{tokens, experts, top_k, tokens}, {x.ref()},
                     {probabilities.ref(), weights.ref(), RefOf(slots)}),
              "");
    ASSERT_EQ(Launch(RouteTokensBackward{tokens, experts, top_k, tokens},
                     {g.ref(), probabilities.ref(), RefOf(slots)}, {dlogits.ref()}),
              "");
    Values expected;
    for (size_t i = 0; i < logits.size(); ++i) {
      Values more = logits, less = logits;
      more[i] += 1e-2;
      less[i] -= 1e-2;
      expected.push_back((objective(more) - objective(less)) / 2e-2);
    }
    EXPECT_LT(RelativeError(dlogits, expected), 1e-3) << top_k;
  }
}

// Token 0 is in slots 0 and 3, token 1 in slot 2 and dropped at its other expert; slot 1 is empty.
TEST(ExpertTokens, GoToTheirSlotsAndAreAddedUpByWeight) {
  std::vector<int32_t> slots = {0, 3, 2, -1};
  Tensor x = Values{1, 2, 3, 4}, rows(8), y(4), weights = Values{0.25, 0.75, 0.5, 0.5};
  const TokenRows shape{2, 2, 2, 4};
  ASSERT_EQ(Launch(DispatchTokens{shape}, {x.ref(), RefOf(slots)}, {rows.ref()}), "");
  EXPECT_EQ(ValuesOf(rows), (Values{1, 2, 0, 0, 3, 4, 1, 2}));
  Tensor out = Values{10, 20, 99, 99, 30, 40, 50, 60};
  ASSERT_EQ(Launch(CombineTokens{shape, true}, {out.ref(), RefOf(slots), weights.ref()}, {y.ref()}), "");
  EXPECT_EQ(ValuesOf(y), (Values{40, 50, 15, 20}));
  ASSERT_EQ(Launch(CombineTokens{shape, false}, {out.ref(), RefOf(slots)}, {y.ref()}), "");
  EXPECT_EQ(ValuesOf(y), (Values{60, 80, 30, 40}));
  Tensor dy = Values{1, 0, 0, 2}, dout(8), dweights(4);
  ASSERT_EQ(Launch(CombineBackward{shape}, {dy.ref(), out.ref(), RefOf(slots), weights.ref()},
                   {dout.ref(), dweights.ref()}),
            "");
  EXPECT_EQ(ValuesOf(dout), (Values{0.25, 0, 0, 0, 0, 1, 0.75, 0}));
  EXPECT_EQ(ValuesOf(dweights), (Values{10, 50, 80, 0}));
}

TEST(GroupedGemmKernel, MultipliesGroupByGroup) {
  Tensor a = Values{1, 2, 3, 4}, b = Values{5, 6, 7, 8}, c = Values{100, 200};
  GroupedGemm gemm{2, 1, 1, 2};
  gemm.transpose_b = true;
  ASSERT_EQ(Launch(gemm, {a.ref(), b.ref()}, {c.ref()}), "");
  EXPECT_EQ(ValuesOf(c), (Values{17, 53}));
  gemm.accumulate = true;
  ASSERT_EQ(Launch(gemm, {a.ref(), b.ref()}, {c.ref()}), "");
  EXPECT_EQ(ValuesOf(c), (Values{34, 106}));
}

}  // namespace
}  // namespace windtunnel
