// Fully sharded data parallel, PyTorch's versions 1 and 2, as operators.
//
// Between steps every rank holds a shard of each unit's parameters (fp32), gradients and optimizer state. A unit's parameters
// are all-gathered before its forward, dropped after it (unless it is the root, or keeps them), gathered again before its
// backward, and its gradients reduce-scattered after it. All-gathers and reduce-scatters of a group share one stream, so their
// order in the program is their order on the wire:
//
//   backward_pre    AG(i-1) before the operators of unit i's backward, RS(i) after them
//   backward_post   AG(i-1) after them, before RS(i)
//   none            AG(i-1) at the beginning of unit i-1's own backward, behind RS(i)
//
// A reduction is waited for when the next unit's gradients are complete, so that at most two units' gradients exist whole.
// (With one stream that costs no time: the next unit's parameters come behind it anyway.)
//
// Version 1 gathers into a flat parameter that the unit's tensors are parts of, and gradients are written into a flat gradient. Version 2
// gathers parts of single tensors, copies them out into whole tensors (twice the unit for a moment), and packs gradients for
// the reduction; an all-gather begins after the copying-out before it.
#include <algorithm>
#include <deque>

#include "plan/data_parallel.h"
#include "plan/fsdp_units.h"
#include "plan/optimizer_steps.h"

namespace windtunnel {
namespace {

struct Unit {
  std::string name;
  ModuleId module = kRootModule;
  std::vector<int> parameters;
  ShardLayout layout;

  Slice values;    // the shard, fp32; in host memory with offload: param
  Slice master;    // in host memory, that the optimizer updates, with offload: optimizer
  Slice gradient;  // the shard, fp32; beside the values

  // Parameters in flight or in use.
  bool is_gathered = false, is_unpacked = false, backward_begun = false;
  OpIndex gather = -1;
  Slice whole;                 // as gathered
  std::vector<Slice> tensors;  // whole parameters, for compute

  // Gradients before the reduction; empty: none yet.
  Slice flat_gradient;
  std::vector<Slice> tensor_gradients;

  // The reduction under way; buffer -1: none.
  Slice arriving;
  OpIndex scattered = -1, reduced = -1;
  bool gradient_alive = false, gradient_holds = false;
};

class Fsdp : public DataParallel {
 public:
  Fsdp(const StrategyContext& context, const std::vector<FsdpUnit>& units);

  void Initialize(ProgramBuilder& b) override;
  void BeginStep(ProgramBuilder& b, int64_t step) override;
  void BeginMicroBatch(bool is_last) override;
  void EndMicroBatch() override;
  void Update(ProgramBuilder& b, bool first) override;

  void BeforeForward(ModuleId module) override;
  void AfterForward(ModuleId module) override;
  void BeforeBackward(ModuleId module) override;
  void AfterBackward(ModuleId module) override;

  Slice Values(int index) override;
  Slice Gradient(int index) override;
  bool HoldsValue(int index) const override { return holds_[index]; }
  void Ready(int index) override { holds_[index] = true; }

 private:
  static constexpr int kNoUnit = -1;
  int UnitOf(ModuleId module) const { return unit_of_module_[module]; }
  int ranks() const { return shard_.ranks(); }
  int64_t Padded(const Unit& unit) const { return unit.layout.shard * ranks(); }
  bool converts() const { return type_ != DType::kFloat32; }
  bool offloads_parameters() const { return spec_.offload == Offload::kParam; }
  // Gradients are written where the optimizer reads them: nothing is sharded, and one reduction a step sums them in place.
  bool reduces_in_place() const;

  void MakeBuffers(Unit& unit);
  void InitializeUnit(ProgramBuilder& b, Unit& unit);
  Slice WholeFirstValues(ProgramBuilder& b, const Unit& unit);
  void OrderBackward(const std::vector<Module>& modules, ModuleId module);

  void Gather(Unit& unit);
  Slice GatherSource(Unit& unit, OpIndex& ready);
  void LimitAllGathers();
  void FinishGather(Unit& unit);
  void Reshard(Unit& unit);
  void PrefetchBackward(int unit);

