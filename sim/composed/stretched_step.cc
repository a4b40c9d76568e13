#include "sim/composed/stretched_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "plan/buffer_pool.h"
#include "plan/plan.h"
#include "sim/composed/step_tape.h"

namespace windtunnel::composed {
namespace {

// The numbers of units of layers and of micro-batches that are compiled for a longer model and a longer step.
// The middle one stands for those that are left out. A middle unit equals those on both sides of it, a middle
// micro-batch the one after it. A unit is one layer or several.
struct Units {
  int64_t all = 7, middle = 3;
};
// Activations on the host are freed two blocks later, and the first block's are others than those behind it.
Units UnitsToCompile(const Scenario& scenario) { return scenario.activation_offload ? Units{8, 4} : Units{}; }
constexpr int64_t kMicroBatches = 5, kMiddleMicroBatch = 2;

// How the model's layers repeat, in the order of the model: `before` layers without experts, then `units`
// equal units of `unit` layers (the period of the layers' kinds), then `behind` layers that are left.
struct Rhythm {
  int64_t before = 0, unit = 1, units = 0, behind = 0;

  int64_t layers() const { return before + unit * units + behind; }
};
Rhythm RhythmOf(const ModelSpec& model) {
  Rhythm rhythm;
  if (model.MixesExperts()) rhythm.before = std::min(model.experts->first_dense, model.layers);
  rhythm.unit = model.LayerPeriod();
  const int64_t others = model.layers - rhythm.before;
  rhythm.units = others / rhythm.unit;
  rhythm.behind = others % rhythm.unit;
  return rhythm;
}

bool IsScratch(const Buffer& buffer) { return buffer.use == BufferUse::kCollectiveScratch; }

int64_t Requested(const Buffer& buffer, AllocatorKind allocator) {
  return buffer.space == MemorySpace::kDevice ? RequestedBytes(buffer.bytes, allocator).count() : 0;
}

// The net of a program's allocations and frees, over the buffers for which `counts` is true.
template <typename Counts>
int64_t NetOf(const Program& program, const Role& role, AllocatorKind allocator, Counts counts) {
  int64_t net = 0;
  for (const MemoryOp& op : program.memory) {
    const Buffer& buffer = role.buffers[op.buffer];
    if (!counts(buffer)) continue;
    net += op.allocates() ? Requested(buffer, allocator) : -Requested(buffer, allocator);
  }
  return net;
}

std::string NameOf(const Role& role, const TapeItem& item) {
  if (item.kind != TapeItem::Kind::kIssue) return "";
  const Op& op = role.steady.ops[item.op];
  return fmt::format("{} {}", OperatorName(op.kind), op.stream);
}

bool IsIssuedOrHost(const TapeItem& item) {
  return item.kind == TapeItem::Kind::kIssue || item.kind == TapeItem::Kind::kHost;
}

// The first item that does not free memory.
size_t EndOfHead(const StepTape& tape) {
  const auto end = std::find_if(tape.items.begin(), tape.items.end(), [](const TapeItem& item) {
    return item.kind != TapeItem::Kind::kMemory || item.amount > 0;
  });
  return static_cast<size_t>(end - tape.items.begin());
}

// The micro-batch, pass and layer of an item. Items between micro-batches belong to the one before.
struct Label {
  int32_t micro_batch = -1;
  bool is_backward = false;
  int32_t layer = -1;  // -1: before, between or after the layers
  bool operator==(const Label&) const = default;
};

// The layer in a name such as "blocks.3 shard.grad", which a strategy gives to what it does with a layer's
// parameters outside the model's passes. -1: none.
int32_t LayerNamedIn(std::string_view name) {
  constexpr std::string_view kPrefix = "blocks.";
  int32_t layer = -1;
  if (name.starts_with(kPrefix))
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

// For an Op or MemoryOp.
template <typename AnyOp>
Label LabelOf(const AnyOp& op, std::string_view name) {
  const bool is_forward = op.phase == Phase::kForward || op.phase == Phase::kLoss;
  return {op.micro_batch, !is_forward, op.layer >= 0 ? op.layer : LayerNamedIn(name)};
}

Label LabelOf(const Role& role, const TapeItem& item) {
  if (item.kind != TapeItem::Kind::kMemory) {
    const Op& op = role.steady.ops[item.op];
    return LabelOf(op, op.name);
  }
  const MemoryOp& op = role.steady.memory[item.op];
  return LabelOf(op, role.buffers[op.buffer].name);
}

// Items in a row with the same label.
struct Part {
  size_t begin = 0, end = 0;
  Label label;
};

class Stretcher {
 public:
  Stretcher(const Scenario& scenario, const OncePerStep& once, int64_t capacity)
      : scenario_(scenario), once_(once), capacity_(capacity) {}

  Result<StretchedStep> Run(const CostModel& model) {
    if (once_.resident > capacity_) return StretchedStep{once_.resident, {}};
    Scenario shorter = scenario_;
    rhythm_ = RhythmOf(scenario_.model);
    rhythm_.units = std::min(rhythm_.units, units_.all);
    shorter.model.layers = rhythm_.layers();
    if (scenario_.batch.accumulate > kMicroBatches) shorter.batch.accumulate = kMicroBatches;
    WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(shorter, {.checks = false, .starts_up = false}));
    role_ = &plan.roles.at(0);
    more_units_ = (scenario_.model.layers - shorter.model.layers) / rhythm_.unit;
    more_micro_batches_ = scenario_.batch.accumulate - shorter.batch.accumulate;
    WT_ASSIGN_OR_RETURN(TapedPlan taped, TapeOf(plan, model));
    tape_ = std::move(taped.tape);
    WT_RETURN_IF_ERROR(FindParts());
    WT_RETURN_IF_ERROR(TakeOnce());
    level_ = peak_ = Resident();
    level_ -= once_.freed;
    WT_RETURN_IF_ERROR(Emit());
    if (peak_ > capacity_) return StretchedStep{peak_, {}};
    WT_ASSIGN_OR_RETURN(const Duration time, RunTape(long_, taped.schedule));
    return StretchedStep{peak_, time};
  }

 private:
  int64_t Resident() const {
    const AllocatorKind allocator = scenario_.allocator;
    int64_t resident = once_.resident;
    for (const MemoryOp& op : role_->initialize.memory) {
      if (!op.allocates()) continue;
      const Buffer& buffer = role_->buffers[op.buffer];
      if (!IsScratch(buffer) || buffer.space != MemorySpace::kDevice) continue;
      const auto other = once_.scratch.find(buffer.name);
      const Bytes bytes = other == once_.scratch.end() ? buffer.bytes : std::max(buffer.bytes, other->second);
      resident += RequestedBytes(bytes, allocator).count();
    }
    return resident + RequestedBytes(SizeOf(DType::kFloat32) * scenario_.batch.accumulate, allocator).count();
  }

  // Divides the tape into the head, the micro-batches with their parts, and the tail.
  Status FindParts() {
    begin_ = EndOfHead(tape_);
    end_ = tape_.items.size();
    for (size_t left = once_.items.size(); left > 0;) {
      if (end_ == begin_) return Unsupported("operators once a step that cannot be told apart");
      left -= IsIssuedOrHost(tape_.items[--end_]) ? 1 : 0;
    }
    Label last;
    for (size_t i = begin_; i < end_; ++i) {
      const TapeItem& item = tape_.items[i];
      Label label = last;
      if (item.kind != TapeItem::Kind::kWait) {
        label = LabelOf(*role_, item);
        if (label.micro_batch < 0) label = {last.micro_batch, last.is_backward, label.layer};
      }
      if (label.micro_batch < last.micro_batch) return Unsupported("micro-batches beside each other");
      if (parts_.empty() || label != last) parts_.push_back({i, i, label});
      parts_.back().end = i + 1;
      last = label;
    }
    return Ok();
  }

  // The tail has the same operators with fewer layers, but other sizes, which are taken from `once_`.
  Status TakeOnce() {
    std::set<std::string_view> allocated, freed;
    for (size_t i = begin_; i < tape_.items.size(); ++i) {
      TapeItem& item = tape_.items[i];
      if (item.kind == TapeItem::Kind::kMemory) TakeSize(item, item.amount > 0 ? allocated : freed);
    }
    size_t next = 0;
    for (size_t i = end_; i < tape_.items.size(); ++i) {
      TapeItem& item = tape_.items[i];
      if (!IsIssuedOrHost(item)) continue;
      const OncePerStep::Item& own = once_.items[next++];
      if (own.name != NameOf(*role_, item)) return Unsupported("other operators once a step");
      item.amount = own.amount;
      item.efficiency = own.efficiency;
      item.holds_multiprocessors = own.holds_multiprocessors;
    }
    return Ok();
  }

  // Temporaries of one name are allocated together and freed together: the first stands for all of them.
  void TakeSize(TapeItem& item, std::set<std::string_view>& seen) const {
    const MemoryOp& op = role_->steady.memory[item.op];
    if (op.micro_batch >= 0 || item.amount == 0) return;
    const auto temporary = once_.temporaries.find(role_->buffers[op.buffer].name);
    if (temporary == once_.temporaries.end()) return;
    const int64_t bytes = seen.insert(temporary->first).second ? temporary->second : 0;
    item.amount = item.amount > 0 ? bytes : -bytes;
  }

  // ---- the longer tape ------------------------------------------------------------------------------------

  Status Emit() {
    long_.queues = tape_.queues;
    places_.resize(static_cast<size_t>(tape_.queues));
    issued_.resize(static_cast<size_t>(tape_.queues));
    CountIssued();
    // Indices in the longer tape: the micro-batch that is repeated, and the one after it.
    size_t middle = 0, middle_end = 0, next = 0;
    for (size_t i = 0; i < parts_.size();) {
      const int32_t micro_batch = parts_[i].label.micro_batch;
      const size_t begin = long_.items.size(), first = i;
      const int64_t level = level_;
      while (i < parts_.size() && parts_[i].label.micro_batch == micro_batch) {
        const LayerPass pass = PassFrom(i);
        if (pass.end > i) {
          WT_RETURN_IF_ERROR(EmitPass(pass));
          i = pass.end;
        } else if (more_units_ > 0 && IsOfMiddle(parts_[i].label.layer)) {
          return Unsupported("layers that some of the step leaves out");
        } else {
          EmitPart(i++);
        }
        if (peak_ > capacity_) return Ok();
      }
      if (more_micro_batches_ > 0 && micro_batch == kMiddleMicroBatch) {
        if (level_ != level) return Unsupported("micro-batches that keep memory");
        middle = begin;
        middle_end = long_.items.size();
        Repeat(middle, more_micro_batches_, parts_[first].begin, parts_[i - 1].end);
        next = long_.items.size();
      } else if (more_micro_batches_ > 0 && micro_batch == kMiddleMicroBatch + 1) {
        const std::span<const TapeItem> all(long_.items);
        if (!AreAlike(long_, all.subspan(middle, middle_end - middle), all.subspan(next)))
          return Unsupported("micro-batches that are not alike");
      }
      if (peak_ > capacity_) return Ok();
    }
    for (size_t i = end_; i < tape_.items.size(); ++i) EmitItem(i);
    return Ok();
  }

  void CountIssued() {
    std::vector<int32_t> issued(static_cast<size_t>(tape_.queues));
    issued_before_.reserve((tape_.items.size() + 1) * issued.size());
    for (const TapeItem& item : tape_.items) {
      issued_before_.insert(issued_before_.end(), issued.begin(), issued.end());
      if (item.kind == TapeItem::Kind::kIssue) ++issued[item.queue];
    }
    issued_before_.insert(issued_before_.end(), issued.begin(), issued.end());
  }
  // The number of operators of the queue that the tape issues before item `i`.
  int32_t IssuedBefore(size_t i, int32_t queue) const {
    return issued_before_[i * static_cast<size_t>(tape_.queues) + static_cast<size_t>(queue)];
  }

  void EmitPart(size_t part) {
    for (size_t i = parts_[part].begin; i < parts_[part].end; ++i) EmitItem(i);
  }

  // Parts of consecutive layers, ascending or descending, which include all layers that repeat.
  struct LayerPass {
    size_t begin = 0, end = 0;
    size_t middle = 0;  // where the middle unit begins
  };
  // The pass that begins with part `begin`; empty if there is none.
  LayerPass PassFrom(size_t begin) const {
    const Label first = parts_[begin].label;
    const auto last = static_cast<int32_t>(rhythm_.layers()) - 1,
               repeats = static_cast<int32_t>(rhythm_.before);
    const bool ascends = first.layer <= repeats;
    if (first.layer < 0 || (!ascends && first.layer != last)) return {begin, begin, begin};
    size_t end = begin + 1;
    for (Label next = first; end < parts_.size(); ++end) {
      next.layer += ascends ? 1 : -1;
      if (next.layer < 0 || parts_[end].label != next) break;
    }
    const int32_t reached = parts_[end - 1].label.layer;
    if (ascends ? reached < last : reached > repeats) return {begin, begin, begin};
    const int64_t ahead = ascends ? repeats - first.layer : rhythm_.behind;
    return {begin, end, begin + static_cast<size_t>(ahead + units_.middle * rhythm_.unit)};
  }

  bool IsOfMiddle(int32_t layer) const {
    const int64_t middle = rhythm_.before + units_.middle * rhythm_.unit;
    return middle <= layer && layer < middle + rhythm_.unit;
  }

  // Emits the pass, including the units that were left out.
  Status EmitPass(const LayerPass& pass) {
    for (size_t part = pass.begin; part < pass.end; ++part) {
      EmitPart(part);
      const bool ends_middle = part + 1 == pass.middle + static_cast<size_t>(rhythm_.unit);
      if (ends_middle && more_units_ > 0) WT_RETURN_IF_ERROR(RepeatUnit(pass.middle));
    }
    return Ok();
  }

  // The items of the unit that begins with a part.
  std::span<const TapeItem> ItemsOf(size_t part) const {
    const size_t begin = parts_[part].begin, end = EndOfUnit(part);
    return std::span(tape_.items).subspan(begin, end - begin);
  }
  size_t EndOfUnit(size_t part) const { return parts_[part + static_cast<size_t>(rhythm_.unit) - 1].end; }

  Status RepeatUnit(size_t part) {
    const auto unit = static_cast<size_t>(rhythm_.unit);
    if (!AreAlike(tape_, ItemsOf(part - unit), ItemsOf(part)) ||
        !AreAlike(tape_, ItemsOf(part), ItemsOf(part + unit)))
      return Unsupported("layers that are not alike");
    // A copy's waits reach as far back as those of the unit after the middle one, for which Repeat maps only
    // the two units before it.
    for (size_t i = parts_[part].begin; i < EndOfUnit(part); ++i)
      if (ReachesBack(i, parts_[part - 2 * unit].begin))
        return Unsupported("layers that wait for what was long before");
    const size_t size = EndOfUnit(part) - parts_[part].begin;
    Repeat(long_.items.size() - size, more_units_, parts_[part - unit].begin, EndOfUnit(part));
    return Ok();
  }

  // Whether an item waits for something before another.
  bool ReachesBack(size_t item, size_t before) const {
    const auto reaches = [&](int32_t queue, int32_t back) {
      const int32_t done = IssuedBefore(item, queue) - back;
      return done > 0 && done <= IssuedBefore(before, queue);
    };
    const TapeItem& of = tape_.items[item];
    if (of.kind == TapeItem::Kind::kWait) return reaches(of.queue, of.back);
    const std::span<const TapeNeed> needs = tape_.NeedsOf(of);
    return std::any_of(needs.begin(), needs.end(),
                       [&](const TapeNeed& need) { return reaches(need.queue, need.back); });
  }

  void Pass(const TapeItem& item) {
    if (item.kind == TapeItem::Kind::kIssue) ++issued_[item.queue];
    if (item.kind != TapeItem::Kind::kMemory) return;
    level_ += item.amount;
    peak_ = std::max(peak_, level_);
  }

  // Appends `copies` copies of what the longer tape has from item `begin` on, which comes from the last of
  // items [tape_begin, tape_end) of the tape. From now on, the last copies stand for these items.
  void Repeat(size_t begin, int64_t copies, size_t tape_begin, size_t tape_end) {
    const std::vector<int32_t> before = issued_;
    const size_t end = long_.items.size();
    for (int64_t copy = 0; copy < copies && peak_ <= capacity_; ++copy) {
      for (size_t i = begin; i < end; ++i) {
        const TapeItem item = long_.items[i];
        long_.items.push_back(item);
        Pass(item);
      }
    }
    for (int32_t queue = 0; queue < tape_.queues; ++queue) {
      const auto of = static_cast<size_t>(queue);
      for (int32_t number = IssuedBefore(tape_begin, queue); number < IssuedBefore(tape_end, queue); ++number)
        places_[of][number] += issued_[of] - before[of];
    }
  }

  // How far back in the longer tape's queue the operator is that was the tape's `done`-th of that queue.
  int32_t BackTo(int32_t queue, int32_t done) const {
    const auto of = static_cast<size_t>(queue);
    if (done == 0) return issued_[of];
    return issued_[of] - places_[of][static_cast<size_t>(done) - 1] - 1;
  }

  void EmitItem(size_t i) {
    TapeItem item = tape_.items[i];
    if (item.kind == TapeItem::Kind::kWait) {
      item.back = BackTo(item.queue, IssuedBefore(i, item.queue) - item.back);
    } else if (item.kind == TapeItem::Kind::kIssue) {
      const int32_t first = static_cast<int32_t>(long_.needs.size());
      for (const TapeNeed& need : tape_.NeedsOf(item))
        long_.needs.push_back({need.queue, BackTo(need.queue, IssuedBefore(i, need.queue) - need.back)});
      item.first_need = first;
      places_[item.queue].push_back(issued_[item.queue]);
    }
    long_.items.push_back(item);
    Pass(item);
  }

  const Scenario& scenario_;
  const OncePerStep& once_;
  const int64_t capacity_;
  const Units units_ = UnitsToCompile(scenario_);
  const Role* role_ = nullptr;
  Rhythm rhythm_;  // of what is compiled
  int64_t more_units_ = 0, more_micro_batches_ = 0;
  StepTape tape_;
  std::vector<int32_t> issued_before_;  // by item and queue, and behind the last item
  size_t begin_ = 0, end_ = 0;          // the items of the micro-batches
  std::vector<Part> parts_;

  StepTape long_;
  // By queue and position on the tape: position on the longer tape.
  std::vector<std::vector<int32_t>> places_;
  std::vector<int32_t> issued_;   // by queue, on the longer tape
  int64_t level_ = 0, peak_ = 0;  // bytes
};

}  // namespace

std::string OnceKey(const Scenario& s) {
  const DataParallelSpec& data = s.parallel.data;
  return fmt::format("{}x{} t{}{}{} c{}k{} e{}t{}d{} d{} v{} s{} n{} o{} a{}", s.cluster.nodes,
                     s.cluster.devices_per_node, s.parallel.tensor.size, s.parallel.tensor.sequence,
                     s.parallel.tensor.overlap, s.parallel.context.size,
                     static_cast<int>(s.parallel.context.kind), s.parallel.expert.size,
                     s.parallel.TensorRanksHaveExperts(), static_cast<int>(s.parallel.expert.dispatcher),
                     data.size, data.version, static_cast<int>(data.sharding), data.shard_size,
                     static_cast<int>(data.offload), s.batch.accumulate == 1);
}

Result<OncePerStep> OnceOf(const Scenario& scenario, const CostModel& model) {
  Scenario shorter = scenario;
  shorter.batch.accumulate = std::min<int64_t>(scenario.batch.accumulate, 2);
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(shorter, {.checks = false, .computes = false}));
  const Role& role = plan.roles.at(0);
  const AllocatorKind allocator = scenario.allocator;
  WT_ASSIGN_OR_RETURN(const TapedPlan taped, TapeOf(plan, model));
  OncePerStep once;
  for (const TapeItem& item : taped.tape.items)
    if (IsIssuedOrHost(item))
      once.items.push_back({NameOf(role, item), item.amount, item.efficiency, item.holds_multiprocessors});
  for (size_t i = 0; i < EndOfHead(taped.tape); ++i) once.freed -= taped.tape.items[i].amount;
  for (const MemoryOp& op : role.steady.memory) {
    if (!op.allocates() || op.micro_batch >= 0) continue;
    const Buffer& buffer = role.buffers[op.buffer];
    once.temporaries[buffer.name] += Requested(buffer, allocator);
  }
  const auto counts = [](const Buffer& buffer) {
    return !IsScratch(buffer) && buffer.use != BufferUse::kLosses;
  };
  once.resident = once.freed + NetOf(role.initialize, role, allocator, counts);
  for (const Program& step : role.startup) once.resident += NetOf(step, role, allocator, counts);
  for (const Buffer& buffer : role.buffers)
    if (IsScratch(buffer)) once.scratch[buffer.name] = buffer.bytes;
  return once;
}

