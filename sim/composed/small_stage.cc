#include "sim/composed/small_stage.h"

#include <utility>

#include "base/check.h"
#include "plan/graphs.h"
#include "plan/ops.h"
#include "scenarios/derived.h"

namespace windtunnel::composed {

// Hands a model's calls on to a strategy and marks which of the two adds an operator. Records the calls
// around operators that write gradients, and before the operators of a forward.
class RecordingHooks : public ModelHooks {
 public:
  RecordingHooks(ProgramBuilder& b, DataParallel& strategy) : b_(b), strategy_(strategy) {
    b_.SetStage(kOfModel);
  }

  void BeginForward() {
    values_.clear();
    is_forward_ = true;
    b_.SetStage(kAfterValues);
  }
  void EndForward() {
    is_forward_ = false;
    b_.SetStage(kOfModel);
  }
  // The values requested in the last forward, in order.
  const std::vector<int>& values() const { return values_; }

  Slice Values(int index) override {
    if (is_forward_) {
      values_.push_back(index);
      b_.SetStage(kAfterValues + static_cast<int>(values_.size()));
    }
    const InPart part(b_, LayerPart::kStrategy);
    return strategy_.Values(index);
  }
  bool HoldsValue(int index) const override { return strategy_.HoldsValue(index); }
  Slice Gradient(int index) override {
    if (calls_.empty() || !calls_.back().after.empty()) calls_.emplace_back();
    calls_.back().gradients.push_back(index);
    b_.SetStage(kOfStrategy);
    const InPart part(b_, LayerPart::kStrategy);
    const Slice gradient = strategy_.Gradient(index);
    b_.SetStage(kWritesGradient);
    return gradient;
  }
  void Ready(int index) override {
    Note(index, true);
    b_.SetStage(kOfStrategy);
    const InPart part(b_, LayerPart::kStrategy);
    strategy_.Ready(index, /*is_last=*/false);
    b_.SetStage(kOfModel);
  }
  void Wrote(int index) override {
    Note(index, false);
    b_.SetStage(kOfModel);
    const InPart part(b_, LayerPart::kStrategy);
    strategy_.Wrote(index);
  }

  // The calls since the last TakeCalls.
  std::vector<GradientCalls> TakeCalls() { return std::exchange(calls_, {}); }

 private:
  void Note(int index, bool is_ready) {
    WT_CHECK(!calls_.empty());
    calls_.back().after.push_back({index, is_ready});
  }

