// The operators of one pipeline rank between zero_grad and the optimizer: the forwards and backwards of its
// stages in the order of the schedule, and the messages to and from other ranks. A model without a pipeline
// is a pipeline of one rank.
//
// Each ordered pair of ranks has a stream for its messages. A receive is issued where the schedule has it (as
// early as its message is made), and the operators that need it wait for it. A sent tensor stays allocated
// until a message received from the peer proves that it has arrived, or until all backwards are done;
// computation does not wait for the send before that. The host waits for sends earlier where the framework's
// does (MessageHandling), but the tensor stays allocated even so, as Megatron and DeepSpeed keep outputs for
// their backwards.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "plan/axes.h"
#include "plan/data_parallel.h"
#include "plan/model.h"

namespace windtunnel {

// A stage that a rank holds.
struct Stage {
  int index = 0;  // in the pipeline
  std::unique_ptr<Model> model;
  ModuleId first_module = 0;  // the index of its first module among those of all stages of the rank
};

// What frameworks do about messages besides sending them (MessageProtocol).
struct MessageHandling {
  // Host stream: the host waits on it, after each batch of messages, for everything issued. -1: no waiting.
  StreamId host = -1;
  // The tensor ranks over which each message is scattered; the receivers gather it. null: it is sent whole.
  CollectiveStream* tensor = nullptr;
};

class PipelineRank {
 public:
  // `schedule` includes communication. `type` is the type of the tensors passed between stages. `weights`
  // says how undivided backwards (kBackward) handle the gradients of weights. Stages, schedule, role and what
  // `how` refers to must outlive this object. Adds the streams of messages to the role.
  PipelineRank(Role& role, const Schedule& schedule, int rank, const std::vector<Stage>& stages,
               const PlanAxes& axes, DType type, WeightGradients weights = WeightGradients::kWithInput,
               const MessageHandling& how = {});

  // Adds all micro-batches. `losses`: those of the last stage; empty on ranks without it. `forward_only`:
  // leaves out backwards; the rest stays in the same order.
  void AddMicroBatches(ProgramBuilder& b, DataParallel& strategy, const std::vector<Slice>& losses,
                       bool forward_only = false);

 private:
  class Walk;

  Role& role_;
  const Schedule& schedule_;
  const int rank_;
  const std::vector<Stage>& stages_;
  const DType type_;
  const WeightGradients weights_;
  const MessageHandling how_;
  std::map<std::pair<int, int>, MessageStream> messages_;  // by sender and receiver
  // Of the rank's actions, and of those that it exchanges messages with, the index in that rank's list.
  std::map<Action, size_t> positions_;
};

}  // namespace windtunnel