  std::vector<Slice> TensorsIn(const Unit& unit, Slice flat) const;
  Slice FlatGradient(Unit& unit);
  void Reduce(Unit& unit);
  Slice ReductionInput(Unit& unit);
  Slice ReductionOutput(Unit& unit, Slice input);
  void AllocGradient(Unit& unit);
  void AwaitScatter(Unit& unit);
  void Settle(Unit& unit);
  std::vector<OptimizerTarget> Targets() const;

  Role& role_;
  DataParallelSpec spec_;
  OptimizerSpec optimizer_spec_;
  DType type_, reduce_;
  int64_t micro_batches_;
  CollectiveStream &shard_, &replicate_;
  StreamId copies_, host_;
  bool reshards_after_forward_;
  std::vector<Unit> units_;
  std::vector<int> unit_of_module_, unit_of_parameter_, place_in_unit_;
  std::vector<int> backward_order_, place_in_backward_;
  std::vector<bool> holds_;
  std::unique_ptr<OptimizerSteps> optimizer_;

  ProgramBuilder* b_ = nullptr;
  bool syncs_ = false, in_backward_ = false;
  int last_reduced_ = kNoUnit;      // whose reduce-scatter may be under way
  OpIndex last_unpacked_ = -1;      // version 2
  std::deque<OpIndex> released_;    // version 1: the last uses of units that were dropped, for the limiter
};

Fsdp::Fsdp(const StrategyContext& context, const std::vector<FsdpUnit>& units)
    : role_(context.role), spec_(context.scenario.parallel.data), optimizer_spec_(context.scenario.optimizer),
      type_(TypesOf(context.scenario.precision).storage), reduce_(TypeOf(context.scenario.precision.reduce)),
      micro_batches_(context.scenario.batch.accumulate), shard_(context.shard), replicate_(context.replicate),
      copies_(context.copies), host_(context.host) {
  const bool sharding_reshards = spec_.sharding == Sharding::kFullShard || spec_.sharding == Sharding::kHybridShard;
  reshards_after_forward_ = spec_.reshard_after_forward && sharding_reshards;
  unit_of_module_.assign(context.modules.size(), kNoUnit);
  unit_of_parameter_.resize(role_.parameters.size());
  place_in_unit_.resize(role_.parameters.size());
  holds_.resize(role_.parameters.size());
  for (const FsdpUnit& spec : units) {
    Unit unit;
    unit.name = spec.name;
    unit.module = spec.module;
    unit.parameters = spec.parameters;
    unit.layout = MakeShardLayout(spec, role_.parameters, ranks(), spec_.version);
    unit_of_module_[spec.module] = static_cast<int>(units_.size());
    for (size_t i = 0; i < spec.parameters.size(); ++i) {
      unit_of_parameter_[spec.parameters[i]] = static_cast<int>(units_.size());
      place_in_unit_[spec.parameters[i]] = static_cast<int>(i);
    }
    MakeBuffers(unit);
    units_.push_back(std::move(unit));
  }
  place_in_backward_.resize(units_.size());
  OrderBackward(context.modules, kRootModule);
  std::reverse(backward_order_.begin(), backward_order_.end());
  for (size_t i = 0; i < backward_order_.size(); ++i) place_in_backward_[backward_order_[i]] = static_cast<int>(i);
}

// Forward's order of ends; backward begins units in the reverse of it.
void Fsdp::OrderBackward(const std::vector<Module>& modules, ModuleId module) {
  for (size_t child = static_cast<size_t>(module) + 1; child < modules.size(); ++child) {
    if (modules[child].parent == module) OrderBackward(modules, static_cast<ModuleId>(child));
  }
  if (UnitOf(module) != kNoUnit) backward_order_.push_back(UnitOf(module));
}

bool Fsdp::reduces_in_place() const {
  const bool once = micro_batches_ == 1 || spec_.sync == GradientSync::kLastMicroBatch;
  return ranks() == 1 && once && spec_.version == 1 && !converts() && reduce_ == DType::kFloat32 && !offloads_parameters();
}

void Fsdp::MakeBuffers(Unit& unit) {
  const int64_t shard = unit.layout.shard;
  const MemorySpace space = offloads_parameters() ? MemorySpace::kHost : MemorySpace::kDevice;
  unit.values = NewBuffer(role_, unit.name + " shard", shard, Category::kParameters, DType::kFloat32, space);
  unit.gradient = NewBuffer(role_, unit.name + " shard.grad", shard, Category::kGradients, DType::kFloat32, space);
  if (spec_.offload == Offload::kOptimizer) {
    unit.master =
        NewBuffer(role_, unit.name + " master", shard, Category::kOptimizer, DType::kFloat32, MemorySpace::kHost);
  }
  const BufferId holder = unit.master.buffer >= 0 ? unit.master.buffer : unit.values.buffer;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const int64_t start = unit.layout.starts[i];
    Placement& place = role_.parameters[unit.parameters[i]].values;
    if (ranks() == 1) place = {holder, start, 0, 0, 0};
    else if (spec_.version == 1) place = {holder, 0, shard, start, shard_.axis()};
    else place = {holder, start, unit.layout.shard_elements[i], 0, shard_.axis()};
  }
}

// ---- initialisation ---------------------------------------------------------------------------------------------------

void Fsdp::Initialize(ProgramBuilder& b) {
  for (Unit& unit : units_) InitializeUnit(b, unit);
}

// A unit at a time, whole on every rank, which then keeps its part: no more than one unit is ever whole.
void Fsdp::InitializeUnit(ProgramBuilder& b, Unit& unit) {
  const Slice whole = WholeFirstValues(b, unit);
  const Slice part = OwnPart(shard_, whole, unit.layout.shard);
  const auto to_host = Copy::Crosses::kToHost;
  b.Alloc(unit.values.buffer);
  b.Add(Copy{.elements = part.elements, .crosses = offloads_parameters() ? to_host : Copy::Crosses::kNothing}, unit.name,
        {part}, {unit.values});
  if (unit.master.buffer < 0) return;
  b.Alloc(unit.master.buffer);
  b.Add(Copy{.elements = part.elements, .crosses = to_host}, unit.name, {part}, {unit.master});
}

// In the layout that an all-gather would bring.
Slice Fsdp::WholeFirstValues(ProgramBuilder& b, const Unit& unit) {
  Slice whole = b.Temporary(unit.name + " (whole)", Padded(unit), Category::kParameters);
  if (spec_.version == 1) {
    const int64_t used = unit.layout.starts.back() + role_.parameters[unit.parameters.back()].elements;
    if (used < whole.elements) {
      b.Add(Fill{whole.elements - used}, unit.name, {}, {Slice{whole.buffer, used, whole.elements - used}});
    }
    AddInitialValues(b, unit.parameters, TensorsIn(unit, whole));
    return whole;
  }
  std::vector<Slice> tensors;
  for (int index : unit.parameters) {
    tensors.push_back(b.Temporary(role_.parameters[index].name, role_.parameters[index].elements, Category::kParameters));
  }
  AddInitialValues(b, unit.parameters, tensors);
  b.Add(PackShards{ranks(), unit.layout.shard_elements}, unit.name, tensors, {whole});
  return whole;
}

// ---- parameters -------------------------------------------------------------------------------------------------------

// The unit's tensors within a flat buffer of its own layout: version 1, or one rank alone.
std::vector<Slice> Fsdp::TensorsIn(const Unit& unit, Slice flat) const {
  std::vector<Slice> tensors;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    tensors.push_back(Slice{flat.buffer, unit.layout.starts[i], role_.parameters[unit.parameters[i]].elements});
  }
  return tensors;
}

