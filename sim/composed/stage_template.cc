#include "sim/composed/stage_template.h"

#include <algorithm>
#include <span>
#include <unordered_map>

#include "base/check.h"
#include "plan/buffer_pool.h"
#include "plan/memory_blocks.h"
#include "sim/composed/small_stage.h"

namespace windtunnel::composed {
namespace {

bool IsMessage(const OpKind& kind) {
  return std::holds_alternative<Send>(kind) || std::holds_alternative<Receive>(kind);
}

bool IsForward(Phase phase) {
  return phase != Phase::kBackward && phase != Phase::kRecompute && phase != Phase::kBackwardWeights;
}

// Takes the small stage's program apart.
class Dissection {
 public:
  Dissection(const Scenario& scenario, const SmallStage& stage, const Program& program,
             const MeshGroups& groups, Costs& costs)
      : stage_(stage), program_(program), groups_(groups), costs_(costs), allocator_(scenario.allocator) {
    const std::vector<Op>& ops = program.ops;
    ordinal_.resize(ops.size(), -1);
    pass_of_.resize(ops.size());
    awaited_.fill(-1);
    is_temporary_.resize(stage.role().buffers.size());
    for (const MemoryOp& op : program.memory)
      if (!op.allocates()) is_temporary_[op.buffer] = true;
    last_use_.resize(stage.role().buffers.size());
    for (size_t index = 0; index < ops.size(); ++index)
      for (const auto* slices : {&ops[index].reads, &ops[index].writes})
        for (const Slice& slice : *slices) last_use_[slice.buffer] = static_cast<OpIndex>(index);
  }

  Status Run(StageTemplate& stage) {
    for (size_t micro_batch : {0, 1}) {
      Passes& passes = passes_[micro_batch];
      if (micro_batch == 1) passes.forward = &stage.forward;  // that of the first is the same
      Backwards& backwards = micro_batch == 0 ? stage.first_backward : stage.backward;
      for (const BackwardKind kind : Kinds())
        passes.backwards[static_cast<size_t>(kind)] = &backwards[static_cast<size_t>(kind)];
      passes.ForEach([&](StagePass& pass) { pass.units.resize(static_cast<size_t>(stage_.units())); });
    }
    const auto on_memory = [&](int32_t index) {
      AddMemory(program_.memory[index]);
      return Ok();
    };
    WT_RETURN_IF_ERROR(WalkProgram(program_, on_memory, [&](OpIndex index) { return Add(index); }));
    for (size_t micro_batch : {0, 1}) {
      for (const BackwardKind kind : Kinds())
        WT_RETURN_IF_ERROR(AddCalls(*passes_[micro_batch].backwards[static_cast<size_t>(kind)],
                                    stage_.calls(static_cast<int>(micro_batch), kind)));
    }
    stage.left = left_;
    return Ok();
  }

 private:
  // A micro-batch's passes; null: left out.
  struct Passes {
    StagePass* forward = nullptr;
    std::array<StagePass*, kBackwardKinds> backwards{};

    template <typename F>
    void ForEach(F f) {
      if (forward != nullptr) f(*forward);
      for (StagePass* backward : backwards)
        if (backward != nullptr) f(*backward);
    }
  };

  struct Seen {
    StagePass* pass = nullptr;
    int32_t number = 0;  // among the pass's operators of the model
  };

  Status Add(OpIndex index) {
    const Op& op = program_.ops[index];
    if (IsMessage(op.kind)) {
      AddMessage(op);
      return Ok();
    }
    if (std::holds_alternative<HostWait>(op.kind)) return AddHostWait(op);
    previous_ = index;
    const LocalStream stream = stage_.LocalOf(op);
    ordinal_[index] = issued_[stream]++;
    StagePass* pass = PassOf(op);
    previous_part_ = nullptr;
    if (pass == nullptr) return Ok();
    Part* part = PartOf(*pass, op);
    TimedOp timed;
    WT_RETURN_IF_ERROR(Cost(op, stream, timed));
    pass_of_[index] = pass;
    WT_RETURN_IF_ERROR(AddDependencies(index, timed));
    timed.is_strategy = op.stage == kOfStrategy;
    timed.has_gradients = op.stage == kWritesGradient;
    if (pass != pass_) {
      pass_ = pass;
      number_ = 0;
    }
    WT_RETURN_IF_ERROR(AddValues(op, timed, part));
    if (!timed.is_strategy) seen_[index] = {pass, number_++};
    sizes_[pass] = number_;
    if (part != nullptr) {
      if (part->awaits_tensor < 0 && stream == kCompute && AwaitsTensor(op, pass))
        part->awaits_tensor = static_cast<int32_t>(part->ops.size());
      part->ops.push_back(timed);
    }
    previous_part_ = part;
    return Ok();
  }

