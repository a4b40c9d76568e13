#include "plan/role_compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "plan/loss_scaling.h"
#include "plan/message_protocol.h"
#include "plan/powersgd.h"
#include "plan/step_end.h"
#include "scenarios/derived.h"

namespace windtunnel {
namespace {

// The schedule of a model without a pipeline: micro-batches one after the other. With `pairs`, each backward
// is paired with the forward of the next micro-batch.
Schedule OnePiece(int64_t micro_batches, bool pairs) {
  Schedule schedule{"", micro_batches, {0}, {{}}};
  std::vector<Action>& actions = schedule.ranks[0];
  if (pairs) actions.push_back({ActionKind::kForward, 0, 0});
  for (int64_t i = 0; i < micro_batches; ++i) {
    const Action forward{ActionKind::kForward, 0, pairs ? i + 1 : i};
    if (forward.micro_batch < micro_batches) actions.push_back(forward);
    if (pairs && forward.micro_batch < micro_batches) schedule.paired.insert(forward);
    actions.push_back({ActionKind::kBackward, 0, i});
  }
  return schedule;
}

std::string RoleName(const Plan& plan, const std::vector<Stage>& stages, std::optional<int> data_rank) {
  if (data_rank) return fmt::format("replica {}", *data_rank);
  if (!plan.pipeline) return plan.world_size > 1 ? "replica" : "device";
  std::vector<int> indices;
  for (const Stage& stage : stages) indices.push_back(stage.index);
  return fmt::format("stage{} {}", stages.size() > 1 ? "s" : "", fmt::join(indices, ", "));
}

}  // namespace

RoleCompiler::RoleCompiler(const Plan& plan, const PlanAxes& axes, int pipeline_rank,
                           std::optional<int> data_rank)
    : plan_(plan),
      scenario_(plan.scenario),
      axes_(axes),
      pipeline_rank_(pipeline_rank),
      data_rank_(data_rank),
      one_piece_(plan.pipeline ? Schedule()
                               : OnePiece(scenario_.batch.accumulate, scenario_.parallel.expert.overlap)),
      schedule_(plan.pipeline ? plan.pipeline->schedule : one_piece_) {
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const MeshPlace place = plan.mesh.PlaceOf(rank);
    if (place.pipeline == pipeline_rank && place.data == data_rank.value_or(place.data))
      role_.ranks.push_back(rank);
  }
  AddLossScaling(role_, scenario_.precision);
  AddStreams();
  AddStages();
  role_.name = RoleName(plan, stages_, data_rank);
  const Model& model = *stages_.front().model;
  const MessageProtocol protocol = MessageProtocolOf(scenario_, schedule_.stages(), model.OutputElements());
  const MessageHandling how{.host = protocol.host_waits && !host_computes() ? HostStream() : -1,
                            .tensor = protocol.parts > 1 ? tensor_ : nullptr};
  const WeightGradients weights =
      scenario_.parallel.expert.delay_wgrad ? WeightGradients::kDelayed : WeightGradients::kWithInput;
  work_ = std::make_unique<PipelineRank>(role_, schedule_, pipeline_rank, stages_, axes, model.BoundaryType(),
                                         weights, how);
}

StreamId RoleCompiler::AddStream(StreamKind kind, const char* name) {
  role_.streams.push_back(Stream{kind, name, -1});
  return static_cast<StreamId>(role_.streams.size()) - 1;
}

StreamId RoleCompiler::HostStream() {
  if (host_ < 0) host_ = AddStream(StreamKind::kHost, "host");
  return host_;
}

CollectiveStream* RoleCompiler::AddCollectives(AxisId axis, const char* name, bool between_stages) {
  collectives_.push_back(
      std::make_unique<CollectiveStream>(role_, axis, plan_.axes[axis].size(), name, between_stages));
  return collectives_.back().get();
}

