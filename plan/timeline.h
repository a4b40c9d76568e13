// What an executor did: spans by stream and memory samples, in virtual or real time. Both executors emit this
// type, and every report is written over it.
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

// The time of an operator on its stream. A communication operator's span starts when it has been issued and
// everything that it waits for on this rank is done, and ends when it has completed on this rank.
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
  int64_t stands_for = 1;   // the number of ranks with this same timeline, itself included
  Duration end;             // the closing barrier's end (world size 1: the last operator's)
  std::vector<Span> spans;  // sorted by start; those of one stream in its order
  std::vector<MemorySample> memory;
  // Whether the host's thread runs the kernels of all streams, one after the other (a CPU). Else a device
  // runs those of each stream in its own queue.
  bool host_computes = true;
};

// What the host waited for (HostWait) before it issued operators, which therefore waited for it, too.
class AwaitedOnIssue {
 public:
  explicit AwaitedOnIssue(const Program& program) : program_(program) {}
  // Adds what it waited for since the operator of the last call and before `op`, a later one.
  void Until(OpIndex op, std::vector<OpIndex>& awaited);

 private:
  const Program& program_;
  OpIndex next_ = 0;
};

// Every instant of a step belongs to exactly one of these parts (docs/contract.md, "Result"); they add up to
// `step`. If a device computes, only its compute stream counts; waiting for the device's other streams
// (copies too) is exposed communication.
struct StepBreakdown {
  Duration step;
  Duration compute;
  Duration exposed_communication;  // the compute stream waits for communication
  // It waits for another pipeline stage (Stream::between_stages): messages, and collectives of all stages.
  Duration bubble;
  Duration host;  // nothing runs and nothing is waited for: dispatch
  // The busy time of the communication streams and, if a device computes, of its copy stream, hidden or not;
  // not part of the sum. A message counts on the sender: its receive may have been issued long before. The
  // barrier that ends a step does not count, since it moves nothing.
  Duration communication;

  double bubble_fraction() const { return ShareOf(bubble, step); }
};
// The step of one rank, which stands for `stands_for` ranks with the same one.
struct RankBreakdown {
  int rank = 0;
  int64_t stands_for = 1;
  StepBreakdown parts;
};

// The mean of breakdowns, part by part.
class BreakdownMean {
 public:
  void Add(const StepBreakdown& breakdown, int64_t ranks = 1);
  bool empty() const { return ranks_ == 0; }
  // REQUIRES: not empty.
  StepBreakdown Mean() const;

 private:
  __extension__ using Wide = __int128;  // 131,072 ranks times 70 s, in picoseconds, overflow 64 bits
  Wide sums_[6] = {};
  int64_t ranks_ = 0;
};

StepBreakdown BreakDown(const Timeline& timeline, const Role& role, const Program& program);
// Of steady steps, one for each timeline.
std::vector<RankBreakdown> BreakDown(const Plan& plan, const std::vector<Timeline>& timelines);
// Over the ranks that they stand for. REQUIRES: not empty.
StepBreakdown MeanOf(const std::vector<RankBreakdown>& breakdowns);
// Multiplies all parts by the number with which the mean takes `step`. Does nothing to steps that take no
// time.
void ScaleMeanTo(Duration step, std::vector<RankBreakdown>& breakdowns);

// The compute stream's time by kind of operator: OperatorName of what ran ("gemm", "norm", …), "wait
// all_reduce" (and so on) while it waited for that collective, "wait receive" for a stage, "dispatch" for the
// gaps. Adds up to timeline.end.
std::map<std::string, Duration> AttributeTime(const Timeline& timeline, const Role& role,
                                              const Program& program);

// Peak memory of a step (or of start-up).
// Members are the device's unless named host; categories are those at the moment of the allocated peak.
struct MemoryPeak {
  Bytes allocated, reserved;
  Bytes by_category[kCategories];
  Bytes host_allocated{};
  Bytes host_by_category[kCategories]{};
  // Fragmentation: what was allocated when most was reserved (the maximum over such moments), and the largest
  // request since the program set began that reserved more memory although as much was reserved and free.
  Bytes allocated_at_reserved{};
  Bytes largest_unserved{};
  // How often cached memory was released because no more could be reserved (PyTorch's num_alloc_retries).
  int64_t retries = 0;
  // The peak of the requested bytes, rounded as the allocator rounds requests: what `allocated` would be if
  // every block had the size of its request. It depends on the program alone, not on the allocator's policy.
  Bytes requested{};

  // Merges `later`: keeps the larger of every peak, together with the values at that peak's moment. Retries
  // and the largest unserved request become those of `later`.
  void Include(const MemoryPeak& later);
};

}  // namespace windtunnel
