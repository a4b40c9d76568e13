#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/format.h"
#include "plan/ops.h"
#include "reports/explain.h"
#include "reports/memory_peak.h"
#include "reports/words.h"

namespace windtunnel {
namespace {

constexpr int kLargestBuffers = 10;
constexpr size_t kListedBuckets = 8;
constexpr size_t kListedParameters = 12;

const Program* FindProgram(const Role& role, const std::string& name) {
  if (role.initialize.name == name) return &role.initialize;
  for (const Program& program : role.startup)
    if (program.name == name) return &program;
  return role.steady.name == name ? &role.steady : nullptr;
}

std::string WhenReached(const Role& role, const PeakMoment& moment) {
  const Program* program = FindProgram(role, moment.program);
  if (!program || moment.index < 0) return "before its first operator";
  const MemoryOp& reached = program->memory[moment.index];
  const std::string text =
      fmt::format("in '{}', allocating {}", moment.program, role.buffers[reached.buffer].name);
  if (reached.before == static_cast<OpIndex>(program->ops.size())) return text;
  const Op& op = program->ops[reached.before];
  return text + fmt::format(" for {} {} ({})", Name(op.phase), op.name, OperatorName(op.kind));
}

std::string DescribeMoment(const Role& role, const PeakMoment& moment, Ink ink) {
  std::string text = fmt::format("  reached {}\n", WhenReached(role, moment));
  for (int i = 0; i < kCategories; ++i) {
    Bytes bytes = moment.by_category[i];
    if (bytes == Bytes(0)) continue;
    text += fmt::format("  {:<16}{:>12} {:>6.1f} %\n", Name(static_cast<Category>(i)), FormatBytes(bytes),
                        100 * (bytes / moment.allocated));
  }
  text += ink.Dim("  the largest buffers alive then") + "\n";
  for (BufferId id : moment.largest) {
    const Buffer& buffer = role.buffers[id];
    text +=
        fmt::format("    {:<48}{:>12}  {}\n", buffer.name, FormatBytes(buffer.bytes), Name(buffer.category));
  }
  return text;
}

// Why more is reserved than allocated.
std::string DescribeFragmentation(const MemoryPeak& memory) {
  const Bytes unused = memory.reserved - memory.allocated;
  std::string text = fmt::format("  reserved and never allocated at once: {}\n", FormatBytes(unused));
  if (memory.largest_unserved == Bytes(0)) return text;
  return text + fmt::format("  fragmentation: a request of {} needed more memory although as much was free\n",
                            FormatBytes(memory.largest_unserved));
}

std::string DescribePeaks(const std::string& title, const Role& role, const ProgramPeaks& peaks, Ink ink) {
  const MemoryPeak& memory = peaks.memory;
  std::string text = "\n" +
                     ink.Bold(fmt::format("peak memory of {}: {} allocated, {} reserved", title,
                                          FormatBytes(memory.allocated), FormatBytes(memory.reserved))) +
                     "\n" + DescribeFragmentation(memory) + DescribeMoment(role, peaks.device, ink);
  if (memory.host_allocated == Bytes(0)) return text;
  return text + "\n" +
         ink.Bold(
             fmt::format("peak host memory of {}: {} allocated", title, FormatBytes(memory.host_allocated))) +
         "\n" + DescribeMoment(role, peaks.host, ink);
}

std::string ParameterLines(const Role& role, const std::vector<int32_t>& parameters) {
  std::string text;
  for (size_t i = 0; i < parameters.size() && i < kListedParameters; ++i) {
    const Parameter& parameter = role.parameters[parameters[i]];
    text += fmt::format("    {:<44}{:>20}\n", parameter.name, FormatShape(parameter.shape));
  }
  if (parameters.size() > kListedParameters)
    text += fmt::format("    … and {} more\n", parameters.size() - kListedParameters);
  return text;
}

std::string RoleTitle(const Role& role) { return fmt::format("{} ({})", role.name, NamedRanks(role.ranks)); }

// The collectives of a role that carry gradients: as text, and their sizes, which are equal in like roles.
struct Carried {
  std::string lines;
  std::vector<std::pair<Bytes, size_t>> sizes;  // by collective: bytes and number of tensors
};

// The length of the block in a parameter's name: "blocks.3.", "encoder.3."; 0 outside of blocks.
size_t BlockPrefix(const Parameter& parameter) {
  const std::string& name = parameter.name;
  if (parameter.layer < 0 || !(name.starts_with("blocks.") || name.starts_with("encoder."))) return 0;
  return name.find('.', name.find('.') + 1) + 1;
}

// What the collective carries, with layers counted from that of its first tensor.
std::string ContentOf(const Role& role, const Op& op, const Collective& collective) {
  std::string content = fmt::format("{} {}", OperatorName(op.kind), MessageBytes(collective).count());
  const int first_layer = role.parameters[op.parameters.front()].layer;
  for (const int32_t index : op.parameters) {
    const Parameter& parameter = role.parameters[index];
    const size_t prefix = BlockPrefix(parameter);
    content += fmt::format(" +{} {} {}", prefix > 0 ? parameter.layer - first_layer : 0,
                           parameter.name.substr(prefix), FormatShape(parameter.shape));
  }
  return content;
}

Carried CarriedBy(const Role& role) {
  Carried carried;
  std::set<std::string> seen;  // a unit's several gathers and reductions carry the same
  std::string content;         // of the collective that was listed last
  std::vector<std::string> alike;  // collectives that follow it and carry the same for other layers
  size_t listed = 0, left_out = 0;
  const auto list_alike = [&] {
    if (alike.size() == 1) carried.lines += fmt::format("  {}: the same\n", alike.front());
    if (alike.size() > 1)
      carried.lines +=
          fmt::format("  {} … {}: the same, {} times\n", alike.front(), alike.back(), alike.size());
    alike.clear();
  };
  for (const Op& op : role.steady.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (!collective || op.parameters.empty() || !seen.insert(op.name).second) continue;
    carried.sizes.emplace_back(MessageBytes(*collective), op.parameters.size());
    std::string its_content = ContentOf(role, op, *collective);
    if (its_content == content) {
      alike.push_back(op.name);
      continue;
    }
    list_alike();
    content.clear();
    if (listed == kListedBuckets) {
      ++left_out;
      continue;
    }
    ++listed;
    content = std::move(its_content);
    carried.lines += fmt::format("  {}: {} of {}, {}\n", op.name, OperatorName(op.kind),
                                 FormatBytes(MessageBytes(*collective)),
                                 Counted(static_cast<int64_t>(op.parameters.size()), "parameter tensor"));
    carried.lines += ParameterLines(role, op.parameters);
  }
  list_alike();
  if (left_out > 0) carried.lines += fmt::format("  … and {} more\n", left_out);
  return carried;
}

// The peaks of a role, or of consecutive roles whose peaks are equal.
struct AlikePeaks {
  std::vector<const Role*> roles;
  RolePeaks peaks;