void RoleCompiler::AddStreams() {
  AddStream(StreamKind::kCompute, "compute");
  alone_ = std::make_unique<CollectiveStream>(role_, axes_.world, 1, "");
  const bool has_stages = plan_.pipeline.has_value();
  const bool is_all_data = plan_.mesh.copies() == plan_.world_size;
  auto add = [&](AxisId axis, const char* name, bool between_stages) {
    return axis >= 0 ? AddCollectives(axis, name, between_stages) : alone_.get();
  };
  const bool is_all_tensor = plan_.mesh.tensor() == plan_.world_size && !is_all_data;
  world_ = add(axes_.world, is_all_data ? "data" : is_all_tensor ? "tensor" : "world", has_stages);
  data_ = is_all_data ? world_ : add(axes_.data, "data", false);
  const bool shards_over_data = ShardRanks(scenario_) == plan_.mesh.copies();
  shard_ = axes_.shard >= 0 ? add(axes_.shard, "shard", false) : shards_over_data ? data_ : alone_.get();
  replicate_ = axes_.replicate >= 0 ? add(axes_.replicate, "replicate", false)
               : shards_over_data   ? alone_.get()
                                    : data_;
  reshard_ = add(axes_.reshard, "reshard", false);
  tensor_ = is_all_tensor ? world_ : add(axes_.tensor, "tensor", false);
  context_ = add(axes_.context, "context", false);
  expert_ = add(axes_.expert, "expert", false);
  expert_part_ = axes_.expert_part == axes_.expert ? expert_ : add(axes_.expert_part, "expert part", false);
  expert_data_ = add(axes_.expert_data, "expert data", false);
  auto part_of_expert_data = [&](AxisId axis) {
    if (axis >= 0 && axis == axes_.replicate) return replicate_;
    return axis == axes_.expert_data ? expert_data_ : add(axis, "expert shard", false);
  };
  expert_shard_ = part_of_expert_data(axes_.expert_shard);
  expert_replicate_ = part_of_expert_data(axes_.expert_replicate);
  pipeline_ = add(axes_.pipeline, "pipeline", true);
  const bool has_embedding =
      axes_.embedding >= 0 && plan_.axes[axes_.embedding].Contains(role_.ranks.front());
  embedding_ = has_embedding ? add(axes_.embedding, "embedding", true) : alone_.get();
}

void RoleCompiler::AddStages() {
  ModelParallel parallel{.tensor = TensorParallelOf(scenario_, tensor_),
                         .context = {context_, scenario_.parallel.context.kind},
                         .expert = ExpertParallelOf(scenario_, expert_)};
  if (HostCountsTokens(scenario_)) parallel.expert.host = HostStream();
  for (int index = 0; index < schedule_.stages(); ++index) {
    if (schedule_.rank_of_stage[index] != pipeline_rank_) continue;
    const StageRange range = plan_.pipeline ? plan_.pipeline->stages[index] : WholeModel(scenario_.model);
    Stage stage{index, MakeModel(scenario_, range, parallel), static_cast<ModuleId>(modules_.size())};
    stage.model->Register(role_);
    for (Module module : stage.model->modules()) {
      if (!module.is_root()) module.parent += stage.first_module;
      modules_.push_back(std::move(module));
    }
    stages_.push_back(std::move(stage));
  }
  for (Parameter& parameter : role_.parameters) {
    parameter.is_shared = embedding_->ranks() > 1 && parameter.ordinal == 0 && !parameter.is_frozen;
  }
}

Status RoleCompiler::MakeStrategy() {
  const DataParallelKind kind = scenario_.parallel.data.kind;
  const bool is_sharded = IsSharded(kind);
  StrategyContext context{.scenario = scenario_,
                          .role = role_,
                          .modules = modules_,
                          .dense = {*data_, *shard_, *replicate_},
                          .of_experts = {*expert_data_, *expert_shard_, *expert_replicate_},
                          .reshard = *reshard_,
                          .tensor = *tensor_,
                          .expert = *expert_part_,
                          .copies = kComputeStream,
                          .host = -1,
                          .model_parts = {tensor_, pipeline_},
                          .splits_backward = SplitsBackward(schedule_),
                          .pipeline_rank = pipeline_rank_,
                          .data_rank = data_rank_};
  for (const Stage& stage : stages_) {
    const std::vector<int>& own = stage.model->parameters();
    if (!own.empty()) context.first_parameters.push_back(*std::min_element(own.begin(), own.end()));
  }
  if (is_sharded && !host_computes()) {
    context.host = HostStream();
    // ZeRO-3 without overlap does all on one stream.
    const bool is_zero3 = kind == DataParallelKind::kZero3;
    if (!is_zero3 || scenario_.parallel.data.overlap) context.copies = AddStream(StreamKind::kCopy, "copy");
    if (is_zero3 && scenario_.parallel.data.overlap)
      context.reductions = AddStream(StreamKind::kCopy, "reductions");
  }
  if (CompressesAsPytorch(scenario_) && !host_computes()) context.host = HostStream();
  if (scenario_.activation_offload && !host_computes()) {
    // Copies to the device share the link with those of offloaded parameters.
    const bool is_shared =
        scenario_.parallel.data.offload != Offload::kNone && context.copies != kComputeStream;
    to_host_ = AddStream(StreamKind::kCopy, "to host");
    to_device_ = is_shared ? context.copies : AddStream(StreamKind::kCopy, "to device");
  }
  if (!is_sharded) {
    strategy_ = MakeReplicated(context);
  } else if (kind == DataParallelKind::kZero3) {
    strategy_ = MakeZero3(context);
  } else if (kind == DataParallelKind::kFsdp) {
    WT_ASSIGN_OR_RETURN(strategy_, MakeFsdp(context));
  } else {
    strategy_ = MakeZero(context);
  }
  return Ok();
}

