#include "reports/communication.h"

#include <algorithm>

namespace windtunnel {
namespace {

Duration Overlap(const Span& a, const Span& b) {
  return std::max(std::min(a.end, b.end) - std::max(a.start, b.start), Duration());
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

}  // namespace windtunnel
