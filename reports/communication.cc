#include "reports/communication.h"

#include <algorithm>

namespace windtunnel {
namespace {

// How long a stream, which runs one operator after the other, has been busy.
class BusyTime {
 public:
  BusyTime(const Timeline& timeline, StreamId stream) {
    for (const Span& span : timeline.spans) {
      if (span.stream != stream) continue;
      spans_.push_back(&span);
      before_.push_back(total_);
      total_ += span.end - span.start;
    }
  }

  Duration Between(Duration from, Duration to) const { return Until(to) - Until(from); }

 private:
  Duration Until(Duration time) const {
    const auto ends_later = std::partition_point(spans_.begin(), spans_.end(),
                                                 [&](const Span* span) { return span->end <= time; });
    if (ends_later == spans_.end()) return total_;
    return before_[ends_later - spans_.begin()] + std::max(time - (*ends_later)->start, Duration());
  }

  std::vector<const Span*> spans_;
  std::vector<Duration> before_;  // by span
  Duration total_;
};

}  // namespace

std::vector<CommunicationUse> CommunicationUses(const Role& role, const Timeline& timeline) {
  std::vector<const Span*> span_of(role.steady.ops.size());
  for (const Span& span : timeline.spans) span_of[span.op] = &span;
  const BusyTime computation(timeline, kComputeStream);
  std::vector<CommunicationUse> uses;
  for (size_t i = 0; i < span_of.size(); ++i) {
    const Op& op = role.steady.ops[i];
    const Span* span = span_of[i];
    if (!span || !IsCommunication(op.kind)) continue;
    CommunicationUse use{.op = span->op, .ready = {}, .start = span->start, .end = span->end, .hidden = {}};
    for (OpIndex dependency : op.dependencies)
      if (span_of[dependency]) use.ready = std::max(use.ready, span_of[dependency]->end);
    // An operator on the compute stream itself is not hidden by its own time there.
    if (span->stream != kComputeStream) use.hidden = computation.Between(span->start, span->end);
    uses.push_back(use);
  }
  return uses;
}

}  // namespace windtunnel