  ProgramBuilder& b_;
  DataParallel& strategy_;
  bool is_forward_ = false;
  std::vector<int> values_;
  std::vector<GradientCalls> calls_;
};

SmallStage::SmallStage(const Scenario& scenario, const StageKind& kind, bool splits_backwards)
    : kind_(kind),
      splits_backwards_(splits_backwards),
      layers_(SmallLayersOf(scenario.model, kind.layers, kind.is_first, kind.is_last)),
      scenario_(Small(scenario, layers_)) {
  role_.streams.push_back(Stream{StreamKind::kCompute, "compute", -1});
  const ParallelSpec& spec = scenario_.parallel;
  alone_ = std::make_unique<CollectiveStream>(role_, kWorldAxis, 1, "");
  tensor_ =
      std::make_unique<CollectiveStream>(role_, kTensorAxis, static_cast<int>(spec.tensor.size), "tensor");
  context_ =
      std::make_unique<CollectiveStream>(role_, kContextAxis, static_cast<int>(spec.context.size), "context");
  expert_ =
      std::make_unique<CollectiveStream>(role_, kExpertAxis, static_cast<int>(spec.expert.size), "expert");
  ModelParallel parallel{.tensor = TensorParallelOf(scenario_, tensor_.get()),
                         .context = {context_.get(), spec.context.kind},
                         .expert = ExpertParallelOf(scenario_, expert_.get())};
  if (HostCountsTokens(scenario_)) {
    parallel.expert.host = static_cast<StreamId>(role_.streams.size());
    role_.streams.push_back(Stream{StreamKind::kHost, "host", -1});
  }
  model_ = MakeModel(scenario_, layers_.range, parallel);
  model_->Register(role_);
  parameters_ = role_.parameters;
  for (size_t unit = 0; unit < layers_.units.size(); ++unit)
    unit_of_layer_.insert(unit_of_layer_.end(), static_cast<size_t>(layers_.units[unit].layers),
                          static_cast<int>(unit));
  kept_ = KeptOf(parallel);
  for (const BufferId id : model_->kept_buffers()) kept_behind_ += role_.buffers[id].bytes.count();
  for (const int64_t of_unit : kept_) kept_behind_ -= of_unit;
  const StrategyContext context{.scenario = scenario_,
                                .role = role_,
                                .modules = modules_,
                                .dense = {*alone_, *alone_, *alone_},
                                .of_experts = {*alone_, *alone_, *alone_},
                                .reshard = *alone_,
                                .tensor = *tensor_,
                                .expert = *expert_,
                                .copies = kComputeStream,
                                .host = -1,
                                .model_parts = {tensor_.get(), alone_.get()}};
  const bool is_zero = scenario_.parallel.data.kind == DataParallelKind::kZero1;
  strategy_ = is_zero ? MakeZero(context) : MakeReplicated(context);
  loss_ = NewBuffer(role_, "loss", model_->LossElements(), Category::kActivations);
}

Program SmallStage::Run() {
  ProgramBuilder b(role_, "small stage");
  strategy_->BeginStep(b, 0);
  RecordingHooks hooks(b, *strategy_);
  for (int i = 0; i < 2; ++i) RunMicroBatch(b, hooks, i);
  const Slice end = NewBuffer(role_, "end", 1, Category::kActivations);
  b.Add(SquareRoot{}, "end", {end}, {end});
  Program program = b.Finish();
  for (CollectiveStream* collectives : {tensor_.get(), context_.get(), expert_.get()})
    if (collectives->ranks() > 1) collectives->SizeScratch();
  if (HasGraphsOfLayers(scenario_)) FormGraphs(scenario_, program);
  return program;
}

int64_t SmallStage::ScratchOf(LocalStream stream) const {
  const CollectiveStream& collectives = stream == kTensor    ? *tensor_
                                        : stream == kContext ? *context_
                                                             : *expert_;
  return collectives.scratch() < 0 ? 0 : role_.buffers[collectives.scratch()].bytes.count();
}

LocalStream SmallStage::LocalOf(const Op& op) const {
  if (op.stream == kComputeStream) return kCompute;
  if (tensor_->ranks() > 1 && op.stream == tensor_->stream()) return kTensor;
  if (context_->ranks() > 1 && op.stream == context_->stream()) return kContext;
  WT_CHECK(expert_->ranks() > 1 && op.stream == expert_->stream());
  return kExpert;
}

Scenario SmallStage::Small(const Scenario& scenario, const SmallLayers& layers) {
  Scenario s = scenario;
  s.model = layers.model;
  s.recompute_layers = layers.recompute_layers;
  s.parallel.data.size = 1;
  s.parallel.data.shard_size = 0;
  return s;
}

std::vector<int64_t> SmallStage::KeptOf(const ModelParallel& parallel) const {
  std::vector<int64_t> kept;
  int64_t first = layers_.range.first;
  for (const LayerUnit& unit : layers_.units) {
    Bytes of_unit;
    if (!model_->kept_buffers().empty()) {
      const StageRange range{first, first + unit.layers, false, false};
      Role role = role_;
      const auto model = MakeModel(scenario_, range, parallel);
      model->Register(role);
      for (const BufferId id : model->kept_buffers()) of_unit += role.buffers[id].bytes;
    }
    kept.push_back(of_unit.count());
    first += unit.layers;
  }
  return kept;
}

void SmallStage::RunMicroBatch(ProgramBuilder& b, RecordingHooks& hooks, int micro_batch) {
  Slice input;
  if (!kind_.is_first) input = Receive(b, model_->InputElements());
  hooks.BeginForward();
  const Slice output = model_->Forward(b, hooks, micro_batch, input, loss_, 1.0);
  hooks.EndForward();
  values_ = hooks.values();
  if (!kind_.is_last) Send(b, output);
  const Slice doutput = kind_.is_last ? output : Receive(b, model_->OutputElements());
  const auto take_calls = [&](BackwardKind kind) {
    calls_[static_cast<size_t>(micro_batch)][static_cast<size_t>(kind)] = hooks.TakeCalls();
  };
  const Slice dinput =
      model_->Backward(b, hooks, micro_batch, doutput,
                       splits_backwards_ ? WeightGradients::kDeferred : WeightGradients::kWithInput);
  take_calls(splits_backwards_ ? BackwardKind::kInputs : BackwardKind::kWhole);
  if (!kind_.is_first) Send(b, dinput);
  if (!splits_backwards_) return;
  model_->BackwardWeights(b, micro_batch);
  take_calls(BackwardKind::kWeights);
}

Slice SmallStage::Receive(ProgramBuilder& b, int64_t elements) {
  MessageStream stream(role_, kMessageAxis, "in");
  const Slice data =
      b.Temporary("received", elements, Category::kActivations, TypesOf(scenario_.precision).storage);
  b.WaitBeforeNextCompute(stream.Receive(b, data, "in"));
  received_.push_back(data.buffer);
  return data;
}

void SmallStage::Send(ProgramBuilder& b, const Slice& data) {
  MessageStream stream(role_, kMessageAxis, "out");
  b.WaitBeforeNextCompute(stream.Send(b, data, "out", {b.LastWriterOf(data.buffer)}));
  sent_.push_back(data.buffer);
}

}  // namespace windtunnel::composed
