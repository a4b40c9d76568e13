#include "reports/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/format.h"
#include "reports/communication.h"
#include "reports/critical_path.h"

namespace windtunnel {
namespace {

constexpr size_t kShownUnits = 12;  // of more, those in the middle share one line
constexpr size_t kShownAtEnds = 4;
constexpr size_t kLeastWidth = 22;  // of names

class UnitTable {
 public:
  explicit UnitTable(const Role& role) : role_(role), unit_of_parameter_(role.parameters.size(), -1) {
    for (const Op& op : role.steady.ops) {
      if (op.parameters.empty()) continue;
      const int unit = UnitNamed(op.name);
      // (ZeRO-3 gathers and reduces other groups of parameters.)
      for (int32_t parameter : op.parameters)
        if (unit_of_parameter_[parameter] < 0) unit_of_parameter_[parameter] = unit;
    }
    for (size_t i = 0; i < role.parameters.size(); ++i) {
      if (unit_of_parameter_[i] >= 0) unit_of_tensor_[role.parameters[i].name] = unit_of_parameter_[i];
    }
  }

  void AddTransfer(const CommunicationUse& use) {
    const Op& op = role_.steady.ops[use.op];
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (op.parameters.empty() || collective == nullptr) return;
    UnitUse& unit = units_[by_name_.at(op.name)];
    UnitUse::Transfer& transfer = TransferOf(unit, *collective, op.phase);
    transfer.bytes += MessageBytes(*collective);
    transfer.time += use.end - use.start;
    transfer.hidden += use.hidden;
    ++transfer.count;
  }

  // A compute operator belongs to the unit of the tensor that it names: "blocks.3.mlp.up" to the unit that
  // has "blocks.3.mlp.up.weight".
  void AddPathSegment(const PathSegment& segment) {
    if (segment.op < 0) return;
    const Op& op = role_.steady.ops[segment.op];
    const Duration time = segment.end - segment.start;
    if (IsCommunication(op.kind)) {
      auto named = by_name_.find(op.name);
      if (named != by_name_.end()) units_[named->second].critical_communication += time;
    } else if (const int unit = UnitOfCompute(op); unit >= 0) {
      units_[unit].critical_compute += time;
    }
  }

  std::vector<UnitUse> Take() { return std::move(units_); }

 private:
  int UnitNamed(const std::string& name) {
    auto [entry, is_new] = by_name_.try_emplace(name, static_cast<int>(units_.size()));
    if (is_new) units_.emplace_back().name = name;
    return entry->second;
  }

  static UnitUse::Transfer& TransferOf(UnitUse& unit, const Collective& collective, Phase phase) {
    if (collective.kind == CollectiveKind::kBroadcast) return unit.forward_gather;
    if (collective.kind != CollectiveKind::kAllGather) return unit.reduction;
    if (phase == Phase::kOptimizer) return unit.update_gather;
    return phase == Phase::kForward ? unit.forward_gather : unit.backward_gather;
  }

  // The unit of the first tensor whose name starts with the operator's name or, if there is none, with the
  // longest possible prefix of its dot-separated parts. -1: none.
  int UnitOfCompute(const Op& op) const {
    for (std::string prefix = op.name; !prefix.empty();) {
      auto tensor = unit_of_tensor_.lower_bound(prefix);
      if (tensor != unit_of_tensor_.end() && tensor->first.starts_with(prefix)) return tensor->second;
      const size_t dot = prefix.rfind('.');
      if (dot == std::string::npos) break;
      prefix.resize(dot);
    }
    return -1;
  }