  Status AddHostWait(const Op& op) {
    if (op.dependencies != std::vector<OpIndex>{previous_})
      return Unsupported("a host that waits for what it issued before");
    if (previous_part_ != nullptr) previous_part_->ops.back().holds_host = true;
    return Ok();
  }

  Status Cost(const Op& op, LocalStream stream, TimedOp& timed) {
    timed.stream = stream;
    if (stream == kCompute) {
      WT_ASSIGN_OR_RETURN(const LocalCost cost, costs_.Local(op));
      timed.host = cost.host;
      timed.work = cost.kernel.time;
      timed.beside_communication = cost.kernel.beside_communication;
    } else {
      WT_ASSIGN_OR_RETURN(timed.host, costs_.Host(op));
      const AxisId axis = stream == kTensor ? kTensorAxis : stream == kContext ? kContextAxis : kExpertAxis;
      WT_ASSIGN_OR_RETURN(const TransferCost cost, costs_.Communication(op, axis, groups_.Of(axis)));
      timed.work = cost.time;
      timed.efficiency = cost.efficiency;
      timed.holds_multiprocessors = cost.holds_multiprocessors;
    }
    return Ok();
  }

  // Adds for each queue only the last dependency: what was issued there before it is done by then. Gradients of
  // weights come any time after those of inputs, when what these waited for is done; communication before them
  // follows the last computation, whatever that is.
  Status AddDependencies(OpIndex index, TimedOp& timed) {
    const Op& op = program_.ops[index];
    int32_t last[kModelStreams];  // in its queue
    std::fill(std::begin(last), std::end(last), -1);
    for (OpIndex dependency : op.dependencies) {
      const Op& other = program_.ops[dependency];
      if (IsMessage(other.kind)) continue;
      const LocalStream stream = stage_.LocalOf(other);
      const bool is_last = stream == kCompute && ordinal_[dependency] + 1 == issued_[kCompute];
      if (op.phase == Phase::kBackwardWeights && pass_of_[dependency] != pass_of_[index] && !is_last) {
        if (stream == kCompute || ordinal_[dependency] <= awaited_[stream]) continue;
        return Unsupported("gradients of weights that wait for another pass");
      }
      last[stream] = std::max(last[stream], ordinal_[dependency]);
    }
    for (uint8_t stream = 0; timed.stream == kCompute && stream < kModelStreams; ++stream)
      awaited_[stream] = std::max(awaited_[stream], last[stream]);
    for (uint8_t stream = 0; stream < kModelStreams; ++stream) {
      if (last[stream] < 0) continue;
      const int32_t back = issued_[stream] - 1 - last[stream];
      if (back >= kHistory) return Unsupported("an operator that waits for what was issued long before it");
      timed.dependencies[timed.dependency_count++] = {stream, static_cast<uint8_t>(back)};
    }
    return Ok();
  }

  bool AwaitsTensor(const Op& op, const StagePass* pass) const {
    return std::any_of(op.dependencies.begin(), op.dependencies.end(), [&](OpIndex other) {
      return pass_of_[other] == pass && stage_.LocalOf(program_.ops[other]) == kTensor;
    });
  }

  // Adds the values requested since the previous operator.
  Status AddValues(const Op& op, TimedOp& timed, Part* part) {
    if (op.stage < kAfterValues) return Ok();
    const std::span<const int> asked =
        std::span(stage_.values()).subspan(asked_, static_cast<size_t>(op.stage - kAfterValues) - asked_);
    if (asked.empty() || part == nullptr) return Ok();
    asked_ += asked.size();
    timed.has_values = true;
    std::vector<int>& values = part->values.emplace_back();
    for (int parameter : asked) {
      if (unit_of_[parameter] != stage_.UnitOf(op.layer))
        return Unsupported("values that another layer uses");
      values.push_back(local_[parameter]);
    }
    return Ok();
  }

