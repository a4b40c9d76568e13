// From a scenario to the programs of its roles.
#include <algorithm>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/parallel.h"
#include "plan/axes.h"
#include "plan/balance.h"
#include "plan/device_replicas.h"
#include "plan/fsdp_units.h"
#include "plan/graphs.h"
#include "plan/outline.h"
#include "plan/role_compiler.h"
#include "scenarios/checks.h"
#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

Status UnsupportedKey(std::string_view key, std::string_view what) {
  return Unsupported("{}: {} is not supported yet", key, what);
}

// The size of a block's forward and backward in the simulator, relative to a block without experts and
// without products in parts, which is some 95 events of 1.2 to 2 KB each. With products in parts it is 66
// events plus 24 per tensor rank (counted at 2, 4 and 8 ranks); experts add 80, conversions to fp8 or fp4 90.
double SizeOfBlock(const Scenario& s) {
  constexpr double kPlain = 95, kOfExperts = 80, kOfFactors = 90, kInParts = 66, kPart = 24;
  const TensorParallelSpec& tensor = s.parallel.tensor;
  const bool in_parts = tensor.overlap && tensor.sequence && tensor.size > 1;
  const double events = in_parts ? kInParts + kPart * static_cast<double>(tensor.size) : kPlain;
  const bool converts = s.precision.fp8_recipe != Fp8Recipe::kNone;
  return (events + (s.model.experts ? kOfExperts : 0) + (converts ? kOfFactors : 0)) / kPlain;
}

// Checks what is not supported if ranks hold different experts.
Status CheckSharedExperts(const Scenario& s) {
  if (s.parallel.expert.size == 1 || !s.parallel.data.find_unused_parameters) return Ok();
  return UnsupportedKey("parallel.data.find_unused_parameters", "with parallel.expert.size > 1");
}

// Checks the programs in an order in which they may run: nothing is used before it is there, or left behind.
void CheckPrograms(const Role& role, const std::vector<Axis>& axes) {
  std::vector<bool> alive;
  std::vector<const Program*> programs = {&role.initialize, &role.restore};
  for (const Program& program : role.startup) programs.push_back(&program);
  programs.push_back(&role.steady);
  programs.push_back(&role.restore);
  programs.push_back(&role.evaluate);
  programs.push_back(&role.steady);  // a steady step leaves what the next one needs
  for (const Program* program : programs) {
    const std::string error = FindProgramError(*program, role.buffers, role.streams, axes, alive);
    if (!error.empty()) internal::CheckFailed(__FILE__, __LINE__, error);
  }
}

Result<PipelinePlan> PlanPipeline(const Scenario& scenario) {
  WT_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(scenario));
  std::vector<int64_t> balance = scenario.parallel.pipeline.balance;
  const int stages = schedule.stages();
  if (balance.empty()) {
    WT_ASSIGN_OR_RETURN(balance, ChooseBalance(scenario, {RoughTime}));
  }
  if (static_cast<int>(balance.size()) != stages) {
    return InvalidInput("parallel.pipeline.balance has {} entries, expected {}, the stages of {}",
                        balance.size(), stages, scenario.parallel.pipeline.schedule);
  }
  return PipelinePlan{StagesOf(scenario.model, balance, scenario.parallel.pipeline.mtp),
                      AddCommunication(schedule)};
}

// Names of modules to wrap are checked against the whole model, since a stage has only some of them.
Status CheckWrapNames(const Scenario& scenario) {
  if (scenario.parallel.data.kind != DataParallelKind::kFsdp) return Ok();
  Role role;
  const std::unique_ptr<Model> model = MakeModel(scenario, WholeModel(scenario.model));
  model->Register(role);
  WT_RETURN_IF_ERROR(MakeUnits(model->modules(), role.parameters, scenario.parallel.data.wrap));
  return Ok();
}

// Only steps have graphs: everything else runs once.
void FormGraphsOfSteps(const Scenario& scenario, Role& role) {
  for (Program& step : role.startup) FormGraphs(scenario, step);
  FormGraphs(scenario, role.steady);
}

// Whether some memory becomes free only when the host has waited for a stream, so that all operators matter.
bool RecordsStreams(const Program& program) {
  return std::any_of(program.memory.begin(), program.memory.end(),
                     [](const MemoryOp& op) { return op.recorded_stream >= 0; });
}

void KeepMemoryAlone(Program& program) {
  std::vector<Op>().swap(program.ops);
  for (MemoryOp& op : program.memory) op.before = 0;
}

void DropOperands(Program& program) {
  for (Op& op : program.ops) {
    std::vector<Slice>().swap(op.reads);  // frees the memory, too
    std::vector<Slice>().swap(op.writes);
  }
}

// For CompileOptions::predicts.
void KeepWhatIsPredicted(Role& role) {
  for (Program& step : role.startup) {
    if (!RecordsStreams(step)) KeepMemoryAlone(step);
    DropOperands(step);
  }
  DropOperands(role.steady);
}

void Complete(Role& role, const Plan& plan, const CompileOptions& options) {
  if (plan.scenario.run.cuda_graphs) FormGraphsOfSteps(plan.scenario, role);
  if (options.checks) CheckPrograms(role, plan.axes);
  if (options.predicts) KeepWhatIsPredicted(role);
}

