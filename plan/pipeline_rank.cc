#include "plan/pipeline_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace windtunnel {
namespace {

// By parameter, how often its gradient has become ready and will in a step. The last time, it may be reduced.
struct ReadyCounts {
  std::vector<int64_t> seen, expected;
};

// Passes the hooks of one stage's model to the strategy, which serves all stages of the rank.
class StageHooks : public ModelHooks {
 public:
  StageHooks(ProgramBuilder& b, DataParallel& strategy, ModuleId first_module, ReadyCounts& counts)
      : b_(b), strategy_(strategy), first_module_(first_module), counts_(counts) {}

  void BeforeForward(ModuleId module) override { InScope()->BeforeForward(first_module_ + module); }
  void AfterForward(ModuleId module) override { InScope()->AfterForward(first_module_ + module); }
  void BeforeBackward(ModuleId module) override { InScope()->BeforeBackward(first_module_ + module); }
  void AfterBackward(ModuleId module) override { InScope()->AfterBackward(first_module_ + module); }
  Slice Values(int index) override { return InScope()->Values(index); }
  int64_t NumbersInRun(int index) const override { return strategy_.NumbersInRun(index); }
  Slice Gradient(int index) override { return InScope()->Gradient(index); }
  bool HoldsValue(int index) const override { return strategy_.HoldsValue(index); }
  void Wrote(int index) override { InScope()->Wrote(index); }
  void Ready(int index) override {
    InScope()->Ready(index, /*is_last=*/++counts_.seen[index] == counts_.expected[index]);
  }

 private:
  // The strategy, for one call: what it adds belongs to no part of a layer.
  class Call {
   public:
    Call(ProgramBuilder& b, DataParallel& strategy) : part_(b, LayerPart::kStrategy), strategy_(strategy) {}
    DataParallel* operator->() { return &strategy_; }

   private:
    const InPart part_;
    DataParallel& strategy_;
  };
  Call InScope() { return {b_, strategy_}; }

  ProgramBuilder& b_;
  DataParallel& strategy_;
  const ModuleId first_module_;
  ReadyCounts& counts_;
};

bool IsForward(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kSendActivation ||
         kind == ActionKind::kReceiveActivation;
}

bool IsBackward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kInputGradient;
}

}  // namespace

// Adds the operators of one program.
class PipelineRank::Walk {
 public:
  Walk(PipelineRank& rank, ProgramBuilder& b, DataParallel& strategy, const std::vector<Slice>& losses);
  void Run(bool forward_only);

 private:
  using Key = std::pair<int, int64_t>;  // stage, micro-batch
  struct Received {
    Slice data;
    OpIndex op = -1;
    int from = 0;
    size_t made = 0;  // position, in the sender's list, of the computation that made it
  };
  struct Sent {
    OpIndex op = -1;
    int to = 0;
    size_t needed = 0;  // position, in the receiver's list, of the computation that needs it
  };

  void Add(const Action& action);
  void AddPair(const Action& forward, const Action& backward);
  void Forward(const Action& action);
  void Backward(const Action& action);
  void Send(const Action& action);
  void Receive(const Action& action);
  Slice TakeInput(const Key& key, int from_stage, std::map<Key, Slice>& local);
  void AwaitMessages();
  void EndBackward();
  struct Part {  // a stage and its hooks; deferred operators keep references to the hooks
    const Stage& stage;
    StageHooks hooks;
  };
  Part& PartAt(int index);
  // The position of the forward or backward that takes or makes such a message in `stage`.
  size_t PositionIn(bool forward, int stage, int64_t micro_batch) const;
  bool IsLastBackward(const Action& action) const;
  void ReduceWithSchedule(const Action& backward);