// The shard as it is sent: from the host, and in the type that is gathered.
Slice Fsdp::GatherSource(Unit& unit, OpIndex& ready) {
  if (!converts() && !offloads_parameters()) return unit.values;
  Slice source = b_->Temporary(unit.name + " shard (to send)", unit.layout.shard, Category::kParameters, type_);
  const auto crosses = offloads_parameters() ? Copy::Crosses::kToDevice : Copy::Crosses::kNothing;
  ready = AddCopy(*b_, copies_, Copy{.elements = unit.layout.shard, .to = type_, .crosses = crosses}, unit.name,
                  unit.values, source, {});
  return source;
}

// Version 1's rate limiter: while two units that were dropped may still be in use, the host waits for the first.
void Fsdp::LimitAllGathers() {
  if (spec_.version != 1 || !spec_.limit_all_gathers || host_ < 0 || released_.size() < 2) return;
  b_->Add(HostWait{}, "limit_all_gathers", {}, {}, {released_.front()}, host_);
  released_.pop_front();
}

void Fsdp::Gather(Unit& unit) {
  if (unit.is_gathered) return;
  LimitAllGathers();
  unit.is_gathered = true;
  OpIndex ready = -1;
  const Slice source = GatherSource(unit, ready);
  if (ranks() == 1) {
    unit.whole = source;
    unit.gather = ready;
    return;
  }
  const Category category = spec_.version == 1 ? Category::kParameters : Category::kCommunication;
  unit.whole = b_->Temporary(unit.name, Padded(unit), category, type_);
  if (spec_.version == 1 && host_ >= 0) b_->RecordOnCompute(unit.whole);
  unit.gather = shard_.AllGather(*b_, source, unit.whole, unit.name, {ready, last_unpacked_});
  b_->Carries(unit.gather, unit.parameters);
}

