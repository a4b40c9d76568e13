// What a data-parallel strategy adds to a pipeline rank's step: the operators that it begins with, those before what reads values in its first
// forwards, those around each gradient of its first and last backwards, and those after them. They come from the strategies of plan/, which are called as the model would call them, with all of the
// rank's parameters but none of the model's operators.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

struct StrategyOp {
  int64_t work = 0, host = 0;  // picoseconds
  double efficiency = 1;
  bool holds_multiprocessors = false;
  uint8_t stream = kCompute;
  bool is_marker = false;                          // stands for the model's operator
  bool meets_ranks = false;                        // with those of other stages
  int32_t first_dependency = 0, dependencies = 0;  // into RankStrategy::dependencies
};

struct RankStrategy {
  std::vector<StrategyOp> ops;
  std::vector<int32_t> dependencies;  // operators

  // Around one operator of the model that writes gradients: [begin, marker), the operator, (marker, end).
  struct Group {
    int32_t begin = 0, marker = 0, end = 0;
    int64_t allocates = 0;              // before the operator, bytes that stay until the next step
    int32_t first_late = 0, lates = 0;  // into `late_allocations`
  };
  // The same after the operator: once so many conversions of gradients have followed it.
  struct LateAllocation {
    int32_t conversions = 0;
    int64_t bytes = 0;
  };
  std::vector<LateAllocation> late_allocations;
  int32_t opening = 0;  // operators that the step begins with: gathers of values (overlap_param_gather)
  // Of the first forwards of each of the rank's stages in turn: gathers before [begin, marker) what reads values, which waits, as does what is
  // issued up to the next computation, for what its marker depends on. Empty where values are there.
  std::vector<Group> values;
  // Of the backwards of each of the rank's stages in turn, the last stage first. With one micro-batch both are the same.
  std::vector<Group> first, last;
  // What reduces the gradients of each of the rank's stages where that is left to the schedule (PipelineEvent::reduces): [begin, end).
  struct Reduction {
    int32_t begin = 0, end = 0;
  };
  std::vector<Reduction> reductions;
  bool adds_to_first = false;   // operators that the templates' first backward does not have: padding
  int32_t after_backwards = 0;  // the first operator behind them
  // Operators [sends_from, sends_awaited] wait for all that the rank has sent; the last of them is the first of the compute stream.
  int32_t sends_from = 0, sends_awaited = 0;

  // Operators of the tail that another rank takes no part in, from one on the queue for copies on: how they go on from the moment on when
  // the last kernel before them ends, if by then the host has issued them all and the rest of the device is idle.
  struct Stretch {
    int32_t begin = 0;
    std::vector<int64_t> op_ends;                     // picoseconds since that moment
    std::array<int64_t, kLocalStreams> queue_ends{};  // 0: nothing on it
  };
  std::vector<Stretch> copies;  // without those that could begin earlier

  // Bytes, rounded: allocated when the step begins, and what zero_grad frees then.
  // Without the losses, and without the scratch of the collectives of axes that models use, too: `tensor_scratch`, `expert_scratch`, of so
  // many bytes for what is added here.
  int64_t resident = 0, freed = 0;
  int64_t tensor_scratch = 0, expert_scratch = 0;
  // After the backwards: the peak before the sent messages are freed, what has changed until then, and the peak after.
  int64_t peak_before = 0, net_before = 0, peak_after = 0;
};

// A rank that holds stages, of whose templates each unit comes so often.
struct RankShape {
  std::vector<const StageTemplate*> stages;   // in the model's order
  std::vector<std::vector<LayerUnit>> units;  // of each
  bool has_first = false, has_last = false;  // of the pipeline's stages
};

// `capacity`: when what stays is more, nothing but `resident` (a lower bound) is filled in. Errors: the cost model's.
Result<RankStrategy> MakeRankStrategy(const Scenario& scenario, const RankShape& shape,
                                      const MeshGroups& groups, Costs& costs, int64_t capacity);

}  // namespace windtunnel::composed