// The role of a pipeline rank's stages; if ranks share updates, of a data rank. Reads nothing of `plan` that
// has to do with roles.
Result<Role> MakeRole(const Plan& plan, const PlanAxes& axes, int index, const CompileOptions& options) {
  const bool is_of_data_rank = SharesUpdates(plan.scenario);
  const std::optional<int> data_rank = is_of_data_rank ? std::optional(index) : std::nullopt;
  RoleCompiler compiler(plan, axes, is_of_data_rank ? 0 : index, data_rank);
  WT_ASSIGN_OR_RETURN(Role role, compiler.Compile(options));
  Complete(role, plan, options);
  return role;
}

Status AddRoles(Plan& plan, const PlanAxes& axes, const CompileOptions& options) {
  const int count = SharesUpdates(plan.scenario) ? plan.mesh.data() : plan.mesh.pipeline();
  std::vector<std::optional<Result<Role>>> roles(static_cast<size_t>(count));
  ForEachInParallel(options.threads, roles.size(), [&](size_t index) {
    roles[index] = MakeRole(plan, axes, static_cast<int>(index), options);
  });
  plan.role_of_rank.assign(plan.world_size, 0);
  for (size_t index = 0; index < roles.size(); ++index) {
    WT_ASSIGN_OR_RETURN(Role role, std::move(*roles[index]));
    for (int member : role.ranks) plan.role_of_rank[member] = static_cast<int>(index);
    plan.roles.push_back(std::move(role));
  }
  return Ok();
}

}  // namespace

Status CheckSize(const Scenario& s) {
  const double most = 80'000 / SizeOfBlock(s);             // of a rank: up to 16 GB of operators
  const double most_of_stages = 135'000 / SizeOfBlock(s);  // of all stages, one rank of each: up to 18 GB
  const bool is_mlp = s.model.kind == ModelKind::kMlp;
  const double layers = static_cast<double>(LayerCount(s.model));
  const double of_model = layers * static_cast<double>(s.batch.accumulate);
  const double of_rank = of_model / static_cast<double>(s.parallel.pipeline.size);
  const double of_stages = of_model * (SharesUpdates(s) ? static_cast<double>(s.parallel.data.size) : 1);
  if (of_rank <= most && of_stages <= most_of_stages) return Ok();
  const bool is_of_rank = of_rank > most;
  const bool by_layers = layers > static_cast<double>(s.batch.accumulate);
  return Unsupported(
      "{} is {:.0f}: {} would go through {:.0f} {} in a step, expected at most {:.0f}, since every "
      "operator of them is simulated (give fewer {}, in which the step's time is nearly linear{})",
      !by_layers        ? "batch.accumulate"
      : is_mlp          ? "model.widths"
      : s.model.encoder ? "model.layers + model.encoder.layers"
                        : "model.layers",
      by_layers ? layers : static_cast<double>(s.batch.accumulate), is_of_rank ? "a rank" : "the stages",
      is_of_rank ? of_rank : of_stages, is_mlp ? "layers" : "blocks", is_of_rank ? most : most_of_stages,
      by_layers ? "layers" : "micro-batches",
      by_layers || SharesUpdates(s) ? "" : ", or more data ranks with fewer of them each");
}

// Each rank has a program of its own.
Status CheckSharedUpdates(const Scenario& s) {
  if (!SharesUpdates(s) || s.parallel.data.size <= kMostUpdateRanks) return Ok();
  return Unsupported(
      "parallel.data.size is {}, expected at most {} with optimizer.zero_redundancy, since the program of "
      "every rank is simulated",
      s.parallel.data.size, kMostUpdateRanks);
}

Status CheckSupported(const Scenario& s) {
  const PipelineSpec& pipeline = s.parallel.pipeline;
  const double actions = static_cast<double>(pipeline.size) * static_cast<double>(pipeline.virtual_stages) *
                         static_cast<double>(s.batch.accumulate);
  if (actions > kMostActions)
    return Unsupported("batch.accumulate is {}: the schedule would have {:.0f} actions, expected at most {}",
                       s.batch.accumulate, actions, kMostActions);
  WT_RETURN_IF_ERROR(CheckSplits(s));
  WT_RETURN_IF_ERROR(CheckSharedUpdates(s));
  return CheckSharedExperts(s);
}

Result<Plan> CompilePlan(const Scenario& scenario, const CompileOptions& options) {
  WT_RETURN_IF_ERROR(CheckSize(scenario));
  WT_RETURN_IF_ERROR(CheckSupported(scenario));
  Plan plan = OutlineOf(scenario);
  plan.model = StatisticsOf(scenario);
  if (scenario.parallel.pipeline.size > 1) {
    WT_RETURN_IF_ERROR(CheckWrapNames(scenario));
    WT_ASSIGN_OR_RETURN(plan.pipeline, PlanPipeline(scenario));
  }
  WT_ASSIGN_OR_RETURN(const PlanAxes axes, AddAxes(plan));
  if (scenario.parallel.data.kind == DataParallelKind::kDp && plan.world_size > 1) {
    CompileDeviceReplicas(plan, options);
    for (Role& role : plan.roles) Complete(role, plan, options);
  } else {
    WT_RETURN_IF_ERROR(AddRoles(plan, axes, options));
  }
  return plan;
}

}  // namespace windtunnel
