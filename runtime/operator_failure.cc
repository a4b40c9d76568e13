#include "runtime/operator_failure.h"

#include <algorithm>

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

// After a failure, how long peers get to say where they are. Those that the same deadline hit are late by
// their skew only.
constexpr milliseconds kViewsTime{500};
// The rank that failed first cuts its connections a moment before it has said where it is.
constexpr milliseconds kCutTime{100};
// The process that serves the store may be the one that hangs. After a time-out this must not
// take half a minute to find out.
constexpr milliseconds kStoreTime{2'000};
constexpr char kAny[] = "any";

}  // namespace

Error OperatorFailures::Explain(const GroupOperator& op, Clock::time_point start, milliseconds timeout,
                                const Error& error) {
  const bool timed_out = Clock::now() - start >= timeout;
  std::string text = fmt::format("rank {} of group '{}': {} '{}' ({}) failed: {}", rank_, name_,
                                 Name(op.operation), op.name, Describe(op.fingerprint), error.message);
  return Error{ErrorKind::kFailed, text + PeerViews(op, timed_out)};
}

bool OperatorFailures::AnyFailed() {
  const Result<bool> any = store_.Has(Key(kAny));
  return any && *any;
}

// Tells the store where this rank is, and collects what its peers have told: "; rank 1 was at number 7,
// barrier 'start'".
std::string OperatorFailures::PeerViews(const GroupOperator& op, bool timed_out) {
  const std::string view = fmt::format("{} '{}'", Describe(op.fingerprint), op.name);
  if (timed_out) store_.SetPatience(kStoreTime);
  if (!store_.Set(Key(std::to_string(rank_)), view) || !store_.Set(Key(kAny), ""))
    return "; nor does the job's store answer, which its first process serves";
  const auto deadline = Clock::now() + (timed_out ? kViewsTime : kCutTime);
  std::string text;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    Result<std::string> theirs = store_.Get(Key(std::to_string(peer)), std::max(left, milliseconds(0)));
    if (theirs) text += fmt::format("; rank {} was at {}", peer, *theirs);
    else if (timed_out) text += fmt::format("; rank {} did not get that far", peer);
  }
  return text;
}

}  // namespace windtunnel
