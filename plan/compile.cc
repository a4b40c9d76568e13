#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "plan/ddp.h"
#include "plan/layers.h"
#include "plan/model.h"
#include "plan/optimizer_steps.h"
#include "plan/plan.h"

namespace windtunnel {
namespace {

// What the step programs do not cover yet, by the scenario's key.
Status CheckSupported(const Scenario& s) {
  auto unsupported = [&](std::string_view key, std::string_view what) {
    return Unsupported("{}: {} is not supported yet", key, what);
  };
  const auto& parallel = s.parallel;
  switch (parallel.data.kind) {
    case DataParallelKind::kNone:
    case DataParallelKind::kDdp: break;
    case DataParallelKind::kDp: return unsupported("parallel.data.kind", "dp");
    case DataParallelKind::kZero1: return unsupported("parallel.data.kind", "zero1");
    case DataParallelKind::kZero2: return unsupported("parallel.data.kind", "zero2");
    case DataParallelKind::kFsdp: return unsupported("parallel.data.kind", "fsdp");
  }
  if (parallel.pipeline.size > 1) return unsupported("parallel.pipeline.size", "more than one stage");
  if (parallel.tensor.size > 1) return unsupported("parallel.tensor.size", "tensor parallelism");
  if (parallel.context.size > 1) return unsupported("parallel.context.size", "context parallelism");
  if (parallel.expert.size > 1) return unsupported("parallel.expert.size", "expert parallelism");
  if (s.model.experts) return unsupported("model.experts", "a mixture of experts");
  if (s.model.dropout != 0) return unsupported("model.dropout", "dropout other than 0");
  if (s.recompute != Recompute::kNone) return unsupported("recompute", "recomputing activations");
  if (s.allocator != AllocatorKind::kWindtunnel) return unsupported("allocator", "another allocator than windtunnel");
  if (s.framework != Framework::kWindtunnel) return unsupported("framework", "another framework than windtunnel");
  const auto& p = s.precision;
  for (Precision precision : {p.param, p.compute, p.reduce, p.buffer, p.optimizer}) {
    if (precision != Precision::kFp32) return unsupported("precision", "another type than fp32");
  }
  return Ok();
}

// Builds the programs of the one role that data parallelism has.
class RoleCompiler {
 public:
  RoleCompiler(const Scenario& scenario, const Plan& plan);
  Role Compile();
  const Model& model() const { return *model_; }

 private:
  void AddStreams();
  Program Initialize();
  Program Step(int64_t step, std::string name);
  void MicroBatches(ProgramBuilder& builder);
  void CloseWithBarrier(ProgramBuilder& builder) const;
  int64_t startup_steps() const { return reducer_ ? reducer_->startup_steps() : 1; }

