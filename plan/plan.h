// A scenario, compiled: the programs of every role. Both executors, the cost model and all reports work from
// a Plan.
//
//   WT_ASSIGN_OR_RETURN(Plan plan, CompilePlan(scenario));
//   for (int step = 0; step < n; ++step) execute(plan.roles[0].StepProgram(step));
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/mesh.h"
#include "plan/schedule.h"
#include "plan/stages.h"
#include "plan/step_program.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// How a parameter's initial values are drawn.
struct ParameterInit {
  InitializeParameter::Distribution distribution = InitializeParameter::Distribution::kZeros;
  double scale = 0;
};

// Where a tensor's elements are. Whole: in the buffer from element `offset` on, on every rank. Sharded
// (per_rank > 0): the tensor begins at element `start` of a flat tensor. Rank r of its group on `axis` holds
// the elements [r per_rank, (r + 1) per_rank) of the flat tensor, in the buffer from element `offset` on.
struct Placement {
  BufferId buffer = -1;
  int64_t offset = 0;
  int64_t per_rank = 0;
  int64_t start = 0;
  AxisId axis = 0;
  // Sharded, but the buffer has room for the whole flat tensor, and each rank's part is at its place in it.
  bool in_whole = false;
};

// The part of a tensor that rank `position` of its group holds: elements [first, first + elements) of the
// tensor, beginning at element `offset` of the buffer. If the tensor is not sharded, all of it; if the rank
// holds none of it, no elements.
struct LocalPart {
  int64_t first = 0, elements = 0, offset = 0;
};
LocalPart PartOn(const Placement& placement, int64_t tensor_elements, int position);

// A tensor of the model, in registration order.
struct Parameter {
  std::string name;            // "blocks.0.attn.qkv.weight"
  std::vector<int64_t> shape;  // row-major
  int64_t elements = 0;
  ParameterInit init;
  Placement values;     // where the values that the optimizer updates (fp32) are between steps
  int64_t ordinal = 0;  // index in the registration order of the whole model (the role may hold only a stage)
  // Of its initial values (InitializeParameter::stream): the ordinal that it has without adapters. Adapters'
  // own are behind those of all others.
  int64_t random_stream = 0;
  int layer = -1;       // the model's layer that it belongs to; -1: none
  // Tied weights in two pipeline stages: another role has the parameter, too, and their gradients are summed.
  // The copy counts neither in the model's size nor in the gradients' norm.
  bool is_shared = false, is_copy = false;
  // With tensor parallelism, the other members describe the rank's part, and `part` says where this lies in a
  // tensor of `whole_shape`. If `part` is empty, every tensor rank has the whole tensor; is_partial_gradient:
  // its gradient must then be summed over the tensor axis before the update.
  std::vector<int64_t> whole_shape = {};
  TensorPart part = {};
  bool is_partial_gradient = false;
  // Parameters of experts with expert parallelism: the start of the part moves by this many elements of the
  // whole tensor for each further rank of the data axis with other experts (Plan::ExpertRankOf). The
  // gradients are summed only over ranks with the same experts.
  int64_t expert_stride = 0;
  bool is_of_experts() const { return expert_stride > 0; }
  // Of weights that Muon updates: the rows of each matrix that the rank's part of them stacks (queries, keys
  // and values; the experts' matrices). Empty for embeddings, the head, norms and biases, and with other
  // optimizers.
  std::vector<int64_t> matrices = {};
  // Rows and columns of the rank's part, of a weight of a linear layer in a block or a predictor of tokens
  // (not of a router or experts).
  std::array<int64_t, 2> linear_shape = {};
  // A weight of products in fp8 that is stored and gathered as their factor (precision.fp8_param_gather).
  bool is_factor = false;
  // A weight that is stored packed (kNf4, kNf4Double), in a buffer of its own, of which `values` counts the
  // numbers.
  std::optional<DType> packed = std::nullopt;
  // The elements of the buffer for so many of its numbers.
  int64_t Packed(int64_t numbers) const { return ElementsFor(numbers, *packed); }
  // Not trained (requires_grad is false): it has no gradient, no master and no optimizer state.
  bool is_frozen = false;
};
// Indices of the parameters that are trained, in order.
std::vector<int> TrainedOf(const std::vector<Parameter>& parameters);
// The number of elements of the whole tensor.
int64_t WholeElements(const Parameter& parameter);

// Optimizer state that is kept between steps: element i of `state` belongs to element i of `values`.
struct OptimizerState {
  std::string name;  // as in torch.optim: "exp_avg", "exp_avg_sq"; "momentum"
  Slice values, state;
};

// The buffers and rule of a role with loss scaling (plan/loss_scaling.h). `numbers`: kLossScaleNumbers of
// fp32 (plan/ops.h); `found_inf`: whether this step's gradients overflowed.
struct LossScaling {
  Slice numbers, found_inf;
  double first = 0;  // the scale of the first step
  UpdateLossScale update;
};

