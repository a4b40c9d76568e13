// A scenario, compiled: the programs of every role. Both executors, the cost model and all reports work from a Plan.
//
//   WT_ASSIGN_OR_RETURN(Plan plan, CompilePlan(scenario));
//   for (int step = 0; step < n; ++step) execute(plan.roles[0].StepProgram(step));
#pragma once

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

// A parameter's first values.
struct ParameterInit {
  InitializeParameter::Distribution distribution = InitializeParameter::Distribution::kZeros;
  double scale = 0;
};

// Where a tensor's elements are. Whole: `elements` of the buffer from `offset` on, on every rank. Sharded (per_rank > 0): the
// tensor lies from element `start` on in a flat tensor, of which rank r of its group on `axis` holds the elements
// [r per_rank, (r + 1) per_rank), in the buffer from `offset` on.
struct Placement {
  BufferId buffer = -1;
  int64_t offset = 0;
  int64_t per_rank = 0;
  int64_t start = 0;
  AxisId axis = 0;
  bool in_whole =
      false;  // sharded, but each rank's part is where it belongs in a buffer of the whole flat tensor
};

// The part of a sharded tensor that rank `position` of its group holds: elements [first, first + elements) of the tensor,
// from element `offset` of the buffer on. All of it where it is whole; no elements where the rank has none.
struct LocalPart {
  int64_t first = 0, elements = 0, offset = 0;
};
LocalPart PartOn(const Placement& placement, int64_t tensor_elements, int position);

// A trainable tensor, in registration order.
struct Parameter {
  std::string name;            // "blocks.0.attn.qkv.weight"
  std::vector<int64_t> shape;  // row-major
  int64_t elements = 0;
  ParameterInit init;
  Placement values;     // that the optimizer updates (fp32), between steps
  int64_t ordinal = 0;  // in the registration order of the whole model, of which the role may hold a stage
  int layer = -1;       // of the model's, that it is a part of; -1: of none
  // Tied weights in two pipeline stages: another role has the parameter, too, and their gradients are summed. The copy counts
  // neither in the model's size nor in the gradients' norm.
  bool is_shared = false, is_copy = false;
  // With tensor parallelism all else here is of the rank's part, which lies in a tensor of `whole_shape` as `part` says; where `part`
  // is empty every tensor rank has the whole. Is its gradient then a sum over the tensor axis, to be made before the update?
  std::vector<int64_t> whole_shape = {};
  TensorPart part = {};
  bool is_partial_gradient = false;
  // With expert parallelism, of experts: the part begins this much further in the whole for each rank of the data axis that has others.
  // Such gradients are added up over the ranks with the same experts only.
  int64_t expert_stride = 0;
  bool is_of_experts() const { return expert_stride > 0; }
};
// Of the whole tensor.
int64_t WholeElements(const Parameter& parameter);

// What the optimizer keeps of parameters between steps: element i of `state` is of the value that is element i of `values`.
struct OptimizerState {
  std::string name;  // as in torch.optim: "exp_avg", "exp_avg_sq"; "momentum"
  Slice values, state;
};

// Of a role whose loss is scaled (plan/loss_scaling.h).
struct LossScaling {
  Slice numbers,
      found_inf;     // kLossScaleNumbers of fp32 (plan/op.h), and whether this step's gradients overflowed
  double first = 0;  // the scale of the first step
  UpdateLossScale update;
};

// The numbers between steps.
struct LossScaleState {
  double scale = 0;
  int64_t growth_tracker = 0, skipped_steps = 0;
  bool operator==(const LossScaleState&) const = default;
};

// Ranks that execute the same programs.
struct Role {
  // Made and copied in one place, not in every file that has one.
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
  std::vector<Program> startup;  // the first steps, where they differ from the steady one
  Program steady;
  // When the values between steps (Parameter::values) have been replaced, makes from them what else holds them: 16-bit copies, the
  // parts that other ranks have. Between any two programs.
  Program restore;
  // Forward alone, of a step's micro-batches, on data that training does not see; empty unless asked for (CompileOptions).
  Program evaluate;
  std::vector<OptimizerState> optimizer_states = {};  // that step 0 makes
  std::vector<Slice>
      losses;  // fp32 scalars, one per micro-batch; their mean is the step's loss. Of the last stage only
  BufferId gradient_norm = -1;  // fp32 scalar, when clipping
  std::optional<LossScaling> loss_scaling = {};

  // Of step 0, 1, …
  const Program& StepProgram(int64_t step) const {
    return step < static_cast<int64_t>(startup.size()) ? startup[step] : steady;
  }
};

struct ModelStatistics {
  int64_t parameters = 0;
  int64_t parameters_without_positions = 0;
  int64_t tokens_per_step = 0;  // over all ranks; samples for an MLP
  Flops
      flops_per_token;  // PaLM convention: 6N + 12 L H Q T; 6N for an MLP. N: of experts those that a token sees
};

// Pipeline stages: which layers each has, and what each pipeline rank does when (its sends and receives included).
struct PipelinePlan {
  std::vector<StageRange> stages;
  Schedule schedule;
};

struct Plan {
  // Made and copied in one place, not in every file that has one.
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

  // The rank's position among those of the data axis that have different experts.
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
  int threads = 1;         // at most, on which the roles of a pipeline's stages are made
  bool checks = true;      // the programs made, by FindProgramError: not for those of thousands of plans that are evaluated once
  // Nothing will run it: without what predictions do not look at. Operators have no operands, and Role::startup has no operators unless memory
  // depends on them.
  bool predicts = false;
  // For who puts a steady step together of parts (sim/composed), of strategies that learn nothing from the first steps: without
  // Role::startup; of all steps what is done once alone, without micro-batches.
  bool starts_up = true, computes = true;
};

// A pipeline without parallel.pipeline.balance is balanced by a rough estimate (plan/balance.h can do better where costs are known).
// Errors: Unsupported for what the step programs do not cover yet (names the key and its value), InvalidInput for
// combinations that cannot be.
Result<Plan> CompilePlan(const Scenario& scenario, const CompileOptions& options = {});

}  // namespace windtunnel
