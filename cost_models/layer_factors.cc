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
  const auto doublings = [](int64_t x, int64_t y) {
    return std::fabs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return std::exp(-doublings(a.micro, b.micro) - doublings(a.seq_len, b.seq_len) -
                  doublings(a.hidden, b.hidden) - doublings(a.tensor, b.tensor));
}

LayerFactors::LayerFactors(std::vector<Known> known) : known_(std::move(known)) {
  const auto size = static_cast<Eigen::Index>(known_.size());
  Eigen::MatrixXd correlations(size, size);
  Eigen::VectorXd logs(size);
  for (Eigen::Index i = 0; i < size; ++i) {
    for (Eigen::Index j = 0; j < size; ++j)
      correlations(i, j) = Correlation(known_[i].shape, known_[j].shape);
    logs(i) = std::log(known_[i].factor);
  }
  const Eigen::LLT<Eigen::MatrixXd> factorised(correlations);
  WT_CHECK(factorised.info() == Eigen::Success);
  const Eigen::VectorXd weights = factorised.solve(logs);
  weights_.assign(weights.begin(), weights.end());
}

double LayerFactors::At(const LayerShape& shape) const {
  double log = 0;
  for (size_t i = 0; i < known_.size(); ++i) log += weights_[i] * Correlation(shape, known_[i].shape);
  return std::exp(log);
}

}  // namespace windtunnel
