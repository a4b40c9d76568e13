// A plan's steady step, laid out flat for the executor: what each role's host does, in order, and which
// operators of which ranks form one transfer (a collective, or a send with its receive).
//
// Where the host computes (a CPU runs kernels in the calling thread), the host thread of a rank is its
// compute stream. For each operator it pays a dispatch time, waits for the communication operators that it
// depends on, and then runs it or hands it to a communication stream. Between two points where a host issues
// or awaits communication, other ranks cannot observe it. So all its work in between is one segment, a single
// event of the engine, however many operators it has.
//
// Where a device computes, the host only issues: every stream (compute, copies, communication) is a queue,
// and the host waits only at HostWait operators. A kernel is a transfer with one participant.
//
// In either case an operator in a queue waits there for those before it and for its prerequisites in other
// queues.
//
//   WT_ASSIGN_OR_RETURN(StepSchedule schedule, MakeStepSchedule(plan, {.host = HostRole::kIssues}));
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "sim/folding.h"

namespace windtunnel {

enum class HostRole : uint8_t { kComputes, kIssues };

struct ScheduleOptions {
  HostRole host = HostRole::kComputes;
  // Only one rank of each class is laid out, and a group's transfer begins when one rank of each of its
  // classes has arrived. If absent, every rank is a class of its own.
  std::optional<Folding> folding = {};
};

// A piece of a segment.
struct WorkItem {
  // kKernel: only where the host computes. kMemory: takes no time.
  enum class Kind : uint8_t { kDispatch, kKernel, kMemory };
  Kind kind = Kind::kKernel;
  OpIndex op = -1;  // kMemory: index into Program::memory
};

struct HostAction {
  enum class Kind : uint8_t { kWork, kIssue, kWait };
  Kind kind = Kind::kWork;
  int32_t first = 0;   // kWork: items [first, second). kIssue, kWait: the role's queue,
  int32_t second = 0;  // and the operator's position in it
};

// The first `done` operators of another queue of the role must be done.
struct QueuePrerequisite {
  int32_t queue = -1;
  int32_t done = 0;
};

// The operators of one stream that the host issues to, in order, with their prerequisites in other queues.
struct RoleQueue {
  StreamId stream = -1;
  std::vector<OpIndex> ops;
  std::vector<QueuePrerequisite> prerequisites;   // of all operators, concatenated
  std::vector<int32_t> first_prerequisite = {0};  // by position, and one past the last

  std::span<const QueuePrerequisite> PrerequisitesOf(int32_t position) const {
    return std::span(prerequisites)
        .subspan(first_prerequisite[position],
                 first_prerequisite[position + 1] - first_prerequisite[position]);
  }
};

struct RoleSchedule {
  std::vector<WorkItem> items;
  std::vector<HostAction> actions;
  std::vector<RoleQueue> queues;
};

// One rank's operator, as part of a transfer.
struct Participant {
  int32_t rank = -1;
  int32_t queue = -1;  // into StepSchedule::queues
  OpIndex op = -1;
};

// What a transfer occupies. Kernels share their device; a copy engine moves bytes between host and device
// beside them.
enum class Engine : uint8_t { kLinks, kKernels, kCopies };

// Operators of several ranks that begin together, when the last has arrived, and end together.
struct Transfer {
  int32_t first_participant = 0;  // into StepSchedule::participants
  int32_t participants = 0;
  // Ranks that have to arrive. More than `participants`, if a rank's program lacks its part: never begins.
  int32_t needed = 0;
  AxisId axis = -1;    // -1: a kernel or a copy
  int32_t group = -1;  // index in the axis
  Engine engine = Engine::kLinks;
};

// A rank's RoleQueue.
struct RankQueue {
  int32_t rank = -1;
  StreamId stream = -1;
  int32_t first_transfer = 0;  // into StepSchedule::transfer_of_position
  int32_t size = 0;
};

struct RankLayout {
  // In the world. Elsewhere "rank" is an index into StepSchedule::ranks: the number of its class.
  int32_t rank = 0;
  int32_t role = 0;
  int32_t first_item = 0;   // index into the items of all ranks, concatenated
  int32_t first_queue = 0;  // into StepSchedule::queues
};

struct StepSchedule {
  const Plan* plan = nullptr;
  std::vector<RoleSchedule> roles;
  std::vector<RankLayout> ranks;
  std::vector<RankQueue> queues;
  std::vector<int32_t> transfer_of_position;  // by queue and position
  std::vector<Transfer> transfers;
  std::vector<Participant> participants;
  int32_t items = 0;  // of all ranks
  HostRole host = HostRole::kComputes;
  Folding folding;

  const RoleSchedule& RoleOf(int rank) const { return roles[ranks[rank].role]; }
  const Op& OpOf(int rank, OpIndex op) const { return plan->roles[ranks[rank].role].steady.ops[op]; }
  // The index in `ranks` of the rank that stands for a rank of the world.
  int32_t PositionOf(int world_rank) const { return folding.class_of_rank[world_rank]; }
};

// `plan` must outlive the schedule. Errors: Failed when two ranks' operators that should meet differ in kind
// or size (names both).
Result<StepSchedule> MakeStepSchedule(const Plan& plan, ScheduleOptions options = {});

}  // namespace windtunnel
