// No other division of the layers makes the most expensive stage cheaper.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/balance.h"
#include "plan/stages.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// 16 layers; the embedding and the head cost as much as many of them.
Scenario FourStagesWithLargeVocabulary() {
  Scenario s = TinyGpt();
  s.model.layers = 16;
  s.model.vocab = 100'000;
  s.batch = {4, 12};
  s.parallel.pipeline.size = 4;
  return s;
}

TEST(BalanceStages, GivesTheHeadsStageFewerLayers) {
  EXPECT_EQ(BalanceStages({{1, 1, 1, 1, 1, 1}, 0, 2}, 2), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(BalanceStages({{1, 1, 1, 1, 1, 1}, 1, 1}, 2), (std::vector<int64_t>{3, 3}));
}

// A large vocabulary's head may take as long as all other stages' layers.
TEST(BalanceStages, LeavesTheLastStageWithoutLayersWhereThatIsFaster) {
  const LayerCosts costs{{1, 1, 1, 1, 1, 1}, 0, 7};
  EXPECT_EQ(BalanceStages(costs, 3), (std::vector<int64_t>{3, 2, 1}));
  EXPECT_EQ(BalanceStages(costs, 3, 0), (std::vector<int64_t>{3, 3, 0}));
  EXPECT_EQ(BalanceStages({{1, 1, 1, 1, 1, 1}, 7, 7}, 4, 0), (std::vector<int64_t>{0, 3, 3, 0}));
}

// What follows the layers costs as much as two of them. A stage of 3 behind that leaves the second rank
// fewer.
TEST(BalanceRanks, CountsAStageBehindTheLastOne) {
  const LayerCosts costs{std::vector<double>(8, 1.0), 0, 2, /*behind=*/3};
  EXPECT_EQ(BalanceRanks(costs, {0, 1, 0, 1}, 0), (std::vector<int64_t>{4, 3, 1}));
  const LayerCosts without{std::vector<double>(8, 1.0), 0, 2};
  EXPECT_EQ(BalanceRanks(without, {0, 1, 0}, 0), (std::vector<int64_t>{2, 5, 1}));
}

TEST(ChooseBalance, LeavesALargeEmbeddingAndHeadAlone) {
  Scenario s = FourStagesWithLargeVocabulary();
  EXPECT_EQ(*ChooseBalance(s, {RoughTime}), (std::vector<int64_t>{0, 8, 8, 0}));
}

// DDP's buckets have the type that gradients are reduced in; an optimizer with its own values converts
// gradients.
TEST(ChooseBalance, CountsBucketsInTheirTypeAndConvertedGradients) {
  const auto least = [](Precision reduce, DataParallelKind kind) {
    Scenario s = TinyGpt();
    s.model.layers = 16;
    s.model.seq_len = 4;
    s.model.vocab = 2'000;
    s.batch = {1, 4};
    s.parallel.pipeline.size = 4;
    s.parallel.data.kind = kind;
    s.parallel.data.gradient_as_bucket_view = false;
    s.precision = {.param = Precision::kBf16, .compute = Precision::kBf16, .reduce = reduce};
    const std::vector<int64_t> by_time = *ChooseBalance(s, {RoughTime});
    int64_t kib = 20'000;
    while (kib > 10 && *ChooseBalance(s, {RoughTime}, KiB(kib)) == by_time) kib -= 10;
    return static_cast<double>(kib);
  };
  // Per parameter: 2 + 2 + 12 and 4 in the update; with buckets 2 or 4 more.
  const double without = least(Precision::kFp32, DataParallelKind::kNone);
  EXPECT_NEAR(least(Precision::kFp32, DataParallelKind::kDdp) / without, 24.0 / 20, 0.02);
  EXPECT_NEAR(least(Precision::kBf16, DataParallelKind::kDdp) / without, 22.0 / 20, 0.02);
}

TEST(BalanceStages, OfEquallyGoodOnesTakesTheOneWithFewestLayersInTheLast) {
  EXPECT_EQ(BalanceStages({{1, 1, 1}, 0, 0}, 2), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(BalanceStages({{1, 1, 1, 1, 1}, 0, 0}, 4), (std::vector<int64_t>{2, 1, 1, 1}));
}

// Embedding and head are both on the first of two ranks.
TEST(BalanceRanks, GivesTheRankWithBothEndsFewerLayers) {
  EXPECT_EQ(BalanceStages({{1, 1, 1, 1, 1, 1}, 0, 2}, 4), (std::vector<int64_t>{2, 2, 1, 1}));  // 5 and 3
  EXPECT_EQ(BalanceRanks({{1, 1, 1, 1, 1, 1}, 0, 2}, {0, 1, 1, 0}), (std::vector<int64_t>{1, 3, 1, 1}));
  EXPECT_EQ(BalanceRanks({{1, 1, 1, 1, 1, 1}, 0, 2}, {0, 1, 1, 0}, 0), (std::vector<int64_t>{2, 2, 2, 0}));
  // Ten layers and ends of 1 and 2 over four ranks: 13 in all, so some rank has at least 4.
  const std::vector<int64_t> v = BalanceRanks({std::vector<double>(10, 1.0), 1, 2}, {0, 1, 2, 3, 3, 2, 1, 0});
  EXPECT_EQ(v[0] + v[7], 2) << "5 with the ends";
  EXPECT_LE(std::max({v[1] + v[6], v[2] + v[5], v[3] + v[4]}), 3);
}

TEST(BalanceRanks, OfOneStageEachIsThatOfStages) {
  const LayerCosts costs{{1, 3, 1, 2, 5, 1, 1}, 2, 3};
  EXPECT_EQ(BalanceRanks(costs, {0, 1, 2}), BalanceStages(costs, 3));
}

TEST(BalanceStages, TakesNoDivisionThatDoesNotFit) {
  const LayerCosts costs{{1, 1, 1, 1, 1, 1}, 0, 0};
  const StageFits small_first = [](int index, const StageRange& stage) {
    return index > 0 || stage.end - stage.first <= 2;
  };
  EXPECT_EQ(BalanceStages(costs, 2, 1, small_first), (std::vector<int64_t>{2, 4}));
  const StageFits none = [](int, const StageRange&) { return false; };
  EXPECT_TRUE(BalanceStages(costs, 2, 1, none).empty());
}

// Under 1F1B the first of four stages holds the activations of four micro-batches and the last stage those of
// one, so with little memory the first gets fewer layers than time alone would give it.
TEST(ChooseBalance, GivesTheFirstStagesNoMoreThanTheirMemoryHolds) {
  Scenario s = TinyGpt();
  s.model.layers = 16;
  s.model.seq_len = 64;
  s.batch = {4, 8};
  s.parallel.pipeline.size = 4;
  const std::vector<int64_t> by_time = *ChooseBalance(s, {RoughTime});
  EXPECT_EQ(by_time, (std::vector<int64_t>{4, 4, 4, 4}));
  std::vector<int64_t> tight = by_time;
  for (int64_t kib = 20'000; kib > 500 && tight == by_time; kib -= 100)
    tight = *ChooseBalance(s, {RoughTime}, KiB(kib));
  EXPECT_LT(tight.front(), 4);
  EXPECT_EQ(std::accumulate(tight.begin(), tight.end(), int64_t{0}), 16);
  // Where nothing fits, time decides.
  EXPECT_EQ(*ChooseBalance(s, {RoughTime}, KiB(1)), by_time);
}

// Autocast's copies of weights are not parameters: they have no optimizer states.
TEST(ChooseBalance, CountsStatesOfParametersOnly) {
  Scenario s = TinyGpt();
  s.model.layers = 16;
  s.batch = {4, 8};
  s.parallel.pipeline.size = 4;
  const auto fits = [&](Precision compute) {
    s.precision.compute = compute;
    const std::vector<int64_t> by_time = *ChooseBalance(s, {RoughTime});
    int64_t kib = 20'000;
    while (kib > 100 && *ChooseBalance(s, {RoughTime}, KiB(kib)) == by_time) kib -= 100;
    return kib;
  };
  // Activations are smaller by half of them, states are the same.
  EXPECT_LT(fits(Precision::kBf16), fits(Precision::kFp32));
}

// In 16 bits throughout, values, gradients and moments are half as large. There are few activations; the
// first stage has the most states, those of the embedding.
TEST(ChooseBalance, CountsStatesInTheirTypes) {
  Scenario s = TinyGpt();
  s.model.layers = 16;
  s.model.seq_len = 4;
  s.model.vocab = 2'000;
  s.model.tie_embeddings = true;
  s.batch = {1, 4};
  s.parallel.pipeline.size = 4;
  const auto least = [&](Precision type) {
    s.precision.param = s.precision.compute = s.precision.reduce = s.precision.optimizer = type;
    s.optimizer.moments = type == Precision::kBf16 ? MomentsType::kBf16 : MomentsType::kFp32;
    const std::vector<int64_t> by_time = *ChooseBalance(s, {RoughTime});
    int64_t kib = 20'000;
    while (kib > 10 && *ChooseBalance(s, {RoughTime}, KiB(kib)) == by_time) kib -= 10;
    return static_cast<double>(kib);
  };
  EXPECT_NEAR(least(Precision::kBf16) / least(Precision::kFp32), 0.5, 0.1);
}

// Megatron 2021: num_layers must be divisible by the pipeline's size; BLOOM's 70 layers over 12 stages had
// embedding and head as layers.
TEST(ChooseBalance, CountsLayersAsMegatronAndDeepspeedDo) {
  Scenario s = FourStagesWithLargeVocabulary();
  EXPECT_LT(ChooseBalance(s, {RoughTime})->back(), 4);
  for (Framework framework : {Framework::kMegatron, Framework::kMegatronCore, Framework::kDeepspeed}) {
    s.framework = framework;
    s.model.layers = 16;
    EXPECT_EQ(*ChooseBalance(s, {RoughTime}), (std::vector<int64_t>{4, 4, 4, 4}));
    EXPECT_EQ(*ChooseBalance(s, {RoughTime}, KiB(1)), (std::vector<int64_t>{4, 4, 4, 4}));
    s.model.layers = 14;
    EXPECT_EQ(*ChooseBalance(s, {RoughTime}), (std::vector<int64_t>{3, 4, 4, 3}));
  }
}

// A head with the arithmetic of many layers has few operators, and fewer collectives than those layers.
TEST(ChooseBalance, CountsTheHostAndCollectivesWhereTheyAreWhatTakesLong) {
  Scenario s = FourStagesWithLargeVocabulary();
  s.parallel.tensor = {.size = 2, .sequence = true};
  OperatorTimes times{RoughTime};
  EXPECT_LT(ChooseBalance(s, times)->back(), 4);
  constexpr double kMuch = 1e12;
  times.host = [](const Op& op) { return op.layer >= 0 ? kMuch : 0; };
  EXPECT_EQ(*ChooseBalance(s, times), (std::vector<int64_t>{4, 4, 4, 4}));
  times.host = nullptr;
  times.collective = [](const Op& op, std::string_view axis) {
    EXPECT_EQ(axis, "tensor");
    return op.layer >= 0 ? kMuch : 0;
  };
  EXPECT_EQ(*ChooseBalance(s, times), (std::vector<int64_t>{4, 4, 4, 4}));
}

double DearestOf(const LayerCosts& costs, const std::vector<int64_t>& balance) {
  double dearest = 0;
  size_t layer = 0;
  for (size_t stage = 0; stage < balance.size(); ++stage) {
    double cost = stage == 0 ? costs.input : 0;
    for (int64_t i = 0; i < balance[stage]; ++i) cost += costs.layers[layer++];
    if (stage + 1 == balance.size()) cost += costs.output;
    dearest = std::max(dearest, cost);
  }
  return dearest;
}

// The cost of the most expensive stage in the best division of the `left` remaining layers into `stages`
// stages, of which the last has at least `least`, and the first if none is in `balance`.
double BestOf(const LayerCosts& costs, std::vector<int64_t>& balance, int64_t left, int stages,
              int64_t least) {
  if (stages == 1) {
    balance.push_back(left);
    const double dearest = DearestOf(costs, balance);
    balance.pop_back();
    return dearest;
  }
  double best = 1e300;
  const int64_t behind = stages - 2 + least;
  for (int64_t here = balance.empty() ? least : 1; here <= left - behind; ++here) {
    balance.push_back(here);
    best = std::min(best, BestOf(costs, balance, left - here, stages - 1, least));
    balance.pop_back();
  }
  return best;
}

RC_GTEST_PROP(BalanceStages, IsAsGoodAsAnyDivision, ()) {
  const auto layers = *rc::gen::inRange(1, 9);
  const auto stages = *rc::gen::inRange(1, layers + 1);
  LayerCosts costs{{}, double(*rc::gen::inRange(0, 20)), double(*rc::gen::inRange(0, 20))};
  for (int i = 0; i < layers; ++i) costs.layers.push_back(*rc::gen::inRange(1, 20));
  const int64_t least = *rc::gen::inRange(0, 2);
  const std::vector<int64_t> balance = BalanceStages(costs, stages, least);
  RC_ASSERT(static_cast<int>(balance.size()) == stages);
  RC_ASSERT(std::accumulate(balance.begin(), balance.end(), int64_t{0}) == layers);
  for (size_t i = 0; i < balance.size(); ++i)
    RC_ASSERT(balance[i] >= (i == 0 || i + 1 == balance.size() ? least : 1));
  std::vector<int64_t> none;
  RC_ASSERT(DearestOf(costs, balance) == BestOf(costs, none, layers, stages, least));
}

}  // namespace
}  // namespace windtunnel
