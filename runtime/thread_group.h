// Where the ranks of a group of threads meet (runtime/thread_communicator.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "runtime/group_operator.h"
#include "runtime/thread_communicator.h"

namespace windtunnel {

// One operator, as its ranks see it once all have come. The vectors are by rank; for a message, the sender
// comes first and then the receiver.
struct Meeting {
  explicit Meeting(int ranks)
      : operators(static_cast<size_t>(ranks), nullptr), fingerprints(static_cast<size_t>(ranks)) {}
  int ranks() const { return static_cast<int>(operators.size()); }

  std::vector<const GroupOperator*> operators;  // valid until the last phase has been passed
  std::vector<Fingerprint> fingerprints;
  std::atomic<int> arrived = 0;
  std::atomic<int> passed = 0;  // ranks, once for each phase that they have finished
};

class ThreadGroup {
 public:
  using Clock = Communicator::Clock;

  explicit ThreadGroup(const ThreadGroupOptions& options)
      : options_(options),
        at_(static_cast<size_t>(options.size), nullptr),
        views_(static_cast<size_t>(options.size)),
        is_gone_(static_cast<size_t>(options.size), false),
        is_given_up_(static_cast<size_t>(options.size), false) {}

  const ThreadGroupOptions& options() const { return options_; }

  // Waits until all ranks of `op` have come to it. From then on each of them works on it and comes to every
  // Pass, even if its work fails, so that no wait there is long. Errors name the rank, the operator, the
  // reason, and what the peers were at. After an error, every operator of the group fails.
  Result<std::shared_ptr<Meeting>> Meet(int rank, const GroupOperator& op, bool may_spin);
  // Waits until all ranks have finished phase `phase` (0, 1, …), as this one has.
  void Pass(Meeting& meeting, int phase, bool may_spin);
  // Ok unless an operator of the group has failed: then the error of `op`, which this rank is at.
  Status Check(int rank, const GroupOperator& op);
  // Fails the group's operators, and returns the error of `op`, which cannot begin or go on for `reason`.
  Status Fail(int rank, const GroupOperator& op, const std::string& reason);

  void GiveUp(int rank);  // fails the rank's Meet in progress, if any
  void Leave(int rank);   // the rank does not come any more

 private:
  using Key = std::tuple<int, int, uint32_t>;  // from and to (-1: a collective), number
  static Key KeyOf(int rank, const GroupOperator& op);

  template <typename Condition>
  void Spin(bool may_spin, Condition condition) const;
  bool AwaitsSomeoneGone(const Meeting& meeting, int rank, const GroupOperator& op) const;
  static std::string Disagreement(const Meeting& meeting, const GroupOperator& op);
  Status Explain(int rank, const GroupOperator& op, const std::string& reason);

  struct Failure {
    int rank;
    std::string reason;
  };

  const ThreadGroupOptions options_;
  std::atomic<bool> has_failed_ = false;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<Key, std::shared_ptr<Meeting>> meetings_;  // that not all ranks have come to
  std::vector<const GroupOperator*> at_;  // by rank: the operator at which it waits for the others
  std::vector<std::string> views_;        // by rank: where it failed
  std::vector<bool> is_gone_, is_given_up_;
  std::optional<Failure> failure_;  // the first
};

}  // namespace windtunnel
