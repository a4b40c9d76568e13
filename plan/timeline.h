// What an executor did: spans by stream and memory samples, in virtual or real time. Both executors emit this type, and
// every report is written over it.
//
// One timeline covers one step of one rank; times are since the barrier that opened the step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"

namespace windtunnel {

// An operator's stay on its stream. A communication operator's span starts when it is issued to its stream and everything it
// waits for on this rank is done, and ends when it has completed on this rank.
struct Span {
  OpIndex op = -1;
  StreamId stream = kComputeStream;
  Duration start, end;
};

// Bytes allocated and reserved right after Program::memory[index].
struct MemorySample {
  int32_t index = -1;
  Duration time;
  Bytes allocated, reserved;
};

struct Timeline {
  int rank = 0;
  int64_t stands_for = 1;   // ranks that did the same at every instant, itself included
  Duration end;             // the closing barrier's end (world size 1: the last operator's)
  std::vector<Span> spans;  // by stream in order; across streams by start
  std::vector<MemorySample> memory;
  // Whether the host's thread runs the kernels of all streams, one after the other (a CPU); else a device runs each
  // stream's in its own queue.
  bool host_computes = true;
};

// Every instant of a step is exactly one of these (docs/contract.md, "Result"); they add up to `step`. Where a device computes, the
// compute stream alone counts, and what it waits for on the device's other streams (copies too) is exposed communication.
struct StepBreakdown {
  Duration step;
  Duration compute;
  Duration exposed_communication;  // the compute stream waits for communication
  Duration
      bubble;  // it waits for another pipeline stage (Stream::between_stages): messages, and what all stages do together
  Duration host;  // nothing runs and nothing is waited for: dispatch
  // Busy time of the communication streams and, where a device computes, of its copy stream; hidden or not (not part of the sum). A
  // message counts where it is sent: a receive may stand ready long before.
  Duration communication;
};

// The mean of breakdowns, part by part.
class BreakdownMean {
 public:
  void Add(const StepBreakdown& breakdown, int64_t ranks = 1);
  bool empty() const { return ranks_ == 0; }
  // REQUIRES: not empty.
  StepBreakdown Mean() const;

 private:
  __extension__ using Wide = __int128;  // 131,072 ranks of 70 s are more picoseconds than 64 bits hold
  Wide sums_[6] = {};
  int64_t ranks_ = 0;
};

StepBreakdown BreakDown(const Timeline& timeline, const Role& role, const Program& program);

// Where the compute stream's time goes, by kind of operator: OperatorName of what ran ("gemm", "norm", …), "wait all_reduce" (and
// so on) while it waited for that collective, "wait receive" for a stage, "dispatch" for the gaps. Adds up to timeline.end.
std::map<std::string, Duration> AttributeTime(const Timeline& timeline, const Role& role,
                                              const Program& program);

// Memory of a step (or of start-up).
// The device's, unless it says otherwise; categories are those of the moment of the allocated peak.
struct MemoryPeak {
  Bytes allocated, reserved;
  Bytes by_category[kCategories];
  Bytes host_allocated{};
  Bytes host_by_category[kCategories]{};
  // Fragmentation: what was allocated when most was reserved (of such moments, the fullest), and the largest request since the program
  // set began that more memory was reserved for although as much was reserved and free.
  Bytes allocated_at_reserved{};
  Bytes largest_unserved{};
  // How often the allocator gave back what it had cached since there was no more memory to reserve (PyTorch's num_alloc_retries).
  int64_t retries = 0;
  // What was asked for, rounded as the allocator rounds requests, at its own peak: what `allocated` would be if every block fitted.
  // Of the program alone, whatever the allocator's policy.
  Bytes requested{};

  // Both as one account: the larger of every peak; what there was at a moment is that of the moment that counts. `later` has the last word
  // on retries and on the largest unserved request.
  void Include(const MemoryPeak& later);
};

}  // namespace windtunnel