  PipelineRank& rank_;
  ProgramBuilder& b_;
  DataParallel& strategy_;
  const std::vector<Slice>& losses_;
  ReadyCounts counts_;
  std::map<int, Part> parts_;  // by stage
  std::map<Key, Slice> outputs_, input_gradients_;
  std::set<int> begun_;  // stages that have had a forward
  std::vector<Action> backwards_;
  bool in_backward_ = false;
  bool has_exchanged_ = false;  // whether there were messages since the last computation
  std::map<std::pair<bool, Key>, Received> received_;  // by whether it is forward, and receiving stage
  std::vector<Sent> sent_;
};

PipelineRank::PipelineRank(Role& role, const Schedule& schedule, int rank, const std::vector<Stage>& stages,
                           const PlanAxes& axes, DType type, WeightGradients weights,
                           const MessageHandling& how)
    : role_(role),
      schedule_(schedule),
      rank_(rank),
      stages_(stages),
      type_(type),
      weights_(weights),
      how_(how) {
  for (const auto& [pair, axis] : axes.messages) {
    if (pair.first != rank && pair.second != rank) continue;
    messages_.emplace(pair,
                      MessageStream(role, axis, fmt::format("pipeline {}>{}", pair.first, pair.second)));
  }
  std::set<int> ranks = {rank};
  for (const auto& [pair, stream] : messages_) ranks.insert({pair.first, pair.second});
  for (const int of : ranks) {
    const std::vector<Action>& actions = schedule.ranks[static_cast<size_t>(of)];
    for (size_t i = 0; i < actions.size(); ++i) positions_[actions[i]] = i;
  }
}

void PipelineRank::AddMicroBatches(ProgramBuilder& b, DataParallel& strategy,
                                   const std::vector<Slice>& losses, bool forward_only) {
  Walk(*this, b, strategy, losses).Run(forward_only);
}

PipelineRank::Walk::Walk(PipelineRank& rank, ProgramBuilder& b, DataParallel& strategy,
                         const std::vector<Slice>& losses)
    : rank_(rank), b_(b), strategy_(strategy), losses_(losses) {
  counts_.seen.assign(rank.role_.parameters.size(), 0);
  counts_.expected.assign(rank.role_.parameters.size(), 0);
  for (const Stage& stage : rank.stages_) {
    parts_.emplace(stage.index, Part{stage, StageHooks(b_, strategy, stage.first_module, counts_)});
    for (int parameter : stage.model->parameters()) {
      counts_.expected[parameter] += rank.schedule_.micro_batches;
    }
  }
}

void PipelineRank::Walk::Run(bool forward_only) {
  const std::vector<Action>& actions = rank_.schedule_.ranks[rank_.rank_];
  for (size_t i = 0; i < actions.size(); ++i) {
    if (forward_only && !IsForward(actions[i].kind)) continue;
    if (!forward_only && rank_.schedule_.paired.contains(actions[i])) {
      AddPair(actions[i], actions[i + 1]);
      ++i;
      continue;
    }
    b_.SetStage(actions[i].stage);
    Add(actions[i]);
  }
  b_.SetStage(-1);
  AwaitMessages();
  EndBackward();
  for (const Sent& sent : sent_) b_.WaitBeforeNextCompute(sent.op);
}

// If the framework's host waits for messages, it waits for everything else in flight, too.
void PipelineRank::Walk::AwaitMessages() {
  if (!std::exchange(has_exchanged_, false) || rank_.how_.host < 0) return;
  std::vector<OpIndex> under_way;
  for (StreamId stream = 0; stream < static_cast<StreamId>(rank_.role_.streams.size()); ++stream)
    if (stream != rank_.how_.host && b_.LastOn(stream) >= 0) under_way.push_back(b_.LastOn(stream));
  b_.Add(HostWait{}, "messages", {}, {}, std::move(under_way), rank_.how_.host);
}

// Only when the next computation begins: what the strategy waits for must not delay a message before that.
void PipelineRank::Walk::EndBackward() {
  if (in_backward_) strategy_.EndBackward();
  in_backward_ = false;
}