  // The pass of an Op or MemoryOp; PartOf likewise.
  template <typename AnyOp>
  StagePass* PassOf(const AnyOp& op) const {
    if (op.micro_batch < 0) return nullptr;
    const Passes& passes = passes_[static_cast<size_t>(op.micro_batch)];
    if (IsForward(op.phase)) return passes.forward;
    const BackwardKind kind = op.phase == Phase::kBackwardWeights ? BackwardKind::kWeights
                              : stage_.splits_backwards()         ? BackwardKind::kInputs
                                                                  : BackwardKind::kWhole;
    return passes.backwards[static_cast<size_t>(kind)];
  }

  std::span<const BackwardKind> Kinds() const {
    static constexpr BackwardKind kKinds[] = {BackwardKind::kWhole, BackwardKind::kInputs,
                                              BackwardKind::kWeights};
    return stage_.splits_backwards() ? std::span(kKinds).subspan(1) : std::span(kKinds).first(1);
  }

  template <typename AnyOp>
  Part* PartOf(StagePass& pass, const AnyOp& op) {
    if (&pass != layer_pass_) {
      layer_pass_ = &pass;
      was_in_layers_ = false;
    }
    was_in_layers_ |= op.layer >= 0;
    if (op.layer >= 0) return &pass.units[static_cast<size_t>(stage_.UnitOf(op.layer))];
    return was_in_layers_ ? &pass.after : &pass.before;
  }

  void AddMemory(const MemoryOp& op) {
    StagePass* pass = PassOf(op);
    const BufferId id = op.buffer;
    const bool is_alloc = op.allocates();
    if (pass == nullptr || !is_temporary_[id]) return;
    if ((is_alloc && stage_.IsReceived(id)) || (!is_alloc && stage_.IsSent(id))) return;
    const int64_t bytes = RequestedBytes(stage_.role().buffers[id].bytes, allocator_).count();
    if (is_alloc) unit_of_buffer_[id] = stage_.UnitOf(op.layer);
    if (!is_alloc && !IsForward(op.phase) && EndsForward(last_use_[id])) {
      left_ += op.micro_batch == 1 ? bytes : 0;
      return;
    }
    // Weights that autocast has converted live until the end of the forward, whichever part that is in, or
    // into the backward.
    const bool is_weight = stage_.role().buffers[id].category == Category::kParameters;
    if (!is_alloc && is_weight && IsForward(op.phase)) {
      Part& after = pass->after;
      const auto unit = unit_of_buffer_.find(id);
      after.memory.push_back({static_cast<int32_t>(after.ops.size()), false, -bytes,
                              unit == unit_of_buffer_.end() ? -1 : unit->second});
      return;
    }
    // A buffer is freed right after its last use on the compute stream; after a use elsewhere, before the
    // operator that waits for it.
    const Op& previous = program_.ops[previous_];
    const bool is_after =
        !is_alloc && previous.stream == kComputeStream && Uses(previous, id) && !IsAwaited(op.before, id);
    Part* part = is_after ? previous_part_ : PartOf(*pass, op);
    if (part == nullptr) return;
    const int32_t ops = static_cast<int32_t>(part->ops.size());
    const MemoryChange change{is_after ? ops - 1 : ops, is_after, is_alloc ? bytes : -bytes};
    // A buffer kept until here is freed among those used here, and counts as freed before what follows.
    auto place = part->memory.end();
    while (place != part->memory.begin() && std::prev(place)->op > change.op) --place;
    part->memory.insert(place, change);
  }

  // Whether it is a collective of tensor ranks that a forward ends with.
  bool EndsForward(OpIndex index) const {
    const Op& op = program_.ops[index];
    if (IsMessage(op.kind) || !IsForward(op.phase) || stage_.LocalOf(op) != kTensor) return false;
    do ++index;
    while (IsMessage(program_.ops[index].kind));
    return !IsForward(program_.ops[index].phase);
  }

  // Whether operator `index` waits for communication that uses the buffer.
  bool IsAwaited(int32_t index, BufferId id) const {
    if (index >= static_cast<int32_t>(program_.ops.size())) return false;
    const std::vector<OpIndex>& awaited = program_.ops[index].dependencies;
    return std::any_of(awaited.begin(), awaited.end(), [&](OpIndex other) {
      return program_.ops[other].stream != kComputeStream && Uses(program_.ops[other], id);
    });
  }

