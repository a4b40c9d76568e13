// Pipeline schedules as data: for each pipeline rank a list of actions, each of one stage on one micro-batch.
//
// The model is cut into stages 0 .. S-1 in the order of its layers. With v virtual stages (chunks) per rank,
// S = v x ranks, and `rank_of_stage` says which rank holds which stage. A schedule is made by a named
// generator (MakeSchedule) or read from a file (plan/schedule_csv.h) and has computation only;
// AddCommunication derives the sends and receives. plan/schedule_check.h checks that it is complete and
// cannot deadlock, plan/schedule_times.h computes how long it takes.
//
//   WT_ASSIGN_OR_RETURN(Schedule schedule, MakeSchedule("1f1b", /*ranks=*/2, /*virtual_stages=*/1, /*micro_batches=*/4));
//   for (const Action& action : schedule.ranks[0]) fmt::print("{} ", FormatAction(action));  // 0F0 0F1 0B0 0F2 0B1 …
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

enum class ActionKind {
  kForward,
  kBackward,        // gradients of the stage's input and of its weights
  kInputGradient,   // only the gradient of its input, which the stage before waits for
  kWeightGradient,  // only the gradient of its weights, which nobody waits for
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
};

// `stage` is the stage that computes, whose output is sent, or whose input is received: 0SEND_F3 pairs with
// 1RECV_F3, and 1SEND_B3 with 0RECV_B3.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int64_t micro_batch = 0;

  auto operator<=>(const Action&) const = default;
};

struct Schedule {
  std::string name;
  int64_t micro_batches = 0;
  std::vector<int> rank_of_stage;
  std::vector<std::vector<Action>> ranks;
  // Forwards that run along with the next backward in the list (of another micro-batch), layer by layer.
  // In RunSchedule both begin when both have their inputs, and their results exist when both are done; a
  // device may pass on each result as soon as it is done.
  std::set<Action> paired = {};

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  bool operator==(const Schedule&) const = default;
};

// Stage s is on rank s mod ranks: a rank's stages are `ranks` apart, and every hop goes to the next rank.
std::vector<int> LoopPlacement(int ranks, int virtual_stages);
// Two stages per rank, down and up again: rank r holds stages r and 2 ranks - 1 - r, so rank 0 has the first
// and the last.
std::vector<int> VPlacement(int ranks);

// The names that MakeSchedule knows, as scenarios spell them.
const std::vector<std::string>& ScheduleNames();

// A schedule for `ranks` >= 2 pipeline ranks. InvalidInput for a number of virtual stages or of micro-batches
// that this schedule does not support; the message says what it accepts.
Result<Schedule> MakeSchedule(const std::string& name, int ranks, int virtual_stages, int64_t micro_batches);

// The same with forwards paired: for interleaved, in which ranks run one more forward before their first
// backward, so that a pair has two different micro-batches (Megatron's get_pp_rank_microbatches), and for
// dualpipe_v. InvalidInput also for other schedules.
Result<Schedule> MakePairedSchedule(const std::string& name, int ranks, int virtual_stages,
                                    int64_t micro_batches);

bool IsCommunication(ActionKind kind);
bool IsSend(ActionKind kind);
// torch.distributed.pipelining's letters: F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B.
std::string ActionLetters(ActionKind kind);
// As in torch's schedule files: stage, letters, micro-batch, such as "2F0".
std::string FormatAction(const Action& action);
// For messages: "2F0 (stage 2, forward of micro-batch 0)".
std::string DescribeAction(const Action& action);

// The receive that matches the send `action`, or the send that matches the receive.
Action Counterpart(const Action& action);

// The rank that a send goes to.
int ReceiverOf(const Schedule& schedule, const Action& send);

// The schedule with a send after each computation whose result another rank needs, and a receive before each
// computation whose input another rank made. Stages that are neighbours on the same rank hand over locally,
// without an action.
//
// The order cannot deadlock even if a send blocks until its receive (rendezvous): the messages have one total
// order, by the time at which they are made if F, I and W take one unit of time each. Every rank's list
// follows it, so both ends of the first message not yet exchanged are ready. A receive stands as early as its
// message is made. So runtimes should start sends and receives asynchronously and wait for a receive before
// its computation; else a rank that is still computing holds up the sender. No message stands between the two
// computations of a pair.
// REQUIRES: computation only, and no fault (plan/schedule_check.h).
Schedule AddCommunication(const Schedule& schedule);

// Whether any weight gradient is separate from its input gradient.
bool SplitsBackward(const Schedule& schedule);

}  // namespace windtunnel