// The values of LossScaling::numbers between steps.
struct LossScaleState {
  double scale = 0;
  int64_t growth_tracker = 0, skipped_steps = 0;
  bool operator==(const LossScaleState&) const = default;
};

// Ranks that execute the same programs.
struct Role {
  // Defined in plan.cc, so that not every file that uses a Role compiles them.
  Role();
  Role(const Role&);
  Role(Role&&) noexcept;
  Role& operator=(const Role&);
  Role& operator=(Role&&) noexcept;
  ~Role();

  std::string name;        // "replica"; in a pipeline "stage 0", "stages 0, 2"
  std::vector<int> ranks;  // ascending
  std::vector<Stream> streams;
  std::vector<Buffer> buffers;
  std::vector<Parameter> parameters;
  Program initialize;            // parameters, initial broadcast, first buckets
  std::vector<Program> startup;  // the first steps, if they differ from the steady one
  int64_t repeats_until = 0;     // the last program of `startup` is that of all further steps before this one
  Program steady;
  // Run after the values between steps (Parameter::values) have been replaced: updates what is derived from
  // them (16-bit copies, the parts that other ranks have). May run between any two programs.
  Program restore;
  // A step's forwards alone, on data that training does not see; empty unless asked for (CompileOptions).
  Program evaluate;
  std::vector<OptimizerState> optimizer_states = {};  // made by step 0
  // Only on the last stage: fp32 scalars, one per micro-batch; their mean is the step's loss.
  std::vector<Slice> losses;
  BufferId gradient_norm = -1;  // fp32 scalar, when clipping
  std::optional<LossScaling> loss_scaling = {};

  // The program of step 0, 1, …
  const Program& StepProgram(int64_t step) const {
    if (step < static_cast<int64_t>(startup.size())) return startup[step];
    return step < repeats_until ? startup.back() : steady;
  }
  int64_t FirstSteadyStep() const { return std::max(static_cast<int64_t>(startup.size()), repeats_until); }
};

struct ModelStatistics {
  int64_t parameters = 0;
  int64_t frozen_parameters = 0;
  int64_t parameters_without_positions = 0;
  int64_t tokens_per_step = 0;  // over all ranks; samples for an MLP
  // PaLM convention: 6N + 12 L H Q T; 6N for an MLP. N counts only the experts that a token is routed to. A
  // frozen parameter counts 4, since backward computes no gradient of it.
  Flops flops_per_token;
};

// The layers of each pipeline stage, and the schedule of each pipeline rank, including sends and receives.
struct PipelinePlan {
  std::vector<StageRange> stages;
  Schedule schedule;
};

struct Plan {
  // Defined in plan.cc, as Role's.
  Plan();
  Plan(const Plan&);
  Plan(Plan&&) noexcept;
  Plan& operator=(const Plan&);
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  Scenario scenario;
  int world_size = 1;
  DeviceMesh mesh;
  std::vector<Axis> axes;  // axis 0 is the world
  std::vector<Role> roles;
  std::vector<int> role_of_rank;
  std::optional<PipelinePlan> pipeline;  // with more than one stage
  ModelStatistics model;

  // The rank's position among the ranks of the data axis that have different experts.
  int ExpertRankOf(int rank) const {
    const int copy = rank / mesh.tensor() % mesh.copies();
    return copy % static_cast<int>(scenario.parallel.ExpertDataRanks());
  }
  const Role& RoleOf(int rank) const { return roles[role_of_rank[rank]]; }
  // The group whose collectives `stream` of the rank's role carries.
  const Group& GroupOf(int rank, const Stream& stream) const { return axes[stream.axis].GroupOf(rank); }
};

struct CompileOptions {
  bool evaluates = false;  // make Role::evaluate
  int threads = 1;         // the maximum number of threads that compile the roles of a pipeline
  bool checks = true;  // run FindProgramError on the programs; searches over thousands of plans turn it off
  // The plan is only for predictions, and leaves out what these do not use: operators have no operands, and
  // Role::startup has no operators unless memory depends on them.
  bool predicts = false;
  // For callers that compose a steady step from parts (sim/composed), with strategies whose steady step does
  // not depend on the first steps. !starts_up: without Role::startup. !computes: steps without micro-batches,
  // only what is done once per step.
  bool starts_up = true, computes = true;
};

// A pipeline without parallel.pipeline.balance is balanced by a rough estimate (plan/balance.h can do better
// where costs are known).
// Errors: Unsupported for what the step programs do not cover yet (names the key and its value), InvalidInput
// for combinations that cannot be.
Result<Plan> CompilePlan(const Scenario& scenario, const CompileOptions& options = {});

}  // namespace windtunnel
