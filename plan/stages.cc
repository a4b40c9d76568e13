#include "plan/stages.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace windtunnel {

int64_t LayerCount(const ModelSpec& model) {
  return model.kind == ModelKind::kMlp ? static_cast<int64_t>(model.widths.size()) - 1 : model.AllLayers();
}

StageRange WholeModel(const ModelSpec& model) { return {0, LayerCount(model), true, true}; }

std::vector<StageRange> StagesOf(const ModelSpec& model, const std::vector<int64_t>& balance, MtpStage mtp) {
  WT_CHECK_EQ(std::accumulate(balance.begin(), balance.end(), int64_t{0}), LayerCount(model));
  std::vector<StageRange> stages;
  int64_t first = 0;
  for (size_t i = 0; i < balance.size(); ++i) {
    stages.push_back({first, first + balance[i], i == 0, i + 1 == balance.size()});
    first += balance[i];
  }
  if (model.mtp && mtp == MtpStage::kBeforeLast && stages.size() > 1) {
    stages.back().has_mtp = false;
    stages[stages.size() - 2].has_mtp = true;
  }
  return stages;
}

namespace {

// The cost of any stage with layers [first, end), from prefix sums.
class StageCosts {
 public:
  explicit StageCosts(const LayerCosts& costs)
      : behind_(costs.behind), input_(costs.input), output_(costs.output), sums_(1) {
    for (double cost : costs.layers) sums_.push_back(sums_.back() + cost);
  }
  int64_t layers() const { return static_cast<int64_t>(sums_.size()) - 1; }
  double Of(const StageRange& stage) const {
    return sums_[stage.end] - sums_[stage.first] + (stage.is_first ? input_ : 0) +
           (stage.is_last ? output_ : 0);
  }
  std::optional<double> behind() const { return behind_; }

 private:
  std::optional<double> behind_;
  double input_, output_;
  std::vector<double> sums_;
};

// The objective: the cost of the most expensive stage, then the sum of squared costs.
struct Dearness {
  double dearest = 0, squares = 0;
  // Costs are sums of products, so differences in the last digits are rounding errors.
  bool operator<(const Dearness& other) const {
    const double slack = 1e-9 * std::max(1.0, other.dearest);
    if (dearest < other.dearest - slack) return true;
    if (dearest > other.dearest + slack) return false;
    return squares < other.squares * (1 - 1e-9);
  }
};

}  // namespace

std::vector<int64_t> BalanceStages(const LayerCosts& costs, int stages, int64_t least_at_ends,
                                   const StageFits& fits) {
  const StageCosts of(costs);
  const int64_t layers = of.layers();
  WT_CHECK(stages >= 1 && stages <= layers && (least_at_ends == 0 || least_at_ends == 1));
  // The least number of layers of the first or the last `count` stages, if these are not all.
  const auto least_of = [&](int count) -> int64_t { return count == 0 ? 0 : count - 1 + least_at_ends; };
  // best[s][n]: the optimum for the first n layers in s stages; begin[s][n]: where the last of these begins.
  std::vector<std::vector<Dearness>> best(stages + 1, std::vector<Dearness>(layers + 1));
  std::vector<std::vector<int64_t>> begin(stages + 1, std::vector<int64_t>(layers + 1, -1));
  for (int s = 1; s <= stages; ++s) {
    const int64_t least = s == 1 || s == stages ? least_at_ends : 1;
    for (int64_t n = least_of(s); n <= layers - least_of(stages - s); ++n) {
      for (int64_t first = n - least; first >= least_of(s - 1); --first) {
        if (s > 1 ? begin[s - 1][first] < 0 : first > 0) continue;  // no balance of the layers before
        const StageRange stage{first, n, s == 1, s == stages};
        if (fits && !fits(s - 1, stage)) continue;
        const Dearness& before = best[s - 1][first];
        const double cost = of.Of(stage);
        const Dearness now{std::max(before.dearest, cost), before.squares + cost * cost};
        if (begin[s][n] >= 0 && !(now < best[s][n])) continue;
        best[s][n] = now;
        begin[s][n] = first;
      }
    }
  }
  if (begin[stages][layers] < 0) return {};
  std::vector<int64_t> balance(stages);
  int64_t end = layers;
  for (int s = stages; s > 0; --s) {
    balance[s - 1] = end - begin[s][end];
    end = begin[s][end];
  }
  return balance;
}

namespace {

// The objective of BalanceRanks.
struct Load {
  double rank = 0, stage = 0, squares = 0;  // the most loaded rank, the most expensive stage, over ranks

  bool operator<(const Load& other) const {
    for (const auto& [own, its] : {std::pair(rank, other.rank), std::pair(stage, other.stage)}) {
      const double slack = 1e-9 * std::max(1.0, its);
      if (own < its - slack) return true;
      if (own > its + slack) return false;
    }
    return squares < other.squares * (1 - 1e-9);
  }
};

Load LoadOf(const StageCosts& of, const std::vector<int>& rank_of_stage,
            const std::vector<int64_t>& balance) {
  Load load;
  std::vector<double> of_rank(rank_of_stage.size());  // more than there are ranks
  int64_t first = 0;
  for (size_t i = 0; i < balance.size(); first += balance[i++]) {
    const double cost = of.Of({first, first + balance[i], i == 0, i + 1 == balance.size()});
    load.stage = std::max(load.stage, cost);
    of_rank[static_cast<size_t>(rank_of_stage[i])] += cost;
  }
  of_rank[static_cast<size_t>(rank_of_stage.back())] += of.behind().value_or(0);
  for (const double cost : of_rank) {
    load.squares += cost * cost;
    load.rank = std::max(load.rank, cost);
  }
  return load;
}

}  // namespace

std::vector<int64_t> BalanceRanks(const LayerCosts& costs, const std::vector<int>& rank_of_stage,
                                  int64_t least_at_ends) {
  const StageCosts of(costs);
  const int stages = static_cast<int>(rank_of_stage.size()) - (of.behind() ? 1 : 0);
  std::vector<int64_t> balance = BalanceStages(costs, stages, least_at_ends);
  Load load = LoadOf(of, rank_of_stage, balance);
  for (bool improves = true; improves;) {
    improves = false;
    std::vector<int64_t> best = balance;
    Load best_load = load;
    for (size_t from = 0; from < balance.size(); ++from) {
      const int64_t least = from == 0 || from + 1 == balance.size() ? least_at_ends : 1;
      if (balance[from] <= least) continue;
      for (size_t to = 0; to < balance.size(); ++to) {
        if (to == from) continue;
        --balance[from], ++balance[to];
        if (const Load now = LoadOf(of, rank_of_stage, balance); now < best_load) {
          best = balance;
          best_load = now;
          improves = true;
        }
        ++balance[from], --balance[to];
      }
    }
    balance = best;
    load = best_load;
  }
  return balance;
}

}  // namespace windtunnel
