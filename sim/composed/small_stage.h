// A small stage's operators as the models and strategies of plan/ add them, which StageTemplate is taken from.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "plan/collectives.h"
#include "plan/data_parallel.h"
#include "plan/model.h"
#include "scenarios/scenario.h"
#include "sim/composed/backward_kind.h"
#include "sim/composed/stage_layers.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

// Marks what an operator is, in Op::stage, which models do not set. In a forward: kAfterValues plus the
// number of requests for values before it.
enum OperatorMark : int { kOfModel = 0, kOfStrategy = 1, kWritesGradient = 2, kAfterValues = 3 };

class RecordingHooks;

// Two micro-batches through a small stage, with whole backwards or with backwards of inputs and of weights.
class SmallStage {
 public:
  SmallStage(const Scenario& scenario, const StageKind& kind, bool splits_backwards);

  // Adds the operators of both micro-batches. To be called once.
  Program Run();

  const Role& role() const { return role_; }
  // As the model registered them.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  int units() const { return static_cast<int>(layers_.units.size()); }
  int layers() const { return static_cast<int>(unit_of_layer_.size()); }
  int first_layer() const { return static_cast<int>(layers_.range.first); }
  // -1: of no layer.
  int UnitOf(int layer) const {
    return layer < 0 ? -1 : unit_of_layer_[static_cast<size_t>(layer - first_layer())];
  }
  // For an operator that is no message.
  LocalStream LocalOf(const Op& op) const;
  int64_t message_elements() const { return model_->OutputElements(); }
  // Bytes of scratch of the stream's collectives, after Run.
  int64_t ScratchOf(LocalStream stream) const;
  // Bytes that the model keeps: by unit, and for what follows the layers.
  const std::vector<int64_t>& kept() const { return kept_; }
  int64_t kept_behind() const { return kept_behind_; }
  bool splits_backwards() const { return splits_backwards_; }
  // The calls around gradients.
  const std::vector<GradientCalls>& calls(int micro_batch, BackwardKind kind) const {
    return calls_[static_cast<size_t>(micro_batch)][static_cast<size_t>(kind)];
  }
  // Values that a forward requests.
  const std::vector<int>& values() const { return values_; }
  // Buffers that come from or go to other stages: allocated by a receive, or freed once sent.
  bool IsReceived(BufferId id) const { return Contains(received_, id); }
  bool IsSent(BufferId id) const { return Contains(sent_, id); }

 private:
  static Scenario Small(const Scenario& scenario, const SmallLayers& layers);
  // What a stage keeps is in one buffer. A unit's share of it is what a stage of this unit alone would keep.
  std::vector<int64_t> KeptOf(const ModelParallel& parallel) const;
  static bool Contains(const std::vector<BufferId>& ids, BufferId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }
  void RunMicroBatch(ProgramBuilder& b, RecordingHooks& hooks, int micro_batch);
  Slice Receive(ProgramBuilder& b, int64_t elements);
  // Sends `data`, which is known to have arrived when the next computation begins.
  void Send(ProgramBuilder& b, const Slice& data);

  const StageKind kind_;
  const bool splits_backwards_;
  const SmallLayers layers_;
  const Scenario scenario_;
  Role role_;
  std::vector<Module> modules_;
  std::vector<Parameter> parameters_;
  std::vector<int> unit_of_layer_;
  std::vector<int64_t> kept_;
  int64_t kept_behind_ = 0;
  std::unique_ptr<CollectiveStream> alone_, tensor_, context_, expert_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DataParallel> strategy_;
  Slice loss_;
  std::vector<BufferId> received_, sent_;
  std::array<std::array<std::vector<GradientCalls>, kBackwardKinds>, 2> calls_;  // by micro-batch
  std::vector<int> values_;
};

}  // namespace windtunnel::composed
