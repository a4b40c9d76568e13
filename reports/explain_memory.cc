#include <fmt/format.h>

#include <set>

#include "base/format.h"
#include "reports/communication.h"
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
  if (!program || moment.op < 0) return "before its first operator";
  std::string text = fmt::format("in '{}', allocating {}", moment.program,
                                 role.buffers[program->ops[moment.op].writes.front().buffer].name);
  OpIndex next = OperatorAfter(*program, moment.op);
  if (next < 0) return text;
  const Op& op = program->ops[next];
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
    std::string shape;
    for (int64_t extent : parameter.shape) shape += fmt::format("{}{}", shape.empty() ? "" : " × ", extent);
    text += fmt::format("    {:<44}{:>20}\n", parameter.name, shape);
  }
  if (parameters.size() > kListedParameters)
    text += fmt::format("    … and {} more\n", parameters.size() - kListedParameters);
  return text;
}

std::string RoleTitle(const Role& role) {
  return fmt::format("{} (rank{} {})", role.name, role.ranks.size() > 1 ? "s" : "", RankRanges(role.ranks));
}

}  // namespace

std::string ExplainBuckets(const Plan& plan, Ink ink) {
  std::string text;
  for (const Role& role : plan.roles) {
    std::string lines;
    std::set<std::string> seen;  // a unit is gathered and reduced several times, and carries the same
    for (const Op& op : role.steady.ops) {
      const auto* collective = std::get_if<Collective>(&op.kind);
      if (!collective || op.parameters.empty() || !seen.insert(op.name).second) continue;
      if (seen.size() > kListedBuckets) continue;
      lines += fmt::format("  {}: {} of {}, {}\n", op.name, OperatorName(op.kind),
                           FormatBytes(MessageBytes(*collective)),
                           Counted(static_cast<int64_t>(op.parameters.size()), "parameter tensor"));
      lines += ParameterLines(role, op.parameters);
    }
    if (seen.size() > kListedBuckets) lines += fmt::format("  … and {} more\n", seen.size() - kListedBuckets);
    if (!lines.empty())
      text += "\n" + ink.Bold("what collectives carry, in launch order, " + RoleTitle(role)) + "\n" + lines;
  }
  return text;
}

Result<std::string> ExplainMemory(const Plan& plan, Ink ink) {
  std::string text, same;  // roles whose peaks are the last one's
  std::vector<Bytes> last;
  for (const Role& role : plan.roles) {
    WT_ASSIGN_OR_RETURN(RolePeaks memory, ReplayMemory(role, kLargestBuffers, plan.scenario.allocator));
    std::string title = RoleTitle(role);
    const std::vector<Bytes> peaks = {memory.steady.memory.allocated, memory.startup.memory.allocated};
    if (peaks == last) {
      same += (same.empty() ? "\nas much: " : ", ") + title;
      continue;
    }
    if (!same.empty()) text += same + "\n";
    same.clear();
    last = peaks;
    text += DescribePeaks("the steady step, " + title, role, memory.steady, ink);
    text += DescribePeaks("start-up, " + title, role, memory.startup, ink);
  }
  return same.empty() ? text : text + same + "\n";
}

}  // namespace windtunnel