Status CheckStretchable(const Scenario& s) {
  const DataParallelSpec& data = s.parallel.data;
  if (s.model.kind != ModelKind::kTransformer) return Unsupported("another model");
  if (s.model.encoder) return Unsupported("model.encoder");
  if (s.model.position == PositionKind::kRelative) return Unsupported("model.position: relative");
  if (s.model.has_pattern()) return Unsupported("{}", s.model.pattern_block());
  if (data.kind != DataParallelKind::kFsdp) return Unsupported("another strategy");
  if (s.parallel.pipeline.size > 1) return Unsupported("FSDP in a pipeline");
  if (s.optimizer.in_backward) return Unsupported("optimizer.in_backward");
  // A unit is a layer.
  if (data.wrap.kind != WrapPolicy::Kind::kBlock) return Unsupported("parallel.data.wrap");
  if (s.run.cuda_graphs) return Unsupported("run.cuda_graphs");
  if (s.recompute == Recompute::kFull && s.RecomputesSomeLayers())
    return Unsupported("{}", s.recompute_every > 1 ? "recompute_every" : "recompute_layers");
  if (s.activation_offload_layers > 0) return Unsupported("activation_offload_layers");
  return Ok();
}

bool IsLonger(const Scenario& s) {
  return RhythmOf(s.model).units > UnitsToCompile(s).all + 1 || s.batch.accumulate > kMicroBatches + 1;
}

Result<StretchedStep> Stretch(const Scenario& scenario, const CostModel& model, const OncePerStep& once,
                              int64_t capacity) {
  return Stretcher(scenario, once, capacity).Run(model);
}

}  // namespace windtunnel::composed