  bool AreLike(const RolePeaks& other) const {
    return peaks.steady.memory.allocated == other.steady.memory.allocated &&
           peaks.startup.memory.allocated == other.startup.memory.allocated;
  }
};

std::string InFull(const AlikePeaks& alike, Ink ink) {
  const Role& role = *alike.roles.front();
  std::string text = DescribePeaks("the steady step, " + RoleTitle(role), role, alike.peaks.steady, ink) +
                     DescribePeaks("start-up, " + RoleTitle(role), role, alike.peaks.startup, ink);
  for (size_t i = 1; i < alike.roles.size(); ++i)
    text += (i == 1 ? "\nas much: " : ", ") + RoleTitle(*alike.roles[i]);
  return alike.roles.size() > 1 ? text + "\n" : text;
}

std::string PeaksTable(const std::vector<AlikePeaks>& all, Ink ink) {
  std::string text = "\n" + ink.Bold("peak memory of all ranks") + "   in full: --memory\n" +
                     ink.Dim(fmt::format("  {:<16}{:>24}{:>24}", "ranks", "steady step", "start-up")) + "\n" +
                     ink.Dim(fmt::format("  {:<16}{:>12}{:>12}{:>12}{:>12}", "", "allocated", "reserved",
                                         "allocated", "reserved")) +
                     "\n";
  for (const AlikePeaks& alike : all)
    for (const Role* role : alike.roles) {
      const MemoryPeak& steady = alike.peaks.steady.memory;
      const MemoryPeak& startup = alike.peaks.startup.memory;
      text += fmt::format("  {:<16}{:>12}{:>12}{:>12}{:>12}\n", RankRanges(role->ranks),
                          FormatBytes(steady.allocated), FormatBytes(steady.reserved),
                          FormatBytes(startup.allocated), FormatBytes(startup.reserved));
    }
  return text;
}

}  // namespace

std::string ExplainBuckets(const Plan& plan, Ink ink) {
  std::string text;
  std::vector<std::pair<const Role*, Carried>> described;
  std::map<const Role*, std::vector<int>> alike;  // ranks of roles that are like the one described
  for (const Role& role : plan.roles) {
    Carried carried = CarriedBy(role);
    if (carried.sizes.empty()) continue;
    const auto same = std::find_if(described.begin(), described.end(),
                                   [&](const auto& other) { return other.second.sizes == carried.sizes; });
    if (same == described.end()) described.emplace_back(&role, std::move(carried));
    else alike[same->first].insert(alike[same->first].end(), role.ranks.begin(), role.ranks.end());
  }
  for (const auto& [role, carried] : described) {
    text += "\n" + ink.Bold("what collectives carry, in launch order, " + RoleTitle(*role)) + "\n" +
            carried.lines;
    if (!alike[role].empty()) text += fmt::format("  as much on ranks {}\n", RankRanges(alike[role]));
  }
  return text;
}

Result<std::string> ExplainMemory(const Plan& plan, Bytes room, MemoryDetail detail, Ink ink) {
  std::vector<AlikePeaks> all;
  for (const Role& role : plan.roles) {
    WT_ASSIGN_OR_RETURN(RolePeaks peaks, ReplayMemory(role, kLargestBuffers, plan.scenario.allocator, room));
    if (all.empty() || !all.back().AreLike(peaks)) all.push_back({{}, std::move(peaks)});
    all.back().roles.push_back(&role);
  }
  std::string text;
  if (detail == MemoryDetail::kAll || all.size() <= 2) {
    for (const AlikePeaks& alike : all) text += InFull(alike, ink);
    return text;
  }
  const auto largest = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.peaks.steady.memory.allocated < b.peaks.steady.memory.allocated;
  });
  return InFull(*largest, ink) + PeaksTable(all, ink);
}

}  // namespace windtunnel
