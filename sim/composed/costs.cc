#include "sim/composed/costs.h"

#include <algorithm>
#include <tuple>

namespace windtunnel::composed {
namespace {

Result<int64_t> Constant(const Distribution& time) {
  if (time.values().front() != time.values().back()) return Unsupported("a cost that is not a constant");
  constexpr Duration kMost = Seconds(3600);  // so that sums of them stay in range
  if (time.p50() > kMost) return Unsupported("a cost of hours");
  return time.p50().picoseconds();
}

bool AreEqual(const Copy& a, const Copy& b) {
  const auto of = [](const Copy& copy) {
    return std::tie(copy.elements, copy.from, copy.to, copy.scale, copy.accumulate, copy.crosses);
  };
  return of(a) == of(b);
}

}  // namespace

Result<LocalCost> Costs::Local(const Op& op) {
  const Copy* const copy = op.on_host || op.graph != 0 ? nullptr : std::get_if<Copy>(&op.kind);
  if (copy == nullptr) return AskForLocal(op);
  const auto known = std::find_if(copies_.begin(), copies_.end(),
                                  [&](const auto& entry) { return AreEqual(entry.first, *copy); });
  if (known != copies_.end()) return known->second;
  WT_ASSIGN_OR_RETURN(const LocalCost cost, AskForLocal(op));
  return copies_.emplace_back(*copy, cost).second;
}

Result<LocalCost> Costs::AskForLocal(const Op& op) const {
  WT_ASSIGN_OR_RETURN(const int64_t host, Host(op));
  WT_ASSIGN_OR_RETURN(const KernelCost cost, model_.Kernel(op));
  WT_ASSIGN_OR_RETURN(const int64_t time, Constant(cost.time));
  return LocalCost{host, {time, cost.beside_communication}};
}

Result<int64_t> Costs::Host(const Op& op) const { return Constant(model_.DispatchOf(op).time); }

Result<TransferCost> Costs::Communication(const Op& op, AxisId axis, const Group& group) {
  const auto* collective = std::get_if<Collective>(&op.kind);
  const int distance = collective == nullptr ? 0 : collective->distance;
  std::tuple key{axis, CostKey(op.kind), distance};
  if (const auto known = transfers_.find(key); known != transfers_.end()) return known->second;
  WT_ASSIGN_OR_RETURN(const CommunicationCost cost, model_.Communication(op, group));
  WT_ASSIGN_OR_RETURN(const int64_t time, Constant(cost.time));
  const TransferCost transfer{time, cost.compute_efficiency, cost.holds_multiprocessors};
  return transfers_.emplace(std::move(key), transfer).first->second;
}

}  // namespace windtunnel::composed