  const Scenario& scenario_;
  bool distributed_;
  Role role_;
  StreamId communication_ = -1;
  Slice scratch_;
  std::unique_ptr<Model> model_;
  std::vector<ParameterInit> inits_;
  std::unique_ptr<DdpReducer> reducer_;            // ddp over several ranks, or
  std::unique_ptr<ParameterGradients> gradients_;  // nothing to reduce
  std::unique_ptr<OptimizerSteps> optimizer_;
};

RoleCompiler::RoleCompiler(const Scenario& scenario, const Plan& plan)
    : scenario_(scenario), distributed_(plan.world_size > 1) {
  role_.name = distributed_ ? "replica" : "device";
  role_.ranks.resize(plan.world_size);
  std::iota(role_.ranks.begin(), role_.ranks.end(), 0);
  AddStreams();
  model_ = scenario.model.kind == ModelKind::kTransformer ? MakeTransformer(scenario) : MakeMlp(scenario);
  inits_ = model_->Register(role_);
  if (distributed_) {
    scratch_ = NewBuffer(role_, "collective scratch", 0, Category::kCommunication);
    reducer_ = std::make_unique<DdpReducer>(role_, scenario.parallel.data, plan.world_size, communication_, scratch_);
  } else {
    gradients_ = std::make_unique<ParameterGradients>(role_);
  }
  optimizer_ = std::make_unique<OptimizerSteps>(role_, scenario.optimizer);
  Slice losses = NewBuffer(role_, "losses", scenario.batch.accumulate, Category::kActivations);
  for (int64_t i = 0; i < scenario.batch.accumulate; ++i) role_.losses.push_back(Slice{losses.buffer, i, 1});
}

void RoleCompiler::AddStreams() {
  role_.streams.push_back(Stream{StreamKind::kCompute, "compute", -1});
  if (!distributed_) return;
  communication_ = static_cast<StreamId>(role_.streams.size());
  role_.streams.push_back(Stream{StreamKind::kCommunication, "data", 0});
}

Role RoleCompiler::Compile() {
  role_.initialize = Initialize();
  for (int64_t step = 0; step < startup_steps(); ++step) role_.startup.push_back(Step(step, fmt::format("step {}", step)));
  role_.steady = Step(startup_steps(), "steady");
  if (distributed_) role_.buffers[scratch_.buffer].bytes = Bytes(4) * reducer_->scratch_elements();
  return std::move(role_);
}

Program RoleCompiler::Initialize() {
  ProgramBuilder builder(role_, "initialize");
  builder.SetPhase(Phase::kInitialize);
  for (size_t i = 0; i < role_.parameters.size(); ++i) {
    const Parameter& parameter = role_.parameters[i];
    builder.Alloc(parameter.buffer);
    builder.Add(InitializeParameter{inits_[i].distribution, parameter.elements, inits_[i].scale, i}, parameter.name, {},
                {Slice{parameter.buffer, 0, parameter.elements}});
  }
  builder.Alloc(role_.losses[0].buffer);
  if (reducer_) reducer_->Initialize(builder);
  CloseWithBarrier(builder);
  return builder.Finish();
}

Program RoleCompiler::Step(int64_t step, std::string name) {
  ProgramBuilder builder(role_, std::move(name));
  if (reducer_) {
    reducer_->BeginStep(builder, step);
  } else {
    gradients_->ZeroGrad(builder, /*alive_at_start=*/step > 0);
  }
  MicroBatches(builder);
  optimizer_->Add(builder, /*first=*/step == 0);
  CloseWithBarrier(builder);
  return builder.Finish();
}

void RoleCompiler::MicroBatches(ProgramBuilder& builder) {
  const int64_t count = scenario_.batch.accumulate;
  GradientSink& sink = reducer_ ? static_cast<GradientSink&>(*reducer_) : *gradients_;
  for (int64_t i = 0; i < count; ++i) {
    const bool sync = i + 1 == count || scenario_.parallel.data.sync == GradientSync::kEveryMicroBatch;
    if (reducer_) reducer_->BeginMicroBatch(sync);
    model_->ForwardBackward(builder, sink, static_cast<int>(i), role_.losses[i], 1.0 / static_cast<double>(count));
    if (reducer_) reducer_->EndMicroBatch();
  }
}

void RoleCompiler::CloseWithBarrier(ProgramBuilder& builder) const {
  if (!distributed_) return;
  builder.SetPhase(Phase::kEnd);
  builder.Add(Collective{CollectiveKind::kBarrier, DType::kFloat32, 0}, "barrier", {}, {}, {builder.LastCompute()},
              communication_);
}

void CheckPrograms(const Role& role, const std::vector<Axis>& axes) {
  std::vector<bool> alive;
  std::vector<const Program*> programs = {&role.initialize};
  for (const Program& program : role.startup) programs.push_back(&program);
  programs.push_back(&role.steady);
  programs.push_back(&role.steady);  // the steady step leaves what it needs itself
  for (const Program* program : programs) {
    const std::string error = FindProgramError(*program, role.buffers, role.streams, axes, alive);
    if (!error.empty()) internal::CheckFailed(__FILE__, __LINE__, error);
  }
}

}  // namespace

Result<Plan> CompilePlan(const Scenario& scenario) {
  WT_RETURN_IF_ERROR(CheckSupported(scenario));
  Plan plan;
  plan.scenario = scenario;
  plan.world_size = static_cast<int>(scenario.WorldSize());
  plan.axes.push_back(MakeAxis("world", plan.world_size, plan.world_size, 1));
  RoleCompiler compiler(scenario, plan);
  plan.roles.push_back(compiler.Compile());
  plan.role_of_rank.assign(plan.world_size, 0);
  plan.model = compiler.model().Statistics(plan.roles[0]);
  const int64_t samples = scenario.batch.micro * scenario.batch.accumulate * scenario.parallel.data.size;
  plan.model.tokens_per_step =
      samples * (scenario.model.kind == ModelKind::kTransformer ? scenario.model.seq_len : 1);
  CheckPrograms(plan.roles[0], plan.axes);
  return plan;
}

}  // namespace windtunnel
