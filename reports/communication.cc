#include "reports/communication.h"

#include <algorithm>
#include <utility>

namespace windtunnel {
namespace {

Duration Overlap(const Span& a, const Span& b) {
  return std::max(std::min(a.end, b.end) - std::max(a.start, b.start), Duration());
}

bool Overlaps(const Slice& a, const Slice& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.elements && b.offset < a.offset + a.elements;
}

// Where a copy before `end` puts `gradient` within `message`; null when none does.
const Slice* CopiedInto(const Program& program, OpIndex end, const Slice& gradient, const Slice& message) {
  for (OpIndex i = 0; i < end; ++i) {
    const Op& op = program.ops[i];
    if (std::holds_alternative<Copy>(op.kind) && Overlaps(op.reads.front(), gradient) &&
        Overlaps(op.writes.front(), message))
      return &op.writes.front();
  }
  return nullptr;
}

}  // namespace

std::vector<CommunicationUse> CommunicationUses(const Role& role, const Timeline& timeline) {
  std::vector<const Span*> span_of(role.steady.ops.size());
  for (const Span& span : timeline.spans) span_of[span.op] = &span;
  std::vector<CommunicationUse> uses;
  for (size_t i = 0; i < span_of.size(); ++i) {
    const Op& op = role.steady.ops[i];
    const Span* span = span_of[i];
    if (!span || !IsCommunication(op.kind)) continue;
    CommunicationUse use{.op = span->op, .ready = {}, .start = span->start, .end = span->end, .hidden = {}};
    for (OpIndex dependency : op.dependencies)
      if (span_of[dependency]) use.ready = std::max(use.ready, span_of[dependency]->end);
    for (const Span& other : timeline.spans)
      if (other.stream == kComputeStream && other.op != span->op) use.hidden += Overlap(*span, other);
    uses.push_back(use);
  }
  return uses;
}

std::vector<int> ParametersCarried(const Role& role, const Program& program, OpIndex op) {
  if (program.ops[op].reads.empty()) return {};
  const Slice& message = program.ops[op].reads.front();
  std::vector<std::pair<int64_t, int>> carried;  // place in the message, position
  for (size_t p = 0; p < role.parameters.size(); ++p) {
    const Slice& gradient = role.parameters[p].gradient;
    int position = static_cast<int>(p);
    if (Overlaps(gradient, message)) carried.push_back({gradient.offset, position});
    else if (const Slice* copied = CopiedInto(program, op, gradient, message))
      carried.push_back({copied->offset, position});
  }
  std::sort(carried.begin(), carried.end());
  std::vector<int> positions;
  for (const auto& [offset, position] : carried) positions.push_back(position);
  return positions;
}

}  // namespace windtunnel