// The next operators of the compute stream may use the parameters.
void Fsdp::FinishGather(Unit& unit) {
  if (unit.is_unpacked) return;
  unit.is_unpacked = true;
  b_->WaitBeforeNextCompute(unit.gather);
  if (spec_.version == 1 || ranks() == 1) {
    unit.tensors = TensorsIn(unit, unit.whole);
    return;
  }
  for (int index : unit.parameters) {
    const Parameter& parameter = role_.parameters[index];
    unit.tensors.push_back(b_->Temporary(parameter.name, parameter.elements, Category::kParameters, type_));
  }
  last_unpacked_ = b_->Add(UnpackShards{ranks(), unit.layout.shard_elements, type_}, unit.name, {unit.whole}, unit.tensors);
}

// The memory lives until its last use, which has been added.
void Fsdp::Reshard(Unit& unit) {
  if (unit.is_gathered) released_.push_back(b_->LastCompute());
  unit.is_gathered = unit.is_unpacked = false;
  unit.tensors.clear();
}

Slice Fsdp::Values(int index) { return units_[unit_of_parameter_[index]].tensors.at(place_in_unit_[index]); }

void Fsdp::BeforeForward(ModuleId module) {
  const int unit = UnitOf(module);
  if (unit == kNoUnit) return;
  Gather(units_[unit]);
  const size_t ahead = in_backward_ ? 0 : static_cast<size_t>(spec_.forward_prefetch);
  for (size_t next = unit + 1; next <= unit + ahead && next < units_.size(); ++next) Gather(units_[next]);
  FinishGather(units_[unit]);
}

// The root stays: backward begins with it.
void Fsdp::AfterForward(ModuleId module) {
  if (UnitOf(module) != kNoUnit && module != kRootModule && reshards_after_forward_) Reshard(units_[UnitOf(module)]);
}

void Fsdp::BeforeBackward(ModuleId module) {
  in_backward_ = true;
  const int unit = UnitOf(module);
  if (unit == kNoUnit) return;
  units_[unit].backward_begun = true;
  Gather(units_[unit]);
  FinishGather(units_[unit]);
  if (spec_.prefetch == Prefetch::kBackwardPre) PrefetchBackward(unit);
}

// The unit whose backward begins next. (A unit ends after those nested in it, the root after all.)
void Fsdp::PrefetchBackward(int unit) {
  size_t next = static_cast<size_t>(place_in_backward_[unit]) + 1;
  while (next < backward_order_.size() && units_[backward_order_[next]].backward_begun) ++next;
  if (next < backward_order_.size()) Gather(units_[backward_order_[next]]);
}

void Fsdp::AfterBackward(ModuleId module) {
  const int unit = UnitOf(module);
  if (unit == kNoUnit) return;
  // Under no_sync, what was kept after forward is kept after backward too.
  if (syncs_ || reshards_after_forward_) Reshard(units_[unit]);
  if (spec_.prefetch == Prefetch::kBackwardPost) PrefetchBackward(unit);
  if (!syncs_) return;
  if (last_reduced_ != kNoUnit) AwaitScatter(units_[last_reduced_]);
  Reduce(units_[unit]);
  last_reduced_ = unit;
}

// ---- gradients --------------------------------------------------------------------------------------------------------

void Fsdp::AllocGradient(Unit& unit) {
  if (!unit.gradient_alive) b_->Alloc(unit.gradient.buffer);
  unit.gradient_alive = true;
}

