// The operators of a stage's forward and backward, in parts that repeat: before the layers, each unit of
// layers, after the layers. The models of plan/ add them for a small stage (stage_layers.h), with all hooks;
// a whole stage is assembled from them.
//
//   forward   before, first layer, (k - 1) x next layer, after            of k layers that are alike
//   backward  before, (k - 1) x next layer, first layer, after
//
// The backwards of inputs and of weights have the same parts.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "scenarios/scenario.h"
#include "sim/composed/backward_kind.h"
#include "sim/composed/costs.h"
#include "sim/composed/mesh_groups.h"
#include "sim/composed/stage_layers.h"

namespace windtunnel::composed {

// The queues of a rank's device, without those of messages. Models use the first kModelStreams.
enum LocalStream : uint8_t {
  kCompute,
  kTensor,
  kContext,
  kExpert,
  kData,
  kExpertData,
  kExpertPart,
  kCopies,
  kPipeline,
  kEmbedding,
  kWorld
};
inline constexpr int kLocalStreams = 11, kModelStreams = 4;
// Operators may wait for one of the last kHistory operators that have been issued to a queue.
inline constexpr int kHistory = 32;

// An operator of a queue, without names and buffers.
struct TimedOp {
  int64_t work = 0, host = 0;          // picoseconds
  double efficiency = 1;               // of kernels beside it
  double beside_communication = 0;     // of a kernel, as KernelCost's
  bool holds_multiprocessors = false;  // of communication, as CommunicationCost's
  uint8_t stream = kCompute;
  // Added by the small stage's strategy. In a stage of another size, or at the step's end, the strategy adds
  // other operators.
  bool is_strategy = false;
  // It writes gradients: the strategy is called before and after it (GradientCalls, in order).
  bool has_gradients = false;
  // In a forward: values of parameters are requested before it (Part::values, in order).
  bool has_values = false;
  bool gathers_message = false;  // the pass's first computation waits for it
  bool holds_host = false;       // the host waits for its end
  // On an operator of a queue, `back` operators before the last one issued there (0: the last).
  struct Dependency {
    uint8_t stream;
    uint8_t back;
  };
  std::array<Dependency, kModelStreams> dependencies{};
  uint8_t dependency_count = 0;
};

// A change of the allocated memory before or after an operator of the part, rounded as allocators do.
struct MemoryChange {
  int32_t op = 0;
  bool is_after = false;
  int64_t bytes = 0;  // negative: freed
  // >= 0: made as often as that unit occurs, for memory that it leaves allocated until the forward ends.
  int32_t of_unit = -1;
};

// A module's calls of the strategy around one operator. Parameters are indices in the part (StageTemplate).
struct GradientCalls {
  std::vector<int> gradients;  // Gradient(), before it
  struct After {
    int parameter;
    bool is_ready;  // Ready() rather than Wrote()
  };
  std::vector<After> after;
};

struct Part {
  std::vector<TimedOp> ops;
  std::vector<MemoryChange> memory;
  std::vector<GradientCalls> gradients;  // of the operators with has_gradients
  // Of the operators with has_values: calls of Values(), by parameters of the part.
  std::vector<std::vector<int>> values;
  // The first computation that waits for a collective of tensor ranks in the same pass; -1: none. It frees what
  // actions before it have left to tensor ranks (StageTemplate::left).
  int32_t awaits_tensor = -1;
};

struct StagePass {
  Part before, after;
  std::vector<Part> units;  // in the model's order; backwards go through them in reverse
  // The operator whose end makes the message to the next stage, counted from the pass's end without the
  // strategy's operators; -1: there is none.
  int made_by = -1;
};

// By BackwardKind.
using Backwards = std::array<StagePass, kBackwardKinds>;

struct StageTemplate {
  bool is_first = true, is_last = true;
  StagePass forward;
  Backwards first_backward;  // the first of its kind in a step: gradients hold no values yet
  Backwards backward;
  // Parameters: `head` before the layers (embeddings), those of each unit, `tail` (norm, head). In calls, a
  // unit's parameters are indexed within the unit. Of the others, index i is in `head`, and head.size() + i
  // in `tail`. All are without names and shapes, which strategies do not need.
  std::vector<Parameter> head, tail;
  std::vector<std::vector<Parameter>> units;
  int64_t message_elements = 0;           // of a whole message between stages
  int message_parts = 1;                  // a rank sends one of so many parts
  int64_t message = 0, message_part = 0;  // bytes, rounded: the whole message, and the part that is sent
  int64_t tensor_scratch = 0, context_scratch = 0, expert_scratch = 0;  // bytes, of the axes' collectives
  // Bytes, rounded, that a forward's last operator, a collective of tensor ranks, uses. Nothing in the forward
  // waits for it, so they stay allocated until some action's Part::awaits_tensor. (A stage that is only an
  // embedding whose tokens tensor ranks divide: what the reduce-scatter reads.)
  int64_t left = 0;
  // Bytes that the model keeps beside its parameters (Model::kept_buffers): by unit, and for what follows the
  // last layer, in a buffer of its own.
  std::vector<int64_t> kept;
  int64_t kept_behind = 0;
};

// A kind of stage. Its template depends on everything here except how often each unit occurs.
struct StageKind {
  bool is_first = true, is_last = true;
  bool splits_backwards = false;  // the template also has the backwards of inputs and of weights
  StageLayers layers;

  auto operator<=>(const StageKind&) const = default;
};

// Depends on `scenario`'s cluster, model, micro-batch, tensor, context and expert parallelism, recomputation,
// precision and data.kind, and with Megatron-Core's fp8 on the number of micro-batches. Errors: the cost
// model's; Unsupported if the stage does not consist of such parts.
Result<StageTemplate> MakeStageTemplate(const Scenario& scenario, const StageKind& kind,
                                        const MeshGroups& groups, Costs& costs);

// The same with messages in `parts` parts, which passes gather first (plan/message_protocol.h). Errors: the
// cost model's.
Result<StageTemplate> WithScatteredMessages(const StageTemplate& whole, int parts, const Scenario& scenario,
                                            const MeshGroups& groups, Costs& costs);

}  // namespace windtunnel::composed
