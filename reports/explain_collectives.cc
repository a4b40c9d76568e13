#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "base/format.h"
#include "cost_models/node_wire.h"
#include "reports/communication.h"
#include "reports/explain.h"

namespace windtunnel {
namespace {

// Collectives (or messages) of the same stream, kind, algorithm and number of ranks.
struct Row {
  std::string stream, kind, runs_by;
  int ranks = 0, count = 0;
  bool is_message = false;
  Bytes least = Bytes::Max(), most;
  Duration time, exposed;
  double sent = 0;  // bytes that each link carries; divided by the time this is nccl-tests' bus bandwidth
};

std::string RunsBy(const CommunicationCost& cost) {
  if (cost.algorithm.empty()) return cost.source == CostSource::kModelled ? "" : "measured";
  std::string text(cost.algorithm);
  if (!cost.protocol.empty()) text += fmt::format(", {}", cost.protocol);
  return cost.source == CostSource::kModelled ? text : text + " (time measured)";
}

std::string SizesText(const Row& row) {
  const std::string least = FormatBytes(row.least), most = FormatBytes(row.most);
  return least == most ? most : least + " – " + most;
}

}  // namespace

Result<std::string> ExplainCollectives(const Plan& plan, const Prediction& prediction, const CostModel& costs,
                                       Ink ink) {
  if (prediction.timelines.empty()) return std::string();
  const Timeline& timeline = prediction.timelines.front();
  const Role& role = plan.RoleOf(timeline.rank);
  std::map<std::tuple<std::string, std::string, std::string, int>, Row> rows;
  for (const CommunicationUse& use : CommunicationUses(role, timeline)) {
    const Op& op = role.steady.ops[use.op];
    // A message counts where it is sent; barriers move nothing.
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (std::holds_alternative<Receive>(op.kind)) continue;
    if (collective != nullptr && collective->kind == CollectiveKind::kBarrier) continue;
    const Stream& stream = role.streams[op.stream];
    const Group& group = plan.GroupOf(timeline.rank, stream);
    const int ranks = static_cast<int>(group.ranks.size());
    WT_ASSIGN_OR_RETURN(const CommunicationCost cost, costs.Communication(op, group));
    const std::string kind(OperatorName(op.kind));
    Row& row = rows[{stream.name, kind, RunsBy(cost), ranks}];
    row.stream = stream.name;
    row.kind = kind;
    row.runs_by = RunsBy(cost);
    row.ranks = ranks;
    ++row.count;
    const Bytes bytes = MessageBytes(op.kind);
    row.least = std::min(row.least, bytes);
    row.most = std::max(row.most, bytes);
    // A message's span begins when it is sent and includes the wait for the receiver, which is part of the
    // pipeline's bubble. So its time is taken from its cost.
    row.is_message = collective == nullptr;
    row.time += row.is_message ? cost.time.p50() : use.end - use.start;
    if (!row.is_message) row.exposed += use.end - use.start - use.hidden;
    row.sent += static_cast<double>(bytes.count()) * (collective ? SentShare(*collective, ranks) : 1);
  }
  if (rows.empty()) return std::string();
  std::vector<Row> sorted;
  for (const auto& [key, row] : rows) sorted.push_back(row);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Row& a, const Row& b) { return a.exposed > b.exposed; });
  std::string text = "\n" + ink.Bold(fmt::format("collectives, rank {}", timeline.rank)) + "\n";
  text += ink.Dim(fmt::format("  {:<30}{:>6}{:>7}{:>22}{:>12}{:>10}{:>12}{:>9}  {}", "", "ranks", "count",
                              "bytes", "each (mean)", "bus GB/s", "exposed", "share", "by")) +
          "\n";
  for (const Row& row : sorted) {
    const double seconds = ToSeconds(row.time);
    const std::string waited_for = row.is_message
                                       ? fmt::format("{:>12}{:>9}", "", "")
                                       : fmt::format("{:>12}{:>9}", FormatTime(row.exposed),
                                                     FormatPercent(ShareOf(row.exposed, timeline.end)));
    text += fmt::format("  {:<30}{:>6}{:>7}{:>22}{:>12}{:>10}{}  {}\n", row.stream + " " + row.kind,
                        row.ranks, row.count, SizesText(row), FormatDuration(row.time / row.count),
                        seconds > 0 ? fmt::format("{:.1f}", row.sent / seconds / 1e9) : "", waited_for,
                        row.runs_by);
  }
  return text;
}

}  // namespace windtunnel
