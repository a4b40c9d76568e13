// A scenario, compiled: the programs of every role. Both executors, the cost model and all reports work from a Plan.
//
//   WT_ASSIGN_OR_RETURN(Plan plan, CompilePlan(scenario));
//   for (int step = 0; step < n; ++step) execute(plan.roles[0].StepProgram(step));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/step_program.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// A trainable tensor, in registration order.
struct Parameter {
  std::string name;            // "blocks.0.attn.qkv.weight"
  std::vector<int64_t> shape;  // row-major
  int64_t elements = 0;
  BufferId buffer = -1;    // the values
  Slice gradient;          // where its gradient is when the optimizer runs
};

// Ranks that execute the same programs.
struct Role {
  std::string name;        // "replica"
  std::vector<int> ranks;  // ascending
  std::vector<Stream> streams;
  std::vector<Buffer> buffers;
  std::vector<Parameter> parameters;
  Program initialize;           // parameters, initial broadcast, first buckets
  std::vector<Program> startup;  // the first steps, where they differ from the steady one
  Program steady;
  std::vector<Slice> losses;  // fp32 scalars, one per micro-batch; their mean is the step's loss
  BufferId gradient_norm = -1;  // fp32 scalar, when clipping

  // Of step 0, 1, …
  const Program& StepProgram(int64_t step) const {
    return step < static_cast<int64_t>(startup.size()) ? startup[step] : steady;
  }
};

struct ModelStatistics {
  int64_t parameters = 0;
  int64_t parameters_without_positions = 0;
  int64_t tokens_per_step = 0;   // over all ranks; samples for an MLP
  Flops flops_per_token;         // PaLM convention: 6N + 12 L H Q T; 6N for an MLP
};

struct Plan {
  Scenario scenario;
  int world_size = 1;
  std::vector<Axis> axes;  // axis 0 is the world
  std::vector<Role> roles;
  std::vector<int> role_of_rank;
  ModelStatistics model;

  const Role& RoleOf(int rank) const { return roles[role_of_rank[rank]]; }
  // The group whose collectives `stream` of the rank's role carries.
  const Group& GroupOf(int rank, const Stream& stream) const { return axes[stream.axis].GroupOf(rank); }
};

// Errors: Unsupported for what the step programs do not cover yet (names the key and its value), InvalidInput for
// combinations that cannot be.
Result<Plan> CompilePlan(const Scenario& scenario);

}  // namespace windtunnel