  const Role& role_;
  std::vector<UnitUse> units_;
  std::map<std::string, int> by_name_;
  std::vector<int> unit_of_parameter_;
  std::map<std::string, int> unit_of_tensor_;
};

std::string Describe(const UnitUse::Transfer& transfer) {
  if (transfer.count == 0) return fmt::format("{:>18}", "");
  const double share = transfer.time > Duration() ? 100 * (transfer.hidden / transfer.time) : 100;
  return fmt::format("{:>11}{:>5.0f} %", FormatDuration(transfer.time), share);
}

void Add(UnitUse::Transfer& sum, const UnitUse::Transfer& transfer) {
  sum.bytes += transfer.bytes;
  sum.time += transfer.time;
  sum.hidden += transfer.hidden;
  sum.count += transfer.count;
}

void Add(UnitUse& sum, const UnitUse& use) {
  Add(sum.forward_gather, use.forward_gather);
  Add(sum.backward_gather, use.backward_gather);
  Add(sum.update_gather, use.update_gather);
  Add(sum.reduction, use.reduction);
  sum.critical_compute += use.critical_compute;
  sum.critical_communication += use.critical_communication;
}

// A column of transfers.
struct Column {
  std::string_view title;
  UnitUse::Transfer UnitUse::*transfer;
};

// Gathers in backward or those behind the update, where there are not both.
std::vector<Column> ColumnsOf(const std::vector<UnitUse>& uses) {
  const auto has = [&](UnitUse::Transfer UnitUse::*transfer) {
    return std::any_of(uses.begin(), uses.end(),
                       [&](const UnitUse& use) { return (use.*transfer).count > 0; });
  };
  const bool updates = has(&UnitUse::update_gather);
  std::vector<Column> columns = {{"gather forward", &UnitUse::forward_gather}};
  if (!updates || has(&UnitUse::backward_gather))
    columns.push_back({"gather backward", &UnitUse::backward_gather});
  if (updates) columns.push_back({"gather update", &UnitUse::update_gather});
  columns.push_back({"reduce", &UnitUse::reduction});
  return columns;
}

UnitUse SumOf(std::vector<UnitUse>::const_iterator begin, std::vector<UnitUse>::const_iterator end,
              std::string name) {
  UnitUse sum;
  sum.name = std::move(name);
  for (auto use = begin; use != end; ++use) Add(sum, *use);
  return sum;
}

// With those together that are gathered behind the update and do nothing else, as DeepSpeed's small parameters,
// at the end.
std::vector<UnitUse> WithSmallOnesTogether(std::vector<UnitUse> uses) {
  const auto small = std::stable_partition(uses.begin(), uses.end(), [](const UnitUse& use) {
    return use.forward_gather.count + use.backward_gather.count + use.reduction.count > 0;
  });
  if (uses.end() - small < 2) return uses;
  UnitUse sum = SumOf(small, uses.end(), fmt::format("{} small parameters", uses.end() - small));
  uses.erase(small, uses.end());
  uses.push_back(std::move(sum));
  return uses;
}

size_t WidthOfNames(const std::vector<UnitUse>& uses) {
  size_t width = kLeastWidth;
  for (const UnitUse& use : uses) width = std::max(width, use.name.size());
  return width;
}

std::string Row(const UnitUse& use, const std::vector<Column>& columns, size_t width) {
  std::string text = fmt::format("  {:<{}}", use.name, width);
  for (const Column& column : columns) text += Describe(use.*column.transfer);
  return text + fmt::format("{:>13}{:>13}\n", FormatDuration(use.critical_compute),
                            FormatDuration(use.critical_communication));
}

}  // namespace

std::vector<UnitUse> UnitUses(const Plan& plan, const Prediction& prediction) {
  if (prediction.timelines.empty()) return {};
  const Timeline& first = prediction.timelines.front();
  const Role& role = plan.RoleOf(first.rank);
  UnitTable table(role);
  for (const CommunicationUse& use : CommunicationUses(role, first)) table.AddTransfer(use);
  for (const PathSegment& segment : CriticalPath(plan, prediction.timelines)) {
    if (&plan.RoleOf(segment.rank) == &role) table.AddPathSegment(segment);
  }
  return table.Take();
}

std::string ExplainUnits(const Plan& plan, const Prediction& prediction, Ink ink) {
  const std::vector<UnitUse> uses = WithSmallOnesTogether(UnitUses(plan, prediction));
  if (uses.empty()) return "";
  const std::vector<Column> columns = ColumnsOf(uses);
  const size_t width = WidthOfNames(uses);
  std::string text = "\n" + ink.Bold(fmt::format("units, rank {}", prediction.timelines.front().rank)) + "\n";
  std::string titles(width + 2, ' '), below = titles;
  for (const Column& column : columns) {
    titles += fmt::format("{:>18}", column.title);
    below += fmt::format("{:>18}", "time hidden");
  }
  text += ink.Dim(titles + fmt::format("{:>26}", "on the critical path")) + "\n";
  text += ink.Dim(below + fmt::format("{:>13}{:>13}", "compute", "transfers")) + "\n";
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses.size() > kShownUnits && i == kShownAtEnds) {
      const size_t after = uses.size() - kShownAtEnds;
      text += Row(SumOf(uses.begin() + i, uses.begin() + after, fmt::format("… {} more together", after - i)),
                  columns, width);
      i = after;
    }
    text += Row(uses[i], columns, width);
  }
  return text + Row(SumOf(uses.begin(), uses.end(), "together"), columns, width);
}

}  // namespace windtunnel
