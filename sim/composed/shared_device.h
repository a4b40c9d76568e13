// Two queues of kernels that share a rank's device evenly, beside communication that slows both down. They
// are simulated event by event, as in StepExecutor.
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
  // Operators [begin, end) of the strategy. `host`: when the host begins to issue them. `sends_arrived`: when
  // everything that the rank has sent has arrived. `lanes`: what is in flight already. `queue_ends`,
  // `op_ends`: when each queue is done with what came before, and when each operator ended; Run brings both
  // up to date. All references must outlive it.
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
  // Moves to the next instant at which something happens, and ends what ends then. False if there is none.
  bool Advance();

  const RankStrategy& strategy_;
  const int32_t begin_;
  const Lanes& lanes_;
  std::array<int64_t, kLocalStreams>& queue_ends_;
  std::vector<int64_t>& op_ends_;
  std::array<Queue, kLocalStreams> queues_;
  // By operator: when it is issued and, if it waits for messages that the rank has sent, these have arrived.
  std::vector<int64_t> issued_;
  std::vector<bool> is_done_;
  int64_t now_ = 0;
};

}  // namespace windtunnel::composed