// Version 1: made when it is first written, with zeros for padding.
Slice Fsdp::FlatGradient(Unit& unit) {
  if (unit.flat_gradient.buffer >= 0) return unit.flat_gradient;
  if (reduces_in_place()) {
    AllocGradient(unit);
    unit.flat_gradient = unit.gradient;
    return unit.flat_gradient;
  }
  unit.flat_gradient = b_->Temporary(unit.name + ".grad", Padded(unit), Category::kGradients, type_);
  const int64_t used = unit.layout.starts.back() + role_.parameters[unit.parameters.back()].elements;
  const int64_t padding = unit.flat_gradient.elements - used;
  if (padding > 0) {
    b_->Add(Fill{padding, 0.0, type_}, unit.name + ".grad", {}, {Slice{unit.flat_gradient.buffer, used, padding}});
  }
  return unit.flat_gradient;
}

Slice Fsdp::Gradient(int index) {
  Unit& unit = units_[unit_of_parameter_[index]];
  const int place = place_in_unit_[index];
  if (spec_.version == 1) {
    return Slice{FlatGradient(unit).buffer, unit.layout.starts[place], role_.parameters[index].elements};
  }
  unit.tensor_gradients.resize(unit.parameters.size());
  Slice& gradient = unit.tensor_gradients[place];
  if (gradient.buffer < 0) {
    gradient = b_->Temporary(role_.parameters[index].name + ".grad", role_.parameters[index].elements,
                             Category::kGradients, type_);
  }
  return gradient;
}

// The unit's gradients, divided by the number of ranks, in the layout and type of the reduction.
Slice Fsdp::ReductionInput(Unit& unit) {
  const int64_t all = int64_t{ranks()} * replicate_.ranks();
  const double share = 1.0 / static_cast<double>(all);
  const std::string name = unit.name + ".grad";
  if (spec_.version == 1 && type_ == reduce_) {
    const Slice flat = unit.flat_gradient;
    if (all > 1) b_->Add(Scale{flat.elements, share, type_}, name, {flat}, {flat});
    return flat;
  }
  Slice input = b_->Temporary(name + " (to reduce)", Padded(unit), Category::kCommunication, reduce_);
  if (spec_.version == 1) {
    const OpIndex copy = AddCopy(*b_, copies_, Copy{.elements = input.elements, .from = type_, .to = reduce_, .scale = share},
                                 name, unit.flat_gradient, input, {b_->LastCompute()});
    unit.scattered = copy;
    return input;
  }
  b_->Add(PackShards{ranks(), unit.layout.shard_elements, type_, reduce_, share}, name, unit.tensor_gradients, {input});
  return input;
}

// Where the reduced shard arrives: the gradient itself, unless it is to be added to, converted or sent to the host.
Slice Fsdp::ReductionOutput(Unit& unit, Slice input) {
  if (ranks() == 1) return input;
  if (unit.gradient_holds || reduce_ != DType::kFloat32 || offloads_parameters()) {
    return b_->Temporary(unit.name + ".grad (arriving)", unit.layout.shard, Category::kCommunication, reduce_);
  }
  AllocGradient(unit);
  return unit.gradient;
}

void Fsdp::Reduce(Unit& unit) {
  b_->SetPhase(Phase::kBackward);
  unit.scattered = -1;
  const Slice input = ReductionInput(unit);
  const OpIndex ready = unit.scattered >= 0 ? unit.scattered : b_->LastCompute();
  unit.arriving = ReductionOutput(unit, input);
  unit.scattered = shard_.ReduceScatter(*b_, input, unit.arriving, unit.name, {ready});
  b_->Carries(unit.scattered, unit.parameters);
  const OpIndex after = unit.scattered >= 0 ? unit.scattered : ready;
  unit.reduced = replicate_.AllReduce(*b_, unit.arriving, unit.name, {after});
  b_->Carries(unit.reduced, unit.parameters);
  if (unit.reduced < 0) unit.reduced = after;
  unit.flat_gradient = {};
  unit.tensor_gradients.clear();
  for (int index : unit.parameters) holds_[index] = false;
}

// The gradients that were reduced are free; the sum over replicas may still be under way.
void Fsdp::AwaitScatter(Unit& unit) {
  if (replicate_.ranks() == 1) Settle(unit);
  else if (unit.scattered >= 0) b_->WaitBeforeNextCompute(unit.scattered);
}