Result<Role> RoleCompiler::Compile(const CompileOptions& options) {
  WT_RETURN_IF_ERROR(MakeStrategy());
  if (schedule_.rank_of_stage.back() == pipeline_rank_) {
    const int64_t each = stages_.back().model->LossElements();
    const Slice losses = NewBuffer(role_, "losses", schedule_.micro_batches * each, Category::kActivations);
    role_.buffers[losses.buffer].use = BufferUse::kLosses;
    for (int64_t i = 0; i < schedule_.micro_batches; ++i)
      role_.losses.push_back(Slice{losses.buffer, i * each, each});
  }
  role_.initialize = Initialize();
  const int64_t startup = strategy_->startup_steps(), programs = strategy_->startup_programs();
  if (options.starts_up && programs < startup) role_.repeats_until = startup;
  for (int64_t step = 0; (options.starts_up || strategy_->learns()) && step < programs; ++step) {
    Program program = Step(step, fmt::format("step {}", step), options.computes);
    if (options.starts_up) role_.startup.push_back(std::move(program));
  }
  role_.steady = Step(startup, "steady", options.computes);
  role_.restore = Restore();
  if (options.evaluates) role_.evaluate = Evaluate();
  for (auto& collectives : collectives_) collectives->SizeScratch();
  return std::move(role_);
}

Program RoleCompiler::Initialize() {
  ProgramBuilder builder(role_, "initialize");
  builder.SetPhase(Phase::kInitialize);
  if (!role_.losses.empty()) builder.Alloc(role_.losses[0].buffer);
  InitializeLossScaling(builder);
  for (const Stage& stage : stages_)
    for (const BufferId kept : stage.model->kept_buffers()) builder.Alloc(kept);
  for (auto& collectives : collectives_) collectives->Initialize(builder);
  strategy_->Initialize(builder);
  CloseWithBarrier(builder, *world_);
  return builder.Finish();
}

Program RoleCompiler::Step(int64_t step, std::string name, bool computes) {
  ProgramBuilder builder(role_, std::move(name));
  OffloadActivations(builder);
  strategy_->BeginStep(builder, step);
  if (computes) work_->AddMicroBatches(builder, *strategy_, role_.losses);
  SumTiedGradient(builder, *strategy_, *embedding_);
  strategy_->Update(builder, /*first=*/step == 0);
  AddLossScaleUpdate(builder);
  CloseWithBarrier(builder, *world_);
  return builder.Finish();
}

void RoleCompiler::OffloadActivations(ProgramBuilder& builder) {
  if (!scenario_.activation_offload) return;
  std::vector<bool> offloads(static_cast<size_t>(LayerCount(scenario_.model)));
  const int64_t most = scenario_.activation_offload_layers;
  for (const Stage& stage : stages_) {
    const StageRange range =
        plan_.pipeline ? plan_.pipeline->stages[stage.index] : WholeModel(scenario_.model);
    for (int64_t layer = range.first; layer < range.end; ++layer)
      offloads[static_cast<size_t>(layer)] = most == 0 || layer - range.first < most;
  }
  builder.OffloadActivations(
      {.to_host = to_host_, .to_device = to_device_, .offloads = [offloads = std::move(offloads)](int layer) {
         return static_cast<size_t>(layer) < offloads.size() && offloads[static_cast<size_t>(layer)];
       }});
}

Program RoleCompiler::Restore() {
  ProgramBuilder builder(role_, "restore");
  builder.SetPhase(Phase::kInitialize);
  strategy_->Restore(builder);
  CloseWithBarrier(builder, *world_);
  return builder.Finish();
}

Program RoleCompiler::Evaluate() {
  ProgramBuilder builder(role_, "evaluate");
  builder.Evaluates();
  strategy_->BeginEvaluation(builder);
  work_->AddMicroBatches(builder, *strategy_, role_.losses, /*forward_only=*/true);
  CloseWithBarrier(builder, *world_);
  return builder.Finish();
}

}  // namespace windtunnel
