#include "reports/critical_path.h"

#include <algorithm>
#include <map>

namespace windtunnel {
namespace {

using OpIndices = std::vector<OpIndex>;  // in program order

// How many of `indices` come before `index`.
int64_t CountBefore(const OpIndices& indices, OpIndex index) {
  return std::lower_bound(indices.begin(), indices.end(), index) - indices.begin();
}

// Spans of one rank by operator, and what came before each.
class RankSpans {
 public:
  RankSpans() = default;
  RankSpans(const Role& role, const Timeline& timeline)
      : role_(&role), span_of_(role.steady.ops.size()), ran_(role.streams.size()) {
    for (const Span& span : timeline.spans) span_of_[span.op] = &span;
    for (OpIndex i = 0; i < static_cast<OpIndex>(span_of_.size()); ++i) {
      const Op& op = role.steady.ops[i];
      if (span_of_[i]) ran_[op.stream].push_back(i);
      if (IsCommunication(op.kind)) carried_[KeyOf(op)].push_back(i);
      if (std::holds_alternative<HostWait>(op.kind)) host_waits_.push_back(i);
    }
  }

  const Role& role() const { return *role_; }
  const Op& op(OpIndex index) const { return role_->steady.ops[index]; }
  const Span* Find(OpIndex index) const {
    return index >= 0 && index < static_cast<OpIndex>(span_of_.size()) ? span_of_[index] : nullptr;
  }

  // The operator that meets the communication operator `index` of `other`: the one at the same position among
  // the communication operators of the same stream. -1: none.
  OpIndex Counterpart(const RankSpans& other, OpIndex index) const {
    const StreamKey key = other.KeyOf(other.op(index));
    const auto mine = carried_.find(key);
    if (mine == carried_.end()) return -1;
    const int64_t before = CountBefore(other.carried_.at(key), index);
    return before < static_cast<int64_t>(mine->second.size()) ? mine->second[before] : -1;
  }

  // The span that `span` waited for last; null when it waited for nothing.
  const Span* Predecessor(const Span& span) const {
    const Span* last = nullptr;
    auto consider = [&](const Span* candidate) {
      if (candidate && candidate->end <= span.start && (!last || candidate->end > last->end))
        last = candidate;
    };
    consider(Before(span.op, op(span.op).stream));
    if (op(span.op).stream != kComputeStream) consider(Before(span.op, kComputeStream));
    for (OpIndex dependency : op(span.op).dependencies) consider(Find(dependency));
    // The host waited for these before it issued the operator.
    if (const int64_t waits = CountBefore(host_waits_, span.op); waits > 0)
      for (OpIndex dependency : op(host_waits_[waits - 1]).dependencies) consider(Find(dependency));
    return last;
  }

 private:
  using StreamKey = std::pair<int, std::string>;  // axis and name, by which streams of different roles meet
  StreamKey KeyOf(const Op& op) const {
    const Stream& stream = role_->streams[op.stream];
    return {stream.axis, stream.name};
  }

  // The last span of `stream` before `index` in the program.
  const Span* Before(OpIndex index, StreamId stream) const {
    const int64_t count = CountBefore(ran_[stream], index);
    return count == 0 ? nullptr : span_of_[ran_[stream][count - 1]];
  }

  const Role* role_ = nullptr;
  std::vector<const Span*> span_of_;
  std::vector<OpIndices> ran_;  // by stream
  OpIndices host_waits_;
  std::map<StreamKey, OpIndices> carried_;  // communication operators
};

class Walk {
 public:
  Walk(const Plan& plan, const std::vector<Timeline>& timelines) : plan_(plan) {
    for (const Timeline& timeline : timelines)
      ranks_[timeline.rank] = RankSpans(plan.RoleOf(timeline.rank), timeline);
  }

  std::vector<PathSegment> Back(int rank, const Span* span, Duration end) {
    std::vector<PathSegment> path;
    if (span->end < end) path.push_back({rank, -1, span->end, end});
    while (span) {
      HopToLastArrival(rank, span);
      path.push_back({rank, span->op, span->start, path.empty() ? end : path.back().start});
      const Span* before = ranks_[rank].Predecessor(*span);
      Duration ready = before ? before->end : Duration();
      if (ready < span->start) path.push_back({rank, -1, ready, span->start});
      span = before;
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  // Moves to the last arrival, which is what the others wait for: of a collective's ranks, or of a message's
  // two ends. A rank of another role that has no timeline is represented by a rank of that role.
  void HopToLastArrival(int& rank, const Span*& span) {
    const RankSpans& here = ranks_[rank];
    const Op& op = here.op(span->op);
    if (!IsCommunication(op.kind)) return;
    const Stream& stream = here.role().streams[op.stream];
    if (stream.axis < 0) return;
    const OpIndex index = span->op;
    for (int member : plan_.GroupOf(rank, stream).ranks) {
      const auto other = RankFor(member, here.role());
      if (other == ranks_.end()) continue;
      const Span* theirs = other->second.Find(other->second.Counterpart(here, index));
      if (theirs && theirs->start > span->start) {
        rank = other->first;
        span = theirs;
      }
    }
  }

  std::map<int, RankSpans>::iterator RankFor(int member, const Role& role) {
    const auto found = ranks_.find(member);
    const Role& theirs = plan_.RoleOf(member);
    if (found != ranks_.end() || &theirs == &role) return found;
    return std::find_if(ranks_.begin(), ranks_.end(),
                        [&](const auto& entry) { return &entry.second.role() == &theirs; });
  }

  const Plan& plan_;
  std::map<int, RankSpans> ranks_;
};

}  // namespace

std::vector<PathSegment> CriticalPath(const Plan& plan, const std::vector<Timeline>& timelines) {
  const Span* last = nullptr;
  int rank = 0;
  Duration end;
  for (const Timeline& timeline : timelines) {
    end = std::max(end, timeline.end);
    for (const Span& span : timeline.spans)
      if (!last || span.end > last->end) {
        last = &span;
        rank = timeline.rank;
      }
  }
  if (!last) return {};
  return Walk(plan, timelines).Back(rank, last, end);
}

}  // namespace windtunnel
