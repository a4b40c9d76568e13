// Two queues of kernels that share a rank's device evenly, beside communication that slows both down: event by event, as StepExecutor.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/composed/rank_strategy.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

// Communication of one queue that may be in flight beside kernels, in order.
struct Lane {
  struct Flight {
    int64_t start = 0, end = 0;
    double efficiency = 1;  // of kernels
    bool holds_multiprocessors = false;
  };
  std::vector<Flight> flights;
  size_t head = 0;  // the first that may not have ended
};
using Lanes = std::array<Lane, kLocalStreams>;

// A stretch of operators that no other rank takes part in.
class SharedDevice {
 public:
  // Operators [begin, end) of the strategy; `host` when the host begins to issue them; when all that the rank has sent has arrived; what
  // is in flight already; when each queue has done what came before, and each operator ended, which are both brought up to date. All
  // outlive it.
  SharedDevice(const RankStrategy& strategy, int32_t begin, int32_t end, int64_t host, int64_t sends_arrived,
               const Lanes& lanes, std::array<int64_t, kLocalStreams>& queue_ends,
               std::vector<int64_t>& op_ends);
  void Run();

 private:
  struct Queue {
    std::vector<int32_t> ops;
    size_t next = 0;
    bool in_flight = false;
    double remaining = 0;  // picoseconds at speed 1
    int64_t since = 0, finish = 0;
    double speed = 0;  // 0: not set yet
  };

  static bool IsKernels(int stream) { return stream == kCompute || stream == kCopies; }
  int64_t ArrivalOf(int stream) const;
  void BeginWhatCan();
  void UpdateSpeeds();
  // Moves on to the next instant, and ends what ends then. False when there is nothing.
  bool Advance();

  const RankStrategy& strategy_;
  const int32_t begin_;
  const Lanes& lanes_;
  std::array<int64_t, kLocalStreams>& queue_ends_;
  std::vector<int64_t>& op_ends_;
  std::array<Queue, kLocalStreams> queues_;
  std::vector<int64_t>
      issued_;  // by operator; of those that wait for what was sent: when that has arrived, too
  std::vector<bool> is_done_;
  int64_t now_ = 0;
};

}  // namespace windtunnel::composed