void PipelineRank::Walk::Add(const Action& action) {
  if (IsCommunication(action.kind)) {
    has_exchanged_ = true;
  } else {
    AwaitMessages();
    EndBackward();
  }
  switch (action.kind) {
    case ActionKind::kForward:
      return Forward(action);
    case ActionKind::kBackward:
    case ActionKind::kInputGradient:
      Backward(action);
      return ReduceWithSchedule(action);
    case ActionKind::kWeightGradient:
      strategy_.BeginBackwardWeights();
      PartAt(action.stage).stage.model->BackwardWeights(b_, static_cast<int>(action.micro_batch));
      in_backward_ = true;
      return;
    case ActionKind::kSendActivation:
    case ActionKind::kSendGradient:
      return Send(action);
    case ActionKind::kReceiveActivation:
    case ActionKind::kReceiveGradient:
      return Receive(action);
  }
}

// Runs are added separately, so neither may be the first to wait for a stage's values (overlap_param_gather).
void PipelineRank::Walk::AddPair(const Action& forward, const Action& backward) {
  WT_CHECK(begun_.contains(forward.stage) && begun_.contains(backward.stage));
  AwaitMessages();
  EndBackward();
  b_.BeginTurns();
  b_.SetStage(forward.stage);
  Forward(forward);
  b_.NextRun();
  b_.SetStage(backward.stage);
  Backward(backward);
  b_.EndTurns();
  ReduceWithSchedule(backward);
}

// Rank r is r backwards ahead of the first rank. So it reduces a stage r backwards after the stage's last
// one: then the reductions of all ranks begin together.
void PipelineRank::Walk::ReduceWithSchedule(const Action& backward) {
  backwards_.push_back(backward);
  const int due = static_cast<int>(backwards_.size()) - 1 - rank_.rank_;
  if (due < 0 || !IsLastBackward(backwards_[due])) return;
  strategy_.ReduceStage(backwards_[due].stage / static_cast<int>(rank_.schedule_.ranks.size()));
}

PipelineRank::Walk::Part& PipelineRank::Walk::PartAt(int index) {
  const auto found = parts_.find(index);
  WT_CHECK(found != parts_.end());
  return found->second;
}

size_t PipelineRank::Walk::PositionIn(bool forward, int stage, int64_t micro_batch) const {
  for (ActionKind kind : {ActionKind::kForward, ActionKind::kBackward, ActionKind::kInputGradient}) {
    if ((kind == ActionKind::kForward) != forward) continue;
    const auto found = rank_.positions_.find({kind, stage, micro_batch});
    if (found != rank_.positions_.end()) return found->second;
  }
  WT_CHECK(false);
  return 0;
}

bool PipelineRank::Walk::IsLastBackward(const Action& action) const {
  const std::vector<Action>& actions = rank_.schedule_.ranks[rank_.rank_];
  const auto last = std::find_if(actions.rbegin(), actions.rend(), [&](const Action& other) {
    return IsBackward(other.kind) && other.stage == action.stage;
  });
  return *last == action;
}

// The result of stage `from_stage` that `key`'s stage takes: made on this rank, or received.
Slice PipelineRank::Walk::TakeInput(const Key& key, int from_stage, std::map<Key, Slice>& local) {
  if (rank_.schedule_.rank_of_stage[from_stage] == rank_.rank_) {
    auto made = local.extract(Key{from_stage, key.second});
    WT_CHECK(!made.empty());
    return made.mapped();
  }
  auto found = received_.extract({from_stage < key.first, key});
  WT_CHECK(!found.empty());
  const Received& received = found.mapped();
  b_.WaitBeforeNextCompute(received.op);
  // The sender needed these messages to compute what was received, so they have arrived there.
  std::erase_if(sent_, [&](const Sent& sent) {
    const bool has_arrived = sent.to == received.from && sent.needed <= received.made;
    if (has_arrived) b_.WaitBeforeNextCompute(sent.op);
    return has_arrived;
  });
  if (rank_.how_.tensor == nullptr) return received.data;
  b_.SetPhase(from_stage < key.first ? Phase::kForward : Phase::kBackward);
  b_.SetMicroBatch(static_cast<int>(key.second));
  const Slice whole = rank_.how_.tensor->AllGatherForCompute(b_, received.data, "message");
  b_.SetMicroBatch(-1);
  return whole;
}

