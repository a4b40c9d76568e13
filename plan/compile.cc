// From a scenario to the programs of its roles.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "plan/data_parallel.h"
#include "plan/device_replicas.h"
#include "plan/model.h"
#include "plan/plan.h"

namespace windtunnel {
namespace {

Status UnsupportedKey(std::string_view key, std::string_view what) {
  return Unsupported("{}: {} is not supported yet", key, what);
}

Status CheckPrecision(const PrecisionSpec& p) {
  const bool tf32 = p.param == Precision::kFp32 && p.compute == Precision::kTf32;
  if (p.compute != p.param && !tf32) {
    return UnsupportedKey("precision.compute", "another type than precision.param (or tf32 on fp32)");
  }
  if (p.param == Precision::kFp8 || p.reduce == Precision::kFp8) return UnsupportedKey("precision", "fp8");
  if (p.param == Precision::kTf32 || p.reduce == Precision::kTf32) {
    return InvalidInput("precision: tf32 is a type of matrix products only (precision.compute); store fp32");
  }
  if (p.optimizer != Precision::kFp32) return UnsupportedKey("precision.optimizer", "another type than fp32");
  return Ok();
}

// What the step programs do not cover yet, by the scenario's key.
Status CheckSupported(const Scenario& s) {
  const auto& parallel = s.parallel;
  if (parallel.pipeline.size > 1) return UnsupportedKey("parallel.pipeline.size", "more than one stage");
  if (parallel.tensor.size > 1) return UnsupportedKey("parallel.tensor.size", "tensor parallelism");
  if (parallel.context.size > 1) return UnsupportedKey("parallel.context.size", "context parallelism");
  if (parallel.expert.size > 1) return UnsupportedKey("parallel.expert.size", "expert parallelism");
  if (s.model.experts) return UnsupportedKey("model.experts", "a mixture of experts");
  if (s.model.dropout != 0) return UnsupportedKey("model.dropout", "dropout other than 0");
  return CheckPrecision(s.precision);
}

// Ranks that one copy of the sharded states is divided among.
int64_t ShardRanks(const Scenario& s) {
  const DataParallelSpec& data = s.parallel.data;
  switch (data.kind) {
    case DataParallelKind::kZero1:
    case DataParallelKind::kZero2:
      return data.shard_size > 0 ? data.shard_size : data.size;
    case DataParallelKind::kFsdp:
      break;
    default:
      return 1;
  }
  switch (data.sharding) {
    case Sharding::kFullShard:
    case Sharding::kShardGradOp:
      return data.size;
    case Sharding::kNoShard:
      return 1;
    case Sharding::kHybridShard:
    case Sharding::kHybridShardZero2:
      break;
  }
  return data.shard_size > 0 ? data.shard_size : std::min(data.size, s.cluster.devices_per_node);
}

// Builds the programs of the one role that data parallelism has.
class RoleCompiler {
 public:
  RoleCompiler(const Scenario& scenario, const Plan& plan);
  Result<Role> Compile();
  const Model& model() const { return *model_; }

 private:
  // Devices with streams of their own: the host only issues operators.
  bool host_computes() const { return scenario_.cluster.device == "cpu"; }
  StreamId AddStream(StreamKind kind, const char* name);
  Status MakeStrategy();
  Program Initialize();
  Program Step(int64_t step, std::string name);
  void CloseWithBarrier(ProgramBuilder& builder);

