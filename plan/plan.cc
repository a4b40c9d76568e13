#include "plan/plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace windtunnel {

Role::Role() = default;
Role::Role(const Role&) = default;
Role::Role(Role&&) noexcept = default;
Role& Role::operator=(const Role&) = default;
Role& Role::operator=(Role&&) noexcept = default;
Role::~Role() = default;

Plan::Plan() = default;
Plan::Plan(const Plan&) = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(const Plan&) = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

std::vector<int> TrainedOf(const std::vector<Parameter>& parameters) {
  std::vector<int> trained;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].is_frozen) trained.push_back(static_cast<int>(i));
  return trained;
}

int64_t WholeElements(const Parameter& parameter) {
  return std::accumulate(parameter.whole_shape.begin(), parameter.whole_shape.end(), int64_t{1},
                         std::multiplies<>());
}

LocalPart PartOn(const Placement& placement, int64_t tensor_elements, int position) {
  if (placement.per_rank == 0) return {0, tensor_elements, placement.offset};
  const int64_t shard = position * placement.per_rank;
  const int64_t begin = std::max(placement.start, shard);
  const int64_t end = std::min(placement.start + tensor_elements, shard + placement.per_rank);
  if (begin >= end) return {};
  return {begin - placement.start, end - begin, placement.offset + begin - (placement.in_whole ? 0 : shard)};
}

}  // namespace windtunnel
