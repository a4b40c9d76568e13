#include "cost_models/layer_factors.h"

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Cholesky>

#include "base/check.h"

namespace windtunnel {

LayerShape LayerShapeOf(const Scenario& scenario) {
  const ModelSpec& model = scenario.model;
  const bool is_mlp = model.kind == ModelKind::kMlp;
  return {.micro = scenario.batch.micro,
          .seq_len = is_mlp ? 1 : model.seq_len / scenario.parallel.context.size,
          .hidden = is_mlp ? *std::max_element(model.widths.begin(), model.widths.end()) : model.hidden,
          .tensor = scenario.parallel.tensor.size};
}

double Correlation(const LayerShape& a, const LayerShape& b) {
  const auto ratio = [](int64_t x, int64_t y) {
    return static_cast<double>(std::min(x, y)) / static_cast<double>(std::max(x, y));
  };
  const double ratios = ratio(a.micro, b.micro) * ratio(a.seq_len, b.seq_len) * ratio(a.hidden, b.hidden) *
                        ratio(a.tensor, b.tensor);
  return ratios * std::sqrt(ratios);
}

LayerFactors::LayerFactors(std::vector<Known> known) : known_(std::move(known)) {
  // Shapes that are nearly the same get their mean.
  constexpr double kNugget = 1e-9;
  const auto size = static_cast<Eigen::Index>(known_.size());
  Eigen::MatrixXd correlations(size, size);
  Eigen::VectorXd excess(size);
  for (Eigen::Index i = 0; i < size; ++i) {
    for (Eigen::Index j = 0; j < size; ++j)
      correlations(i, j) = Correlation(known_[i].shape, known_[j].shape);
    correlations(i, i) += kNugget;
    excess(i) = known_[i].factor - 1;
  }
  // Not LLT: the order of its additions depends on block sizes, which follow the machine's caches.
  const Eigen::LDLT<Eigen::MatrixXd> factorised(correlations);
  WT_CHECK(factorised.info() == Eigen::Success);
  const Eigen::VectorXd weights = factorised.solve(excess);
  weights_.assign(weights.begin(), weights.end());
}

double LayerFactors::At(const LayerShape& shape) const {
  double factor = 1;
  for (size_t i = 0; i < known_.size(); ++i) factor += weights_[i] * Correlation(shape, known_[i].shape);
  return std::clamp(factor, kLeast, kMost);
}

}  // namespace windtunnel
