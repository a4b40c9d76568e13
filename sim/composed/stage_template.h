// The operators of a stage's forward and backward, by parts that repeat: what comes before the layers, each unit of layers, what comes
// after. They are what the models of plan/ make of a small stage (stage_layers.h), hooks and all; a stage is put together from them.
//
//   forward   before, first layer, (k - 1) x next layer, after            of k layers that are alike
//   backward  before, (k - 1) x next layer, first layer, after
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "scenarios/scenario.h"
#include "sim/composed/costs.h"
#include "sim/composed/mesh_groups.h"
#include "sim/composed/stage_layers.h"

namespace windtunnel::composed {

// The queues of a rank's device, beside those of messages. Models use the first ones.
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
// How many operators of a queue, counted from the last that was issued there, others may wait for.
inline constexpr int kHistory = 32;

// An operator of a queue, without names and buffers.
struct TimedOp {
  int64_t work = 0, host = 0;  // picoseconds
  double efficiency = 1;       // of kernels beside it
  double beside_communication = 0;     // of a kernel, as KernelCost's
  bool holds_multiprocessors = false;  // of communication, as CommunicationCost's
  uint8_t stream = kCompute;
  // Added by the strategy of the small stage: in a stage of another size, or at the step's end, that adds operators of its own.
  bool is_strategy = false;
  bool has_gradients =
      false;  // it writes gradients: the strategy is called before and after (GradientCalls, in order)
  bool has_values =
      false;  // of a forward: values of parameters are asked for before it (Part::values, in order)
  bool gathers_message = false;  // the pass's first computation waits for it
  bool holds_host = false;       // the host goes on when it has ended
  // Of other queues: the operator so many before the last issued there (0: the last).
  struct Dependency {
    uint8_t stream;
    uint8_t back;
  };
  std::array<Dependency, kModelStreams> dependencies{};
  uint8_t dependency_count = 0;
};

// A change of what is allocated, rounded as allocators do: before or after an operator of the part.
struct MemoryChange {
  int32_t op = 0;
  bool is_after = false;
  int64_t bytes = 0;  // negative: freed
  int32_t of_unit = -1;  // as often as the unit comes: what it leaves until the forward ends
};

// What a module asks of the strategy around one operator, by parameters of the part (StageTemplate says which those are).
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
  std::vector<std::vector<int>>
      values;  // of the operators with has_values: Values(), by parameters of the part
};

struct StagePass {
  Part before, after;
  std::vector<Part> units;  // in the model's order, which backwards go through from behind
  // The operator, counted from the end without the strategy's, whose end makes the message to the next stage; -1: there is none.
  int made_by = -1;
};

struct StageTemplate {
  bool is_first = true, is_last = true;
  StagePass forward;
  StagePass first_backward;  // of a step: gradients do not hold anything yet
  StagePass backward;
  // Parameters: `head` before the layers (embeddings), those of each unit, `tail` (norm, head). Indices in calls: of the unit within it;
  // of others i, or head.size() + i for the tail.
  std::vector<Parameter> head, tail;
  std::vector<std::vector<Parameter>> units;
  int64_t message_elements = 0;           // that stages hand to each other
  int message_parts = 1;                  // of which a rank sends one
  int64_t message = 0, message_part = 0;  // bytes, rounded: of all, and of what is sent
  int64_t tensor_scratch = 0, context_scratch = 0, expert_scratch = 0;  // bytes, of the axes' collectives
  // By unit, bytes of what the model keeps beside its parameters (Model::kept_buffers); and for what is behind the last layer, in a buffer of
  // its own.
  std::vector<int64_t> kept;
  int64_t kept_behind = 0;
};

// Of a stage, what its template depends on, and how often each of its units comes, which it does not depend on.
struct StageKind {
  bool is_first = true, is_last = true;
  StageLayers layers;

  auto operator<=>(const StageKind&) const = default;
};

// Of `scenario`'s micro-batch, tensor, context and expert parallelism, recomputation, precision and data.kind; what else it says does not matter.
// Errors: the cost model's, Unsupported where the stage is not made of such parts.
Result<StageTemplate> MakeStageTemplate(const Scenario& scenario, const StageKind& kind,
                                        const MeshGroups& groups, Costs& costs);

// The same with messages in so many parts, which passes gather first (plan/message_protocol.h). Errors: the cost model's.
Result<StageTemplate> WithScatteredMessages(const StageTemplate& whole, int parts, const Scenario& scenario,
                                            const MeshGroups& groups, Costs& costs);

}  // namespace windtunnel::composed
