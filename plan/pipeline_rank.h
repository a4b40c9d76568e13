// What one pipeline rank does between zero_grad and the optimizer: the forwards and backwards of its stages in the order of the
// schedule, and the messages to and from other ranks. A model in one piece is a pipeline of one rank.
//
// Messages from one rank to another have a stream of their own, in each direction. A receive is issued where the schedule has it
// (as early as its message is made), and waited for by the operators that need it. The memory of what is sent lives until what
// came back shows that it has arrived, or until all backwards are done. Computation waits for no send before that; the host does where the
// framework's does (MessageHandling), and keeps what it has sent all the same, as Megatron and DeepSpeed keep outputs for their backwards.
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
  ModuleId first_module = 0;  // of its modules, among those of all stages of the rank
};

// What frameworks do about messages beside sending them.
struct MessageHandling {
  StreamId host = -1;  // on which the host waits for all that was issued after each batch; -1: it does not
  CollectiveStream* tensor =
      nullptr;  // of the ranks among which each is scattered, and gathered; null: they are sent whole
};

class PipelineRank {
 public:
  // `schedule` has communication; `type` is that of what stages hand to each other; `weights` what whole backwards do about gradients of
  // weights. Stages, schedule, role and what `how` names outlive it. Adds the streams of messages to the role.
  PipelineRank(Role& role, const Schedule& schedule, int rank, const std::vector<Stage>& stages,
               const PlanAxes& axes, DType type, WeightGradients weights = WeightGradients::kWithInput,
               const MessageHandling& how = {});

  // All micro-batches. `losses` of the last stage, else empty. `forward_only`: no backwards; the rest in the same order.
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
  std::map<std::pair<int, int>, MessageStream> messages_;  // from rank to rank
  std::map<Action, size_t> positions_;                     // of all ranks' computations in their lists
};

}  // namespace windtunnel
