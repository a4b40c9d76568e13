// The virtual-time executor: runs a step schedule, given the time of each operator.
//
// An activity is a rank's host thread inside a segment, or a transfer that all its ranks have reached. It has
// remaining work (time at speed 1) and a speed. Where the host computes, the speeds are:
//
//   host      its share of its core (sim/core_sharing.h) x the efficiency of every transfer in flight on its rank
//   transfer  min over its ranks of (share of the core) / (share that it needs to run as if alone); at most 1
//
// Where a device computes (ScheduleOptions::host), hosts, copies and communication run at speed 1, and
//
//   kernel    e / (kernels in flight on its rank, on several streams), where e is the product of the
//             efficiencies of all communication in flight there. While some of it holds multiprocessors, e is
//             at most the kernel's own speed beside such communication (KernelCost::beside_communication).
//
// Transfers that cross links (CostModel::has_links) share them max-min fairly (sim/link_sharing.h). Such a
// transfer is never faster than its share of its links allows.
//
// Whenever the set of activities on a core changes, the speeds there are solved again, the work done so far
// is settled, and the finish events of the activities whose speed changed are rescheduled.
//
//   StepExecutor executor(schedule, {.cores_per_node = 2, .ranks_per_node = 2}, traits);
//   WT_ASSIGN_OR_RETURN(Duration step, executor.Run(work, nullptr));
#pragma once

#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "sim/core_sharing.h"
#include "sim/deadlock.h"
#include "sim/event_queue.h"
#include "sim/link_sharing.h"
#include "sim/recording.h"
#include "sim/step_schedule.h"

namespace windtunnel {

// Rank r has index i = r mod ranks_per_node on its node, and runs on the node's core i mod cores_per_node.
struct CoreLayout {
  // 0: every rank has a core or a device of its own, and communication has engines of its own. Always 0 where
  // the host only issues.
  int cores_per_node = 0;
  int ranks_per_node = 1;
};

// How a transfer shares cores and devices (CommunicationCost and KernelCost of cost_models/cost_model.h).
struct TransferTraits {
  double core_share = 0;
  double weight = 1;
  double compute_efficiency = 1;
  bool holds_multiprocessors = false;
  double beside_communication = 0;  // of a kernel; as KernelCost's
};

// How long everything takes at speed 1.
struct StepWork {
  std::vector<Duration> items;  // of all ranks, in StepSchedule's order
  std::vector<Duration> transfers;
  // By transfer: the time from when its prerequisites are done on the ranks that are laid out until the last
  // of the ranks that these stand for arrives (sim/lateness.h). Empty: no rank is late.
  std::vector<Duration> lateness = {};
};

class StepExecutor {
 public:
  // `traits` is by transfer. The schedule must outlive the executor.
  StepExecutor(const StepSchedule& schedule, CoreLayout cores, std::vector<TransferTraits> traits,
               NetworkFlows flows = {});

  // The step's time: the latest end over ranks. Fills in `recording` unless it is null.
  // Errors: Failed when ranks wait for each other for ever (lists who waits for what), InvalidInput for a
  // step of months.
  Result<Duration> Run(const StepWork& work, StepRecording* recording);

  // Events of the engine in the last Run.
  int64_t events() const { return queue_.fired(); }

 private:
  struct Activity {
    // Picoseconds at speed 1, as of `since`. Not an integer: roundings at every change of speed would add up.
    double remaining = 0;
    Duration since;
    double speed = 0;  // 0: not set yet
    EventId finish;
  };
  enum class HostState : uint8_t { kRunnable, kWorking, kWaiting, kDone };
  struct RankState {
    Activity work;
    HostState state = HostState::kRunnable;
    int32_t action = 0;     // the current one; the next one if none is in progress
    Duration segment_work;  // total, of the current segment
  };
  struct QueueState {
    int32_t issued = 0, done = 0;
    bool has_arrived = false;  // its head: issued, and its prerequisites on this rank are done
    int32_t in_flight = -1;    // transfer
    double speed_limit = 1;    // the highest speed that this rank's core or device allows the transfer
  };
  struct TransferState {
    Activity work;
    int32_t arrived = 0;
    bool is_dirty = false;
    double link_limit = 1;  // the highest speed that its links allow
  };
  struct Happening {  // the engine's event
    enum class Kind : uint8_t { kSegmentEnds, kTransferBegins, kTransferEnds } kind;
    int32_t index;  // rank or transfer
  };

  void Reset();
  void RunHost(int32_t rank);
  bool RunAction(int32_t rank, const HostAction& action);
  bool StartSegment(int32_t rank, const HostAction& action);
  void FinishSegment(int32_t rank);
  void ArriveIfReady(int32_t queue);
  bool HasPrerequisites(int32_t queue) const;
  Duration WaitForTheLate(int32_t transfer) const;
  void StartTransfer(int32_t transfer);
  void BeginTransfer(int32_t transfer);
  void FinishTransfer(int32_t transfer);

  void MarkCoreOf(int32_t rank);
  void UpdateSpeeds();
  int32_t FlowOf(int32_t transfer) const {
    return flow_of_transfer_.empty() ? -1 : flow_of_transfer_[transfer];
  }
  void ShareCoreAmong(int32_t core);
  void ShareDeviceOf(int32_t rank);
  double EfficiencyOn(int32_t rank) const;
  bool HoldsMultiprocessors(int32_t rank) const;
  void SetHostSpeed(int32_t rank, double speed);
  void LimitTransfer(QueueState& queue, double speed);
  void SetTransferSpeed(int32_t transfer);
  bool SetSpeed(Activity& activity, double speed, Happening end);
  bool IsComplete() const;
  std::vector<RankSnapshot> Snapshot() const;

  bool HostComputes() const { return schedule_.host == HostRole::kComputes; }
  int32_t FirstQueueOf(int32_t rank) const { return schedule_.ranks[rank].first_queue; }
  int32_t EndQueueOf(int32_t rank) const;

  const StepSchedule& schedule_;
  const CoreLayout cores_;
  const std::vector<TransferTraits> traits_;
  const std::vector<int32_t> flow_of_transfer_;
  LinkSharing links_;
  std::vector<std::vector<int32_t>> ranks_of_core_;
  std::vector<int32_t> core_of_rank_;

  // State of a run.
  const StepWork* work_ = nullptr;
  StepRecording* recording_ = nullptr;
  EventQueue<Happening> queue_;
  std::vector<RankState> ranks_;
  std::vector<QueueState> queues_;
  std::vector<TransferState> transfers_;
  std::vector<Duration> done_at_;  // by queue and position; empty if no rank is late
  Duration end_;

  // Scratch, kept for its memory.
  std::vector<int32_t> dirty_cores_, dirty_transfers_;
  std::vector<bool> is_dirty_core_;
  std::vector<CoreClaim> claims_;
};

}  // namespace windtunnel
