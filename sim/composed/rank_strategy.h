// The operators that a data-parallel strategy adds to a pipeline rank's step: at its beginning, before
// operators that read values in its first forwards, around each gradient of its first and last backwards, and
// after the backwards. They come from the strategies of plan/, which are called as the model would call them,
// with all of the rank's parameters but none of the model's operators.
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
  bool meets_ranks = false;                        // communicates with ranks of other stages
  int32_t first_dependency = 0, dependencies = 0;  // into RankStrategy::dependencies
};

struct RankStrategy {
  bool is_whole = true;  // false: it does not fit, and only `resident` (a lower bound) is known
  std::vector<StrategyOp> ops;
  std::vector<int32_t> dependencies;  // indices of operators

  // One operator of the model that writes gradients, and the operators around it: [begin, marker) before it,
  // (marker, end) after it.
  struct Group {
    int32_t begin = 0, marker = 0, end = 0;
    int64_t allocates = 0;              // bytes, before the operator; they stay until the next step
    int32_t first_late = 0, lates = 0;  // into `late_allocations`
  };
  // An allocation after the operator that stays, too: made once `conversions` conversions of gradients have
  // followed it.
  struct LateAllocation {
    int32_t conversions = 0;
    int64_t bytes = 0;
  };
  std::vector<LateAllocation> late_allocations;
  int32_t opening = 0;  // number of operators that begin the step: gathers of values (overlap_param_gather)
  // For the first forwards of the rank's stages, in order: the gathers [begin, marker) before an operator
  // that reads values. That operator, and everything that is issued up to the next computation, waits for
  // what the marker depends on. Empty if values are there already.
  std::vector<Group> values;
  // For the first and the last backwards of the rank's stages, in the order of RankShape::passes. With one
  // micro-batch both are the same.
  std::vector<Group> first, last;
  // By stage of the rank: the operators [begin, end) that reduce its gradients, if the schedule decides when
  // (PipelineEvent::reduces).
  struct Reduction {
    int32_t begin = 0, end = 0;
  };
  std::vector<Reduction> reductions;
  bool adds_to_first = false;   // it has operators that the templates' first backward lacks: padding
  int32_t after_backwards = 0;  // the first operator after the backwards
  // Operators [sends_from, sends_awaited] wait for all messages that the rank has sent. The last of them is
  // the first on the compute stream.
  int32_t sends_from = 0, sends_awaited = 0;

  // A stretch of the tail in which no other rank takes part, beginning with an operator on the copy queue.
  // Its times are relative to the end of the last kernel before it. They hold if the host has issued the
  // whole stretch by then and the rest of the device is idle.
  struct Stretch {
    int32_t begin = 0;
    std::vector<int64_t> op_ends;                     // picoseconds
    std::array<int64_t, kLocalStreams> queue_ends{};  // 0: nothing on it
  };
  std::vector<Stretch> copies;  // without stretches that could begin before that kernel ends

  // Bytes, rounded as the allocator rounds them: `resident` is allocated when the step begins, of which
  // zero_grad frees `freed`. This is without the losses, and without the scratch of collectives on axes that
  // models use, too. Of that scratch, the operators here need `tensor_scratch` and `expert_scratch` bytes
  // (not rounded).
  int64_t resident = 0, freed = 0;
  int64_t tensor_scratch = 0, expert_scratch = 0;
  // Bytes, after the backwards: the peak and the net change until the sent messages are freed, and the peak
  // after that.
  int64_t peak_before = 0, net_before = 0, peak_after = 0;
};

// The stages of a rank: their templates, and how often each unit occurs.
struct RankShape {
  std::vector<const StageTemplate*> stages;   // in the model's order
  std::vector<std::vector<LayerUnit>> units;  // by stage
  PassOrder passes;
  bool has_first = false, has_last = false;   // the pipeline's first or last stage is among them
};

// If the memory that stays between steps is more than `capacity`, the strategy is not whole. Errors: the cost
// model's.
Result<RankStrategy> MakeRankStrategy(const Scenario& scenario, const RankShape& shape,
                                      const MeshGroups& groups, Costs& costs, int64_t capacity);

}  // namespace windtunnel::composed
