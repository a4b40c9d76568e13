// The dearest stage is as cheap as any division makes it.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/stages.h"

namespace windtunnel {
namespace {

TEST(BalanceStages, GivesTheHeadsStageFewerLayers) {
  EXPECT_EQ(BalanceStages({{1, 1, 1, 1, 1, 1}, 0, 2}, 2), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(BalanceStages({{1, 1, 1, 1, 1, 1}, 1, 1}, 2), (std::vector<int64_t>{3, 3}));
}

TEST(BalanceStages, OfEquallyGoodOnesTakesTheOneWithFewestLayersInTheLast) {
  EXPECT_EQ(BalanceStages({{1, 1, 1}, 0, 0}, 2), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(BalanceStages({{1, 1, 1, 1, 1}, 0, 0}, 4), (std::vector<int64_t>{2, 1, 1, 1}));
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

// Every division of the layers from `layer` on into `stages` stages.
double BestOf(const LayerCosts& costs, std::vector<int64_t>& balance, int64_t left, int stages) {
  if (stages == 1) {
    balance.push_back(left);
    const double dearest = DearestOf(costs, balance);
    balance.pop_back();
    return dearest;
  }
  double best = 1e300;
  for (int64_t here = 1; here <= left - (stages - 1); ++here) {
    balance.push_back(here);
    best = std::min(best, BestOf(costs, balance, left - here, stages - 1));
    balance.pop_back();
  }
  return best;
}

RC_GTEST_PROP(BalanceStages, IsAsGoodAsAnyDivision, ()) {
  const auto layers = *rc::gen::inRange(1, 9);
  const auto stages = *rc::gen::inRange(1, layers + 1);
  LayerCosts costs{{}, double(*rc::gen::inRange(0, 20)), double(*rc::gen::inRange(0, 20))};
  for (int i = 0; i < layers; ++i) costs.layers.push_back(*rc::gen::inRange(1, 20));
  const std::vector<int64_t> balance = BalanceStages(costs, stages);
  RC_ASSERT(static_cast<int>(balance.size()) == stages);
  RC_ASSERT(std::accumulate(balance.begin(), balance.end(), int64_t{0}) == layers);
  RC_ASSERT(*std::min_element(balance.begin(), balance.end()) >= 1);
  std::vector<int64_t> none;
  RC_ASSERT(DearestOf(costs, balance) == BestOf(costs, none, layers, stages));
}

}  // namespace
}  // namespace windtunnel
