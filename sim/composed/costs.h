// Costs of operators as whole picoseconds, for the composed evaluator: constants only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "plan/plan.h"

namespace windtunnel::composed {

struct TransferCost {
  int64_t time = 0;  // picoseconds
  double efficiency = 1;
  bool holds_multiprocessors = false;
};
struct KernelTime {
  int64_t time = 0;                 // picoseconds
  double beside_communication = 0;  // as KernelCost's
};

// What the model says of the operators of one scenario. Collectives are asked for once for each of their sizes.
// Errors: the model's; Unsupported for a cost that is not a constant.
class Costs {
 public:
  explicit Costs(const CostModel& model) : model_(model) {}

  Result<KernelTime> Kernel(const Op& op) const;
  Result<int64_t> Host(const Op& op) const;
  // Of any of the axis's groups; all lie alike.
  Result<TransferCost> Communication(const Op& op, AxisId axis, const Group& group);

  const CostModel& model() const { return model_; }

 private:
  const CostModel& model_;
  std::map<std::tuple<AxisId, std::string, int>, TransferCost> transfers_;  // and by a shift's distance
};

}  // namespace windtunnel::composed