  const Scenario& scenario_;
  Role role_;
  std::unique_ptr<Model> model_;
  std::vector<std::unique_ptr<CollectiveStream>> collectives_;  // by axis
  std::unique_ptr<CollectiveStream> alone_;                     // for the axes of one rank
  std::unique_ptr<DataParallel> strategy_;
};

// Axes of the plan; 1 and 2 only where shards have replicas.
enum : AxisId { kWorldAxis, kShardAxis, kReplicateAxis };

RoleCompiler::RoleCompiler(const Scenario& scenario, const Plan& plan) : scenario_(scenario) {
  role_.name = plan.world_size > 1 ? "replica" : "device";
  role_.ranks.resize(plan.world_size);
  std::iota(role_.ranks.begin(), role_.ranks.end(), 0);
  AddStream(StreamKind::kCompute, "compute");
  for (size_t axis = 0; axis < plan.axes.size(); ++axis) {
    const char* name = axis == kWorldAxis ? "data" : plan.axes[axis].name.c_str();
    collectives_.push_back(
        std::make_unique<CollectiveStream>(role_, static_cast<AxisId>(axis), plan.axes[axis].size(), name));
  }
  alone_ = std::make_unique<CollectiveStream>(role_, kWorldAxis, 1, "");
  model_ = MakeModel(scenario, WholeModel(scenario.model));
  model_->Register(role_);
}

StreamId RoleCompiler::AddStream(StreamKind kind, const char* name) {
  role_.streams.push_back(Stream{kind, name, -1});
  return static_cast<StreamId>(role_.streams.size()) - 1;
}

Status RoleCompiler::MakeStrategy() {
  // A group of all ranks is the world's: one communicator, one stream.
  CollectiveStream& world = *collectives_[kWorldAxis];
  const bool has_replicas = collectives_.size() > 1;
  const bool shards_over_world = ShardRanks(scenario_) == world.ranks();
  CollectiveStream* shard = has_replicas        ? collectives_[kShardAxis].get()
                            : shards_over_world ? &world
                                                : alone_.get();
  CollectiveStream* replicate = has_replicas        ? collectives_[kReplicateAxis].get()
                                : shards_over_world ? alone_.get()
                                                    : &world;
  const bool is_sharded = scenario_.parallel.data.kind != DataParallelKind::kNone &&
                          scenario_.parallel.data.kind != DataParallelKind::kDdp &&
                          scenario_.parallel.data.kind != DataParallelKind::kDp;
  StrategyContext context{scenario_, role_, model_->modules(), world, *shard, *replicate, kComputeStream, -1};
  if (is_sharded && !host_computes()) {
    context.copies = AddStream(StreamKind::kCopy, "copy");
    context.host = AddStream(StreamKind::kHost, "host");
  }
  if (!is_sharded) {
    strategy_ = MakeReplicated(context);
  } else if (scenario_.parallel.data.kind == DataParallelKind::kFsdp) {
    WT_ASSIGN_OR_RETURN(strategy_, MakeFsdp(context));
  } else {
    strategy_ = MakeZero(context);
  }
  return Ok();
}

Result<Role> RoleCompiler::Compile() {
  WT_RETURN_IF_ERROR(MakeStrategy());
  const int64_t micro_batches = scenario_.batch.accumulate;
  const Slice losses = NewBuffer(role_, "losses", micro_batches, Category::kActivations);
  for (int64_t i = 0; i < micro_batches; ++i) role_.losses.push_back(Slice{losses.buffer, i, 1});
  role_.initialize = Initialize();
  const int64_t startup = strategy_->startup_steps();
  for (int64_t step = 0; step < startup; ++step)
    role_.startup.push_back(Step(step, fmt::format("step {}", step)));
  role_.steady = Step(startup, "steady");
  for (auto& collectives : collectives_) collectives->SizeScratch();
  return std::move(role_);
}

Program RoleCompiler::Initialize() {
  ProgramBuilder builder(role_, "initialize");
  builder.SetPhase(Phase::kInitialize);
  builder.Alloc(role_.losses[0].buffer);
  for (auto& collectives : collectives_) collectives->Initialize(builder);
  strategy_->Initialize(builder);
  CloseWithBarrier(builder);
  return builder.Finish();
}

Program RoleCompiler::Step(int64_t step, std::string name) {
  ProgramBuilder builder(role_, std::move(name));
  strategy_->BeginStep(builder, step);
  const int64_t count = scenario_.batch.accumulate;
  for (int64_t i = 0; i < count; ++i) {
    strategy_->BeginMicroBatch(/*is_last=*/i + 1 == count);
    const int micro_batch = static_cast<int>(i);
    const Slice dlogits = model_->Forward(builder, *strategy_, micro_batch, {}, role_.losses[i],
                                          1.0 / static_cast<double>(count));
    model_->Backward(builder, *strategy_, micro_batch, dlogits);
    strategy_->EndMicroBatch();
  }
  strategy_->Update(builder, /*first=*/step == 0);
  CloseWithBarrier(builder);
  return builder.Finish();
}

// After everything on this rank.
void RoleCompiler::CloseWithBarrier(ProgramBuilder& builder) {
  builder.SetPhase(Phase::kEnd);
  std::vector<OpIndex> last;
  for (size_t stream = 0; stream < role_.streams.size(); ++stream) {
    if (role_.streams[stream].kind != StreamKind::kHost)
      last.push_back(builder.LastOn(static_cast<StreamId>(stream)));
  }
  collectives_[kWorldAxis]->Barrier(builder, std::move(last));
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

Status AddAxes(const Scenario& scenario, Plan& plan) {
  plan.axes.push_back(MakeAxis("world", plan.world_size, plan.world_size, 1));
  const DataParallelKind kind = scenario.parallel.data.kind;
  if (kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp || kind == DataParallelKind::kDp)
    return Ok();
  const int shard = static_cast<int>(ShardRanks(scenario));
  if (plan.world_size % shard != 0) {
    return InvalidInput("parallel.data.shard_size: {} does not divide parallel.data.size ({})", shard,
                        plan.world_size);
  }
  if (shard == 1 || shard == plan.world_size) return Ok();
  plan.axes.push_back(MakeAxis("shard", plan.world_size, shard, 1));
  plan.axes.push_back(MakeAxis("replicate", plan.world_size, plan.world_size / shard, shard));
  return Ok();
}

}  // namespace

Result<Plan> CompilePlan(const Scenario& scenario) {
  WT_RETURN_IF_ERROR(CheckSupported(scenario));
  Plan plan;
  plan.scenario = scenario;
  plan.world_size = static_cast<int>(scenario.WorldSize());
  WT_RETURN_IF_ERROR(AddAxes(scenario, plan));
  if (scenario.parallel.data.kind == DataParallelKind::kDp && plan.world_size > 1) {
    CompileDeviceReplicas(scenario, plan);
  } else {
    RoleCompiler compiler(scenario, plan);
    WT_ASSIGN_OR_RETURN(Role role, compiler.Compile());
    plan.roles.push_back(std::move(role));
    plan.role_of_rank.assign(plan.world_size, 0);
    int64_t parameters = 0;
    for (const Parameter& parameter : plan.roles[0].parameters) parameters += parameter.elements;
    plan.model = compiler.model().Statistics(parameters);
  }
  const int64_t samples = scenario.batch.micro * scenario.batch.accumulate * scenario.parallel.data.size;
  plan.model.tokens_per_step =
      samples * (scenario.model.kind == ModelKind::kTransformer ? scenario.model.seq_len : 1);
  for (const Role& role : plan.roles) CheckPrograms(role, plan.axes);
  return plan;
}

}  // namespace windtunnel