  static bool Uses(const Op& op, BufferId id) {
    const auto is_it = [id](const Slice& slice) { return slice.buffer == id; };
    return std::any_of(op.reads.begin(), op.reads.end(), is_it) ||
           std::any_of(op.writes.begin(), op.writes.end(), is_it);
  }

  // Finds the operator that makes what is sent.
  void AddMessage(const Op& op) {
    if (!std::holds_alternative<Send>(op.kind)) return;
    for (OpIndex dependency : op.dependencies) {
      const auto made = seen_.find(dependency);
      if (made == seen_.end()) continue;
      StagePass& pass = *made->second.pass;
      pass.made_by = sizes_.at(&pass) - 1 - made->second.number;
    }
  }

  // Assigns the calls to parts, in the order of the operators that they are around.
  Status AddCalls(StagePass& pass, const std::vector<GradientCalls>& calls) {
    size_t next = 0;
    const auto several = Unsupported("gradients that several operators make");
    std::vector<Part*> parts = {&pass.before};
    for (auto unit = pass.units.rbegin(); unit != pass.units.rend(); ++unit) parts.push_back(&*unit);
    parts.push_back(&pass.after);
    for (Part* part : parts) {
      for (const TimedOp& op : part->ops) {
        if (!op.has_gradients) continue;
        if (next == calls.size()) return several;
        part->gradients.push_back(Local(calls[next++]));
      }
    }
    return next == calls.size() ? Ok() : several;
  }

  GradientCalls Local(GradientCalls calls) const {
    for (int& parameter : calls.gradients) parameter = local_[parameter];
    for (GradientCalls::After& after : calls.after) after.parameter = local_[after.parameter];
    return calls;
  }

 public:
  // By parameter: the unit (-1: none), and the index in calls.
  void SetParameters(std::vector<int> unit_of, std::vector<int> local) {
    unit_of_ = std::move(unit_of);
    local_ = std::move(local);
  }

