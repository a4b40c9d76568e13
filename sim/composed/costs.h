// Costs of operators as whole picoseconds, for the composed evaluator: constants only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cost_models/cost_model.h"
#include "plan/ops.h"

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

// Of an operator that does not communicate.
struct LocalCost {
  int64_t host = 0;  // picoseconds
  KernelTime kernel;
};

// The model's costs of one scenario's operators. The model is asked once for each size of a collective, and of
// a copy: strategies convert each gradient, and those of alike layers have equal sizes.
// Errors: the model's; Unsupported for a cost that is not a constant.
class Costs {
 public:
  explicit Costs(const CostModel& model) : model_(model) {}

  Result<LocalCost> Local(const Op& op);
  Result<int64_t> Host(const Op& op) const;
  // `group`: any group of the axis; all have the same layout.
  Result<TransferCost> Communication(const Op& op, AxisId axis, const Group& group);

  const CostModel& model() const { return model_; }

 private:
  Result<LocalCost> AskForLocal(const Op& op) const;

  const CostModel& model_;
  std::vector<std::pair<Copy, LocalCost>> copies_;
  // By axis, cost key, and a shift's distance.
  std::map<std::tuple<AxisId, std::string, int>, TransferCost> transfers_;
};

}  // namespace windtunnel::composed
