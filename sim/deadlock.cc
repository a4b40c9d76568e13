#include "sim/deadlock.h"

#include <algorithm>
#include <set>

namespace windtunnel {
namespace {

class Reporter {
 public:
  Reporter(const StepSchedule& schedule, const std::vector<RankSnapshot>& ranks)
      : schedule_(schedule), ranks_(ranks) {}

  std::string Lines() const {
    std::string text;
    for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) {
      const RankSnapshot& snapshot = ranks_[rank];
      if (snapshot.is_waiting)
        text += fmt::format("\n  rank {} waits for {}", schedule_.ranks[rank].rank, AwaitedBy(rank));
      for (size_t queue = 0; queue < snapshot.queues.size(); ++queue) {
        if (snapshot.queues[queue].issued > snapshot.queues[queue].done) text += HeadOf(rank, queue);
      }
    }
    return text;
  }

 private:
  std::string Describe(int32_t rank, OpIndex op) const {
    const Op& description = schedule_.OpOf(rank, op);
    return fmt::format("{} '{}' (op {})", OperatorName(description.kind), description.name, op);
  }

  std::string AwaitedBy(int32_t rank) const {
    const RoleSchedule& role = schedule_.RoleOf(rank);
    const HostAction& wait = role.actions[ranks_[rank].action];
    return Describe(rank, role.queues[wait.first].ops[wait.second]);
  }

  std::string HeadOf(int32_t rank, size_t queue) const {
    const int32_t position = ranks_[rank].queues[queue].done;
    const RankQueue& layout = schedule_.queues[schedule_.ranks[rank].first_queue + queue];
    const int32_t transfer = schedule_.transfer_of_position[layout.first_transfer + position];
    const OpIndex op = schedule_.RoleOf(rank).queues[queue].ops[position];
    const bool has_arrived = ranks_[rank].queues[queue].has_arrived;
    return fmt::format("\n  rank {} is in {}, which waits for {}", schedule_.ranks[rank].rank,
                       Describe(rank, op),
                       has_arrived ? Absent(rank, op, transfer) : Missing(rank, queue, position));
  }

  // The operator of another of the rank's queues that the one at `position` waits for.
  std::string Missing(int32_t rank, size_t queue, int32_t position) const {
    const RoleSchedule& role = schedule_.RoleOf(rank);
    for (const QueuePrerequisite& needed : role.queues[queue].PrerequisitesOf(position)) {
      if (ranks_[rank].queues[needed.queue].done < needed.done)
        return Describe(rank, role.queues[needed.queue].ops[needed.done - 1]) + " of another stream";
    }
    return "nothing";
  }

  // The ranks that have not arrived at a transfer.
  std::string Absent(int32_t rank, OpIndex op, int32_t transfer) const {
    std::string text;
    std::set<int32_t> told;
    for (int world_rank : PeersOf(rank, op, schedule_.transfers[transfer])) {
      const int32_t peer = schedule_.PositionOf(world_rank);
      if (peer == rank || HasArrived(peer, transfer) || !told.insert(peer).second) continue;
      text += fmt::format("{}rank {}{}", text.empty() ? "" : ", ", world_rank, WhyNot(peer, transfer));
    }
    return text;
  }

  std::vector<int> PeersOf(int32_t rank, OpIndex op, const Transfer& transfer) const {
    const std::vector<int>& ranks = schedule_.plan->axes[transfer.axis].groups[transfer.group].ranks;
    const OpKind& kind = schedule_.OpOf(rank, op).kind;
    if (const auto* send = std::get_if<Send>(&kind)) return {ranks[send->peer]};
    if (const auto* receive = std::get_if<Receive>(&kind)) return {ranks[receive->peer]};
    return ranks;
  }

  struct Place {
    int32_t queue = -1, position = -1;  // of a rank's part of a transfer; -1: it has none
  };
  Place PlaceOf(int32_t rank, int32_t transfer) const {
    for (size_t queue = 0; queue < ranks_[rank].queues.size(); ++queue) {
      const RankQueue& layout = schedule_.queues[schedule_.ranks[rank].first_queue + queue];
      for (int32_t position = 0; position < layout.size; ++position) {
        if (schedule_.transfer_of_position[layout.first_transfer + position] == transfer) {
          return {static_cast<int32_t>(queue), position};
        }
      }
    }
    return {};
  }

  bool HasArrived(int32_t rank, int32_t transfer) const {
    const Place place = PlaceOf(rank, transfer);
    if (place.queue < 0) return false;
    const RankSnapshot::Queue& queue = ranks_[rank].queues[place.queue];
    return queue.done == place.position && queue.has_arrived;
  }

  std::string WhyNot(int32_t rank, int32_t transfer) const {
    const Place place = PlaceOf(rank, transfer);
    if (place.queue < 0) return " (its program has no such operator)";
    const RankSnapshot::Queue& queue = ranks_[rank].queues[place.queue];
    return queue.issued > place.position ? " (issued, behind others)" : " (not issued)";
  }

  const StepSchedule& schedule_;
  const std::vector<RankSnapshot>& ranks_;
};

}  // namespace

Error DeadlockError(const StepSchedule& schedule, const std::vector<RankSnapshot>& ranks) {
  return {ErrorKind::kFailed,
          "deadlock: nothing can go on, but the step is not over" + Reporter(schedule, ranks).Lines()};
}

}  // namespace windtunnel