void Fsdp::Settle(Unit& unit) {
  if (unit.arriving.buffer < 0) return;
  b_->WaitBeforeNextCompute(unit.reduced);
  if (unit.arriving.buffer != unit.gradient.buffer) {
    AllocGradient(unit);
    const auto crosses = offloads_parameters() ? Copy::Crosses::kToHost : Copy::Crosses::kNothing;
    const Copy copy{.elements = unit.layout.shard, .from = reduce_, .accumulate = unit.gradient_holds, .crosses = crosses};
    b_->WaitBeforeNextCompute(
        AddCopy(*b_, copies_, copy, unit.name + " shard.grad", unit.arriving, unit.gradient, {unit.reduced}));
  }
  unit.gradient_holds = true;
  unit.arriving = {};
}

// ---- steps ------------------------------------------------------------------------------------------------------------

void Fsdp::BeginStep(ProgramBuilder& b, int64_t step) {
  b_ = &b;
  last_unpacked_ = -1;
  released_.clear();
  for (Unit& unit : units_) {
    if (step > 0) b.Free(unit.gradient.buffer);
    unit.gradient_alive = unit.gradient_holds = false;
    unit.is_gathered = unit.is_unpacked = false;
    unit.tensors.clear();
  }
}

void Fsdp::BeginMicroBatch(bool is_last) {
  syncs_ = is_last || spec_.sync == GradientSync::kEveryMicroBatch;
  in_backward_ = false;
  last_reduced_ = kNoUnit;
  for (Unit& unit : units_) unit.backward_begun = false;
}

void Fsdp::EndMicroBatch() {
  if (!syncs_) return;
  b_->SetPhase(Phase::kGradientSync);
  for (int unit : backward_order_) Settle(units_[unit]);
}

std::vector<OptimizerTarget> Fsdp::Targets() const {
  std::vector<OptimizerTarget> targets;
  for (const Unit& unit : units_) {
    targets.push_back({unit.name, unit.master.buffer >= 0 ? unit.master : unit.values, unit.gradient});
  }
  return targets;
}

void Fsdp::Update(ProgramBuilder& b, bool first) {
  b.SetPhase(Phase::kOptimizer);
  std::vector<OptimizerTarget> targets = Targets();
  const bool from_host = spec_.offload == Offload::kOptimizer;
  for (size_t i = 0; from_host && i < units_.size(); ++i) {
    targets[i].gradient = b.Temporary(units_[i].name + " shard.grad (host)", units_[i].layout.shard, Category::kGradients,
                                      DType::kFloat32, MemorySpace::kHost);
    b.WaitBeforeNextCompute(AddCopy(b, copies_, Copy{.elements = units_[i].layout.shard, .crosses = Copy::Crosses::kToHost},
                                    units_[i].name, units_[i].gradient, targets[i].gradient, {b.LastCompute()}));
  }
  if (!optimizer_) optimizer_ = std::make_unique<OptimizerSteps>(role_, optimizer_spec_, targets);
  optimizer_->SetTargets(targets);
  optimizer_->AddClipping(b, first, &shard_);
  const OpIndex update = optimizer_->AddUpdate(b, first, 0, optimizer_->targets());
  for (size_t i = 0; from_host && i < units_.size(); ++i) {
    AddCopy(b, copies_, Copy{.elements = units_[i].layout.shard, .crosses = Copy::Crosses::kToDevice}, units_[i].name,
            units_[i].master, units_[i].values, {update});
  }
}

}  // namespace

Result<std::unique_ptr<DataParallel>> MakeFsdp(const StrategyContext& context) {
  const DataParallelSpec& spec = context.scenario.parallel.data;
  WT_ASSIGN_OR_RETURN(std::vector<FsdpUnit> units, MakeUnits(context.modules, context.role.parameters, spec.wrap));
  const ModelSpec& model = context.scenario.model;
  const bool is_tied = model.kind == ModelKind::kTransformer && model.tie_embeddings;
  for (const FsdpUnit& unit : units) {
    if (is_tied && unit.module != kRootModule && unit.parameters.front() == 0) {
      return InvalidInput("parallel.data.wrap: '{}' holds the embedding, whose weight the head shares (model.tie_embeddings), so it "
                          "must stay in the root unit",
                          unit.name);
    }
  }
  return std::unique_ptr<DataParallel>(std::make_unique<Fsdp>(context, units));
}

}  // namespace windtunnel