void PipelineRank::Walk::Forward(const Action& action) {
  const Key key{action.stage, action.micro_batch};
  const bool is_last = action.stage + 1 == rank_.schedule_.stages();
  const Slice input = action.stage > 0 ? TakeInput(key, action.stage - 1, outputs_) : Slice{};
  const Slice loss = is_last ? losses_[action.micro_batch] : Slice{};
  Part& part = PartAt(action.stage);
  begun_.insert(action.stage);
  strategy_.BeginForward();
  const Slice output =
      part.stage.model->Forward(b_, part.hooks, static_cast<int>(action.micro_batch), input, loss,
                                1.0 / static_cast<double>(rank_.schedule_.micro_batches));
  outputs_[key] = output;
}

void PipelineRank::Walk::Backward(const Action& action) {
  const Key key{action.stage, action.micro_batch};
  const bool is_last = action.stage + 1 == rank_.schedule_.stages();
  const Slice doutput = is_last ? outputs_.at(key) : TakeInput(key, action.stage + 1, input_gradients_);
  outputs_.erase(key);
  Part& part = PartAt(action.stage);
  strategy_.BeginBackward(IsLastBackward(action));
  const Slice dinput = part.stage.model->Backward(
      b_, part.hooks, static_cast<int>(action.micro_batch), doutput,
      action.kind == ActionKind::kBackward ? rank_.weights_ : WeightGradients::kDeferred);
  in_backward_ = true;
  if (action.stage > 0) input_gradients_[key] = dinput;
}

void PipelineRank::Walk::Send(const Action& action) {
  const bool forward = action.kind == ActionKind::kSendActivation;
  const Action receive = Counterpart(action);
  const int to = ReceiverOf(rank_.schedule_, action);
  const Key key{action.stage, action.micro_batch};
  const Slice data = (forward ? outputs_ : input_gradients_).at(key);
  b_.SetPhase(forward ? Phase::kForward : Phase::kBackward);
  b_.SetMicroBatch(static_cast<int>(action.micro_batch));
  const CollectiveStream* tensor = rank_.how_.tensor;
  const OpIndex op = rank_.messages_.at({rank_.rank_, to})
                         .Send(b_, tensor == nullptr ? data : tensor->OwnPart(data),
                               forward ? "activations" : "gradients", {b_.LastWriterOf(data.buffer)});
  b_.SetMicroBatch(-1);
  sent_.push_back({op, to, PositionIn(forward, receive.stage, action.micro_batch)});
  if (!forward) input_gradients_.erase(key);
}

void PipelineRank::Walk::Receive(const Action& action) {
  const bool forward = action.kind == ActionKind::kReceiveActivation;
  const Action send = Counterpart(action);
  const int from = rank_.schedule_.rank_of_stage[send.stage];
  const Model& model = *PartAt(action.stage).stage.model;
  const int64_t parts = rank_.how_.tensor == nullptr ? 1 : rank_.how_.tensor->ranks();
  const int64_t elements = (forward ? model.InputElements() : model.OutputElements()) / parts;
  b_.SetPhase(forward ? Phase::kForward : Phase::kBackward);
  b_.SetMicroBatch(static_cast<int>(action.micro_batch));
  const char* name = forward ? "activations" : "gradients";
  const Slice data = b_.Temporary(fmt::format("stage {} {}", action.stage, forward ? "input" : "output.grad"),
                                  elements, Category::kActivations, rank_.type_);
  const OpIndex op = rank_.messages_.at({from, rank_.rank_}).Receive(b_, data, name);
  b_.SetMicroBatch(-1);
  received_[{forward, Key{action.stage, action.micro_batch}}] = {
      data, op, from, PositionIn(forward, send.stage, action.micro_batch)};
}

}  // namespace windtunnel
