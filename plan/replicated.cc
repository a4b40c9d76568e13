// Parameters whole on every rank: one device alone, or DistributedDataParallel (plan/ddp.h). With parameters of 16 bits
// the optimizer updates fp32 masters of its own, and the parameters are made from them anew after each step.
#include "plan/data_parallel.h"
#include "plan/ddp.h"
#include "plan/optimizer_steps.h"

namespace windtunnel {
namespace {

class Replicated : public DataParallel {
 public:
  explicit Replicated(const StrategyContext& context);

  void Initialize(ProgramBuilder& b) override;
  void BeginStep(ProgramBuilder& b, int64_t step) override;
  void BeginBackward(bool) override {}
  void EndBackward() override;
  Slice ReducedGradient(int index) override { return GradientPlace(index); }
  void Update(ProgramBuilder& b, bool first) override;
  int64_t startup_steps() const override { return reducer_ ? reducer_->startup_steps() : 1; }

  Slice Values(int index) override { return values_[index]; }
  Slice Gradient(int index) override {
    return reducer_ ? reducer_->Gradient(index) : gradients_->Gradient(index);
  }
  bool HoldsValue(int index) const override {
    return reducer_ ? reducer_->HoldsValue(index) : gradients_->HoldsValue(index);
  }
  void Ready(int index, bool is_last) override {
    reducer_ ? reducer_->Ready(index, is_last) : gradients_->Wrote(index);
  }
  void Wrote(int index) override { reducer_ ? reducer_->Wrote(index) : gradients_->Wrote(index); }

 private:
  bool has_masters() const { return type_ != DType::kFloat32; }
  Slice GradientPlace(int index) const {
    return reducer_ ? reducer_->Place(index) : gradients_->Place(index);
  }
  std::vector<OptimizerTarget> Targets();

  Role& role_;
  DataParallelSpec spec_;
  OptimizerSpec optimizer_spec_;
  DType type_;
  CollectiveStream &data_, &tensor_;
  std::vector<CollectiveStream*> model_parts_;
  std::vector<Slice> values_, masters_;
  std::vector<Slice> converted_;                   // gradients in fp32, of the program being built
  std::unique_ptr<DdpReducer> reducer_;            // over several ranks, or
  std::unique_ptr<ParameterGradients> gradients_;  // nothing to reduce
  std::unique_ptr<OptimizerSteps> optimizer_;      // made by the first Update: buckets move between steps
};

Replicated::Replicated(const StrategyContext& context)
    : role_(context.role),
      spec_(context.scenario.parallel.data),
      optimizer_spec_(context.scenario.optimizer),
      type_(TypesOf(context.scenario.precision).storage),
      data_(context.data),
      tensor_(context.tensor),
      model_parts_(context.model_parts) {
  for (Parameter& parameter : role_.parameters) {
    values_.push_back(NewBuffer(role_, parameter.name, parameter.elements, Category::kParameters, type_));
    if (has_masters()) {
      masters_.push_back(
          NewBuffer(role_, parameter.name + ".master", parameter.elements, Category::kOptimizer));
    }
    parameter.values.buffer = has_masters() ? masters_.back().buffer : values_.back().buffer;
  }
  if (data_.ranks() > 1) {
    reducer_ =
        std::make_unique<DdpReducer>(role_, spec_, data_, values_, TypeOf(context.scenario.precision.reduce));
  } else {
    gradients_ = std::make_unique<ParameterGradients>(role_, type_);
  }
}

void Replicated::Initialize(ProgramBuilder& b) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const Parameter& parameter = role_.parameters[i];
    const Slice& first = has_masters() ? masters_[i] : values_[i];
    b.Alloc(first.buffer);
    AddInitialValues(b, {static_cast<int>(i)}, {first});
    if (!has_masters()) continue;
    b.Alloc(values_[i].buffer);
    b.Add(Copy{.elements = parameter.elements, .to = type_}, parameter.name, {first}, {values_[i]});
  }
  if (reducer_) reducer_->Initialize(b);
}

void Replicated::BeginStep(ProgramBuilder& b, int64_t step) {
  if (reducer_) {
    reducer_->BeginStep(b, step);
  } else {
    gradients_->ZeroGrad(b, /*alive_at_start=*/step > 0);
  }
}

void Replicated::EndBackward() {
  if (reducer_) reducer_->EndBackward();
}

std::vector<OptimizerTarget> Replicated::Targets() {
  std::vector<OptimizerTarget> targets;
  for (size_t i = 0; i < values_.size(); ++i) {
    const Slice gradient = has_masters() ? converted_[i] : GradientPlace(static_cast<int>(i));
    targets.push_back({role_.parameters[i].name, has_masters() ? masters_[i] : values_[i], gradient});
  }
  return targets;
}

void Replicated::Update(ProgramBuilder& b, bool first) {
  b.SetPhase(Phase::kOptimizer);
  if (has_masters()) {
    converted_.clear();
    for (size_t i = 0; i < values_.size(); ++i) {
      converted_.push_back(
          b.Temporary(role_.parameters[i].name + ".grad.fp32", values_[i].elements, Category::kGradients));
      b.Add(Copy{.elements = values_[i].elements, .from = type_}, role_.parameters[i].name,
            {GradientPlace(static_cast<int>(i))}, {converted_[i]});
    }
  }
  if (!optimizer_) optimizer_ = std::make_unique<OptimizerSteps>(role_, optimizer_spec_, tensor_, Targets());
  optimizer_->SetTargets(Targets());
  optimizer_->AddTensorSums(b);
  optimizer_->AddClipping(b, first, model_parts_);
  optimizer_->AddUpdate(b, first, 0, optimizer_->targets());
  for (size_t i = 0; i < masters_.size(); ++i) {
    b.Add(Copy{.elements = values_[i].elements, .to = type_}, role_.parameters[i].name, {masters_[i]},
          {values_[i]});
  }
}

}  // namespace

std::unique_ptr<DataParallel> MakeReplicated(const StrategyContext& context) {
  return std::make_unique<Replicated>(context);
}

}  // namespace windtunnel