 private:
  const SmallStage& stage_;
  const Program& program_;
  const MeshGroups& groups_;
  Costs& costs_;
  const AllocatorKind allocator_;
  std::vector<int> unit_of_, local_;
  std::vector<bool> is_temporary_;
  std::vector<OpIndex> last_use_;                     // by buffer
  int64_t left_ = 0;                                  // StageTemplate::left
  std::unordered_map<BufferId, int> unit_of_buffer_;  // the unit that allocated it
  std::array<Passes, 2> passes_;                      // by micro-batch
  int32_t issued_[kModelStreams] = {};
  std::vector<int32_t> ordinal_;  // in its queue
  std::array<int32_t, kModelStreams> awaited_;  // by queue: the ordinal up to which computation has waited
  std::vector<const StagePass*> pass_of_;
  std::unordered_map<OpIndex, Seen> seen_;
  std::unordered_map<const StagePass*, int32_t> sizes_;
  const StagePass* pass_ = nullptr;
  int32_t number_ = 0;
  size_t asked_ = 0;  // number of the stage's values assigned so far
  const StagePass* layer_pass_ = nullptr;
  bool was_in_layers_ = false;
  OpIndex previous_ = 0;
  Part* previous_part_ = nullptr;
};

// Sorts parameters into those before the layers, of each unit, and after the layers, in the order of
// registration.
void SortParameters(const SmallStage& small, StageTemplate& stage, Dissection& dissection) {
  const std::vector<Parameter>& parameters = small.parameters();
  const auto is_of_layer = [&](const Parameter& p, int layer) {
    return p.layer == small.first_layer() + layer;
  };
  stage.units.resize(static_cast<size_t>(small.units()));
  std::vector<int> unit_of, local;
  int layer = 0;
  for (const Parameter& parameter : parameters) {
    if (layer + 1 < small.layers() && is_of_layer(parameter, layer + 1)) ++layer;
    const bool in_layers = is_of_layer(parameter, layer);
    const int unit = in_layers ? small.UnitOf(small.first_layer() + layer) : -1;
    const bool is_before = stage.units.empty() || stage.units[0].empty();
    std::vector<Parameter>& list = in_layers   ? stage.units[static_cast<size_t>(unit)]
                                   : is_before ? stage.head
                                               : stage.tail;
    const size_t before = &list == &stage.tail ? stage.head.size() : 0;
    unit_of.push_back(unit);
    local.push_back(static_cast<int>(before + list.size()));
    Parameter& added = list.emplace_back(parameter);
    added.name.clear();
    added.shape.clear();
    added.whole_shape.clear();
  }
  const int last = std::max(small.layers() - 1, 0);
  WT_CHECK_EQ(layer, last);
  dissection.SetParameters(std::move(unit_of), std::move(local));
}

// The small stage's passes and parameters.
Status Dissect(const Scenario& scenario, SmallStage& small, const MeshGroups& groups, Costs& costs,
               StageTemplate& stage) {
  const Program program = small.Run();
  Dissection dissection(scenario, small, program, groups, costs);
  SortParameters(small, stage, dissection);
  return dissection.Run(stage);
}

Status AddSplitBackwards(const Scenario& scenario, const StageKind& kind, const MeshGroups& groups,
                         Costs& costs, StageTemplate& stage) {
  SmallStage small(scenario, kind, /*splits_backwards=*/true);
  StageTemplate split;
  WT_RETURN_IF_ERROR(Dissect(scenario, small, groups, costs, split));
  for (const auto kind : {BackwardKind::kInputs, BackwardKind::kWeights}) {
    const auto i = static_cast<size_t>(kind);
    stage.first_backward[i] = std::move(split.first_backward[i]);
    stage.backward[i] = std::move(split.backward[i]);
  }
  return Ok();
}

}  // namespace

Result<StageTemplate> MakeStageTemplate(const Scenario& scenario, const StageKind& kind,
                                        const MeshGroups& groups, Costs& costs) {
  StageTemplate stage;
  stage.is_first = kind.is_first;
  stage.is_last = kind.is_last;
  SmallStage small(scenario, kind, /*splits_backwards=*/false);
  WT_RETURN_IF_ERROR(Dissect(scenario, small, groups, costs, stage));
  if (kind.splits_backwards) WT_RETURN_IF_ERROR(AddSplitBackwards(scenario, kind, groups, costs, stage));
  stage.kept = small.kept();
  stage.kept_behind = small.kept_behind();
  stage.message_elements = small.message_elements();
  stage.message = stage.message_part =
      RoundedRequest(SizeOf(TypesOf(scenario.precision).storage) * stage.message_elements).count();
  stage.tensor_scratch = small.ScratchOf(kTensor);
  stage.context_scratch = small.ScratchOf(kContext);
  stage.expert_scratch = small.ScratchOf(kExpert);
  return stage;
}

Result<StageTemplate> WithScatteredMessages(const StageTemplate& whole, int parts, const Scenario& scenario,
                                            const MeshGroups& groups, Costs& costs) {
  const DType type = TypesOf(scenario.precision).storage;
  Op op;
  op.kind = Collective{CollectiveKind::kAllGather, type, whole.message_elements};
  TimedOp gather;
  gather.stream = kTensor;
  gather.gathers_message = true;
  gather.dependencies[0] = {kCompute, 0};  // what came before the pass
  gather.dependency_count = 1;
  WT_ASSIGN_OR_RETURN(gather.host, costs.Host(op));
  WT_ASSIGN_OR_RETURN(const TransferCost cost, costs.Communication(op, kTensorAxis, groups.tensor));
  gather.work = cost.time;
  gather.efficiency = cost.efficiency;
  gather.holds_multiprocessors = cost.holds_multiprocessors;

  StageTemplate stage = whole;
  stage.message_parts = parts;
  stage.message_part = RoundedRequest(SizeOf(type) * (whole.message_elements / parts)).count();
  // The whole message is allocated before the gather, and the received part is freed when the pass's first
  // computation begins.
  const auto gather_in = [&](Part& before) {
    for (MemoryChange& change : before.memory) ++change.op;
    if (before.awaits_tensor >= 0) ++before.awaits_tensor;
    before.memory.insert(before.memory.begin(), {MemoryChange{0, false, stage.message},
                                                 MemoryChange{1, false, -stage.message_part}});
    before.ops.insert(before.ops.begin(), gather);
  };
  if (!stage.is_first) gather_in(stage.forward.before);
  for (Backwards* backwards : {&stage.first_backward, &stage.backward}) {
    for (const BackwardKind kind : {BackwardKind::kWhole, BackwardKind::kInputs})
      if (!stage.is_last) gather_in((*backwards)[static_cast<size_t>(kind)].before);
  }
  return stage;
}

}  // namespace windtunnel::composed
