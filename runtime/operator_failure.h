// The error message of a failed operator on one rank of a group: who, what, and where its peers are. Ranks
// tell each other through the store.
//
//   OperatorFailures failures(store, "data", rank, size);
//   return failures.Explain(op, start, timeout, error);   // Failed("rank 0 of group 'data': all_reduce 'bucket 0' (number 7, …) failed: …")
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "runtime/group_operator.h"
#include "runtime/store.h"

namespace windtunnel {

class OperatorFailures {
 public:
  using Clock = std::chrono::steady_clock;

  // `store` must outlive it. `name`: the group's.
  OperatorFailures(Store& store, std::string name, int rank, int size)
      : store_(store), name_(std::move(name)), rank_(rank), size_(size) {}

  // Adds to `error` the rank, the operator and what the peers have told. If the operator began at `start` and
  // ended by its deadline, peers get some time to tell. Afterwards AnyFailed is true on all ranks.
  Error Explain(const GroupOperator& op, Clock::time_point start, std::chrono::milliseconds timeout,
                const Error& error);

  // Whether any rank of the group has told of a failure. A round trip to the store.
  bool AnyFailed();

 private:
  std::string PeerViews(const GroupOperator& op, bool timed_out);
  std::string Key(const std::string& what) const { return "failed/" + name_ + "/" + what; }

  Store& store_;
  std::string name_;
  int rank_, size_;
};

}  // namespace windtunnel
