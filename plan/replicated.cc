// Parameters whole on every rank: one device alone, or DistributedDataParallel (plan/ddp.h). Megatron's DDP
// keeps gradients in buffers of the reduction's type; micro-batches accumulate into them, and the optimizer
// reads them there. That is its distributed optimizer with one shard (MakeZero). With PyTorch's
// ZeroRedundancyOptimizer ranks share the update (plan/zero_redundancy.h). One device alone may update each
// parameter in backward, as hooks behind its gradient's accumulation do in PyTorch
// (register_post_accumulate_grad_hook).
#include "plan/data_parallel.h"
#include "plan/ddp.h"
#include "plan/model.h"
#include "plan/whole_parameters.h"
#include "scenarios/derived.h"

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
  void Restore(ProgramBuilder& b) override { parameters_.Restore(b); }
  int64_t startup_steps() const override { return reducer_ ? reducer_->startup_steps() : 1; }
  int64_t startup_programs() const override { return reducer_ ? reducer_->startup_programs() : 1; }

  Slice Values(int index) override { return parameters_.values()[index]; }
  Slice Gradient(int index) override {
    return reducer_ ? reducer_->Gradient(index) : gradients_->Gradient(index);
  }
  bool HoldsValue(int index) const override {
    return reducer_ ? reducer_->HoldsValue(index) : gradients_->HoldsValue(index);
  }
  void Ready(int index, bool is_last) override;
  void Wrote(int index) override { reducer_ ? reducer_->Wrote(index) : gradients_->Wrote(index); }

 private:
  Slice GradientPlace(int index) const {
    return reducer_ ? reducer_->Place(index) : gradients_->Place(index);
  }

  Role& role_;
  const bool updates_in_backward_;
  ProgramBuilder* b_ = nullptr;
  bool is_first_step_ = false;
  WholeParameters parameters_;
  std::unique_ptr<DdpReducer> reducer_;            // with several data-parallel ranks
  std::unique_ptr<ParameterGradients> gradients_;  // with one: nothing to reduce
};

// The axes over which the gradients' norm is summed, including the expert axis: its experts are different.
std::vector<CollectiveStream*> PartsOf(const StrategyContext& context) {
  std::vector<CollectiveStream*> parts = context.model_parts;
  parts.push_back(&context.expert);
  return parts;
}

UpdateSharing SharingOf(const StrategyContext& context) {
  if (!context.data_rank) return {};
  return {&context.dense.all, *context.data_rank, context.scenario.optimizer.parameters_as_bucket_view};
}

Replicated::Replicated(const StrategyContext& context)
    : role_(context.role),
      updates_in_backward_(context.scenario.optimizer.in_backward),
      parameters_(context.role, context.scenario, context.tensor, context.expert.ranks(), PartsOf(context),
                  SharingOf(context)) {
  if (context.dense.all.ranks() > 1) {
    reducer_ = std::make_unique<DdpReducer>(role_, context.scenario, context.dense.all,
                                            context.of_experts.all, parameters_.values(),
                                            TypeOf(context.scenario.precision.reduce), context.host);
  } else {
    gradients_ = std::make_unique<ParameterGradients>(role_, TypesOf(context.scenario.precision).storage);
  }
}

void Replicated::Initialize(ProgramBuilder& b) {
  parameters_.Initialize(b);
  if (reducer_) reducer_->Initialize(b);
}

void Replicated::BeginStep(ProgramBuilder& b, int64_t step) {
  b_ = &b;
  is_first_step_ = step == 0;
  if (reducer_) {
    reducer_->BeginStep(b, step);
  } else {
    gradients_->ZeroGrad(b, /*alive_at_start=*/step > 0 && !updates_in_backward_);
  }
}

void Replicated::EndBackward() {
  if (reducer_) reducer_->EndBackward();
}

// A gradient is ready behind the last operator of its layer's backward that reads the parameter.
void Replicated::Ready(int index, bool is_last) {
  if (reducer_) return reducer_->Ready(index, is_last);
  gradients_->Wrote(index);
  if (!updates_in_backward_ || !is_last) return;
  parameters_.UpdateOne(*b_, is_first_step_, index, gradients_->Place(index));
  gradients_->Drop(index);
}

void Replicated::Update(ProgramBuilder& b, bool first) {
  if (updates_in_backward_) return;
  std::vector<Slice> gradients(role_.parameters.size());
  for (const int i : TrainedOf(role_.parameters)) gradients[i] = GradientPlace(i);
  parameters_.Update(b, first, gradients);
}

}  // namespace

std::unique_ptr<DataParallel> MakeReplicated(const StrategyContext& context) {
  if (HasMegatronsBuffers(context.scenario)) return MakeZero(context);
  return std::make_unique<Replicated>(context);
}

}  // namespace windtunnel
