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

// The model's costs of one scenario's operators. The model is asked once for each size of a collective.
// Errors: the model's; Unsupported for a cost that is not a constant.
class Costs {
 public:
  explicit Costs(const CostModel& model) : model_(model) {}

  Result<KernelTime> Kernel(const Op& op) const;
  Result<int64_t> Host(const Op& op) const;
  // `group`: any group of the axis; all have the same layout.
  Result<TransferCost> Communication(const Op& op, AxisId axis, const Group& group);

  const CostModel& model() const { return model_; }

 private:
  const CostModel& model_;
  // By axis, cost key, and a shift's distance.
  std::map<std::tuple<AxisId, std::string, int>, TransferCost> transfers_;
};

}  // namespace windtunnel::composed
