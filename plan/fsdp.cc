// FSDP's units, their first values, and its steps.
#include "plan/fsdp.h"

#include <algorithm>

#include "plan/model.h"

namespace windtunnel {

namespace {

// The number of a rank's stages whose parameters torch.distributed.pipelining keeps: those to be used next
// (max_active_stages of _add_unshard_reshard).
constexpr int kActiveStages = 3;

}  // namespace

Fsdp::Fsdp(const StrategyContext& context, const std::vector<FsdpUnit>& units)
    : role_(context.role),
      spec_(context.scenario.parallel.data),
      type_(TypesOf(context.scenario.precision).storage),
      updated_(TypeOf(context.scenario.precision.optimizer)),
      reduce_(TypeOf(context.scenario.precision.reduce)),
      micro_batches_(context.scenario.batch.accumulate),
      data_(context.dense.all),
      reshard_(context.reshard),
      copies_(context.copies),
      host_(context.host),
      optimizer_(context.role, context.scenario, context.tensor, NormRanksOf(context)),
      updates_in_backward_(context.scenario.optimizer.in_backward) {
  const bool sharding_reshards =
      spec_.sharding == Sharding::kFullShard || spec_.sharding == Sharding::kHybridShard;
  reshards_after_forward_ = spec_.reshard_after_forward && spec_.reshard_ranks != 1 && sharding_reshards;
  const bool is_in_pipeline = context.scenario.parallel.pipeline.size > 1;
  const auto stages = std::count_if(context.modules.begin(), context.modules.end(),
                                    [](const Module& module) { return module.is_root(); });
  reshards_without_sync_ = spec_.version == 1
                               ? reshards_after_forward_
                               : !is_in_pipeline || (reshards_after_forward_ && stages > kActiveStages);
  splits_backward_ = context.splits_backward;
  recipe_ = context.scenario.precision.fp8_recipe;
  for (const Module& module : context.modules) is_root_.push_back(module.is_root());
  unit_of_module_.assign(context.modules.size(), kNoUnit);
  unit_of_parameter_.resize(role_.parameters.size());
  place_in_unit_.resize(role_.parameters.size());
  holds_.resize(role_.parameters.size());
  for (const FsdpUnit& spec : units) {
    UnitState unit;
    unit.name = spec.name;
    unit.parameters = spec.parameters;
    const StateRanks& of_states = context.RanksOf(role_.parameters[spec.parameters.front()]);
    unit.shard_axis = &of_states.shard;
    unit.replicate = &of_states.replicate;
    unit.layout = MakeShardLayout(spec, role_.parameters, unit.ranks(), spec_.version);
    unit.trained =
        static_cast<size_t>(std::count_if(spec.parameters.begin(), spec.parameters.end(),
                                          [&](int index) { return !role_.parameters[index].is_frozen; }));
    unit.dense =
        static_cast<size_t>(std::count_if(spec.parameters.begin(), spec.parameters.end(), [&](int index) {
          return !role_.parameters[index].packed.has_value();
        }));
    if (unit.dense < unit.parameters.size()) unit.layout.shard = unit.layout.starts[unit.dense];
    unit.trained_shard =
        unit.trained < unit.parameters.size() ? unit.layout.starts[unit.trained] : unit.layout.shard;
    unit.has_factors =
        unit.ranks() > 1 && std::any_of(spec.parameters.begin(), spec.parameters.end(),
                                        [&](int index) { return role_.parameters[index].is_factor; });
    unit_of_module_[spec.module] = static_cast<int>(units_.size());
    for (size_t i = 0; i < spec.parameters.size(); ++i) {
      unit_of_parameter_[spec.parameters[i]] = static_cast<int>(units_.size());
      place_in_unit_[spec.parameters[i]] = static_cast<int>(i);
    }
    MakeBuffers(unit);
    units_.push_back(std::move(unit));
  }
  place_in_backward_.resize(units_.size());
  stage_of_unit_.resize(units_.size());
  for (size_t m = 0; m < context.modules.size(); ++m) {
    if (!context.modules[m].is_root()) continue;
    const size_t before = backward_order_.size();
    OrderBackward(context.modules, static_cast<ModuleId>(m));
    for (size_t i = before; i < backward_order_.size(); ++i)
      stage_of_unit_[backward_order_[i]] = static_cast<int>(m);
  }
  std::reverse(backward_order_.begin(), backward_order_.end());
  for (size_t i = 0; i < backward_order_.size(); ++i)
    place_in_backward_[backward_order_[i]] = static_cast<int>(i);
}

// Appends units in the order in which their forwards end; backward begins them in the reverse of it.
void Fsdp::OrderBackward(const std::vector<Module>& modules, ModuleId module) {
  for (size_t child = static_cast<size_t>(module) + 1; child < modules.size(); ++child) {
    if (modules[child].parent == module) OrderBackward(modules, static_cast<ModuleId>(child));
  }
  if (UnitOf(module) != kNoUnit) backward_order_.push_back(UnitOf(module));
}

bool Fsdp::ReducesInPlace(const UnitState& unit) const {
  const bool once = micro_batches_ == 1 || spec_.sync == GradientSync::kLastMicroBatch;
  return unit.ranks() == 1 && once && spec_.version == 1 && !converts() && reduce_ == updated_ &&
         !offloads_parameters();
}

void Fsdp::MakeBuffers(UnitState& unit) {
  const int64_t shard = unit.layout.shard, frozen = shard - unit.trained_shard;
  const MemorySpace space = offloads_parameters() ? MemorySpace::kHost : MemorySpace::kDevice;
  const bool is_apart = converts() && frozen > 0;
  if (is_apart) {
    unit.frozen =
        NewBuffer(role_, unit.name + " shard (frozen)", frozen, Category::kParameters, type_, space);
  }
  if (const int64_t elements = is_apart ? unit.trained_shard : shard; elements > 0)
    unit.values = NewBuffer(role_, unit.name + " shard", elements, Category::kParameters, updated_, space);
  if (unit.is_trained()) {
    unit.gradient = NewBuffer(role_, unit.name + " shard.grad", unit.trained_shard, Category::kGradients,
                              updated_, space);
  }
  if (spec_.offload == Offload::kOptimizer && unit.is_trained()) {
    unit.master = NewBuffer(role_, unit.name + " master", unit.trained_shard, Category::kOptimizer,
                            DType::kFloat32, MemorySpace::kHost);
  }
  MakePacked(unit, space);
  for (size_t i = 0; i < unit.dense; ++i) {
    const bool is_frozen = i >= unit.trained;
    const int64_t start = unit.layout.starts[i] - (is_frozen && is_apart ? unit.trained_shard : 0);
    const BufferId holder = is_frozen && is_apart                   ? unit.frozen.buffer
                            : !is_frozen && unit.master.buffer >= 0 ? unit.master.buffer
                                                                    : unit.values.buffer;
    Placement& place = role_.parameters[unit.parameters[i]].values;
    if (unit.ranks() == 1) place = {holder, start, 0, 0, 0};
    else if (spec_.version == 1) place = {holder, 0, shard, start, unit.shard_axis->axis()};
    else place = {holder, start, unit.layout.shard_elements[i], 0, unit.shard_axis->axis()};
  }
}

void Fsdp::MakePacked(UnitState& unit, MemorySpace space) {
  if (unit.dense == unit.parameters.size()) return;
  const DType type = *role_.parameters[unit.parameters[unit.dense]].packed;
  int64_t elements = 0;
  for (size_t i = unit.dense; i < unit.parameters.size(); ++i) {
    unit.packed_starts.push_back(elements);
    elements += ElementsFor(unit.layout.shard_elements[i], type);
  }
  unit.packed = NewBuffer(role_, unit.name + " shard (packed)", elements, Category::kParameters, type, space);
  for (size_t i = unit.dense; i < unit.parameters.size(); ++i) {
    const int64_t first = unit.packed_starts[i - unit.dense] * NumbersIn(type);
    Placement& place = role_.parameters[unit.parameters[i]].values;
    if (unit.ranks() == 1) place = {unit.packed.buffer, first, 0, 0, 0};
    else place = {unit.packed.buffer, first, unit.layout.shard_elements[i], 0, unit.shard_axis->axis()};
  }
}

Slice Fsdp::PackedShard(const UnitState& unit, size_t place) const {
  return Slice{unit.packed.buffer, unit.packed_starts[place - unit.dense],
               role_.parameters[unit.parameters[place]].Packed(unit.layout.shard_elements[place])};
}

void Fsdp::Initialize(ProgramBuilder& b) {
  for (UnitState& unit : units_) InitializeUnit(b, unit);
}

// One unit at a time is made whole on every rank, which then keeps its part: never more than one is whole.
void Fsdp::InitializeUnit(ProgramBuilder& b, UnitState& unit) {
  InitializePacked(b, unit);
  if (unit.dense == 0) return;
  const Slice whole = WholeFirstValues(b, unit);
  const Slice part = OwnShard(*unit.shard_axis, whole, unit.layout.shard);
  const auto to_host = Copy::Crosses::kToHost;
  // The elements of the shard that `to` has, from element `first` on.
  const auto keep = [&](Slice to, int64_t first, DType type, Copy::Crosses crosses) {
    if (to.buffer < 0) return;
    Slice from = part;
    from.offset += first;
    from.elements = to.elements;
    b.Alloc(to.buffer);
    b.Add(Copy{.elements = to.elements, .to = type, .crosses = crosses}, unit.name, {from}, {to});
  };
  const auto crosses = offloads_parameters() ? to_host : Copy::Crosses::kNothing;
  keep(unit.values, 0, updated_, crosses);
  keep(unit.frozen, unit.trained_shard, type_, crosses);
  keep(unit.master, 0, DType::kFloat32, to_host);
}

// One weight at a time is made whole, and this rank packs its shard.
void Fsdp::InitializePacked(ProgramBuilder& b, UnitState& unit) {
  if (!unit.has_packed()) return;
  b.Alloc(unit.packed.buffer);
  Slice on_device = unit.packed;
  if (offloads_parameters())
    on_device = b.Temporary(unit.name + " shard (packed, to keep)", unit.packed.elements,
                            Category::kParameters, role_.buffers[unit.packed.buffer].dtype);
  for (size_t i = unit.dense; i < unit.parameters.size(); ++i) {
    const int index = unit.parameters[i];
    const Parameter parameter = role_.parameters[index];
    const int64_t shard = unit.layout.shard_elements[i], padded = shard * unit.ranks();
    const Slice whole = b.Temporary(parameter.name + " (whole)", padded, Category::kParameters);
    if (const int64_t padding = padded - parameter.elements; padding > 0)
      b.Add(Fill{padding}, parameter.name, {}, {Slice{whole.buffer, parameter.elements, padding}});
    AddInitialValues(b, {index}, {Slice{whole.buffer, 0, parameter.elements}});
    Slice place = PackedShard(unit, i);
    place.buffer = on_device.buffer;
    b.Add(Quantize{shard, *parameter.packed}, parameter.name, {OwnShard(*unit.shard_axis, whole, shard)},
          {place});
  }
  if (!offloads_parameters()) return;
  b.Add(CopyOfPacked(unit, Copy::Crosses::kToHost), unit.name, {on_device}, {unit.packed});
}

Copy Fsdp::CopyOfPacked(const UnitState& unit, Copy::Crosses crosses) const {
  const DType type = role_.buffers[unit.packed.buffer].dtype;
  return Copy{.elements = unit.packed.elements, .from = type, .to = type, .crosses = crosses};
}

// The initial values of the unit's dense parameters in the layout of an all-gather's output.
Slice Fsdp::WholeFirstValues(ProgramBuilder& b, const UnitState& unit) {
  Slice whole = b.Temporary(unit.name + " (whole)", unit.padded(), Category::kParameters);
  if (spec_.version == 1) {
    const int64_t used = unit.layout.starts.back() + role_.parameters[unit.parameters.back()].elements;
    if (used < whole.elements) {
      b.Add(Fill{whole.elements - used}, unit.name, {}, {Slice{whole.buffer, used, whole.elements - used}});
    }
    AddInitialValues(b, unit.parameters, TensorsIn(unit, whole));
    return whole;
  }
  const std::vector<int> dense(unit.parameters.begin(), unit.parameters.begin() + unit.dense);
  std::vector<Slice> tensors;
  for (int index : dense) {
    tensors.push_back(
        b.Temporary(role_.parameters[index].name, role_.parameters[index].elements, Category::kParameters));
  }
  AddInitialValues(b, dense, tensors);
  const auto shards = unit.layout.shard_elements.begin();
  b.Add(PackShards{unit.ranks(), {shards, shards + unit.dense}}, unit.name, tensors, {whole});
  return whole;
}

void Fsdp::BeginStep(ProgramBuilder& b, int64_t step) {
  BeginEvaluation(b);
  evaluates_ = false;
  is_first_step_ = step == 0;
  for (UnitState& unit : units_) {
    if (step > 0 && unit.is_trained() && !updates_in_backward_) b.Free(unit.gradient.buffer);
    unit.gradient_alive = unit.gradient_holds = false;
    unit.incomplete = static_cast<int64_t>(unit.trained);
  }
}

void Fsdp::ForgetProgram() {
  gathers_after_ = forward_unpacked_ = last_gather_ = last_scatter_ = last_sum_ = -1;
  forward_whole_ = {};
  released_.clear();
}

void Fsdp::BeginEvaluation(ProgramBuilder& b) {
  b_ = &b;
  evaluates_ = true;
  ForgetProgram();
  for (UnitState& unit : units_) {
    unit.is_gathered = unit.is_unpacked = false;
    unit.tensors.clear();
    unit.kept = {};
  }
}

void Fsdp::BeginBackward(bool is_last) {
  is_last_backward_ = is_last;
  syncs_ = !splits_backward_ && (is_last || spec_.sync == GradientSync::kEveryMicroBatch);
  in_weights_ = false;
  last_reduced_ = kNoUnit;
  for (UnitState& unit : units_) unit.backward_begun = false;
}

void Fsdp::BeginBackwardWeights() {
  in_weights_ = true;
  last_reduced_ = kNoUnit;
}

void Fsdp::EndBackward() {
  if (last_reduced_ == kNoUnit) return;
  b_->SetPhase(Phase::kGradientSync);
  for (int unit : backward_order_) Settle(units_[unit]);
}

// REQUIRES: version 2, or one rank alone.
Slice Fsdp::ReducedGradient(int index) {
  const UnitState& unit = units_[unit_of_parameter_[index]];
  const int place = place_in_unit_[index];
  const int64_t elements =
      spec_.version == 1 ? role_.parameters[index].elements : unit.layout.shard_elements[place];
  return Slice{unit.gradient.buffer, unit.layout.starts[place], elements};
}

std::vector<OptimizerTarget> Fsdp::Targets() {
  std::vector<OptimizerTarget> targets;
  for (UnitState& unit : units_) {
    if (!unit.is_trained()) continue;
    unit.target = static_cast<int>(targets.size());
    const Slice values{unit.values.buffer, 0, unit.trained_shard};
    targets.push_back({unit.name, unit.master.buffer >= 0 ? unit.master : values, unit.gradient});
  }
  return targets;
}

void Fsdp::Update(ProgramBuilder& b, bool first) {
  b.SetPhase(Phase::kOptimizer);
  if (updates_in_backward_) return FindMagnitudes(b);
  std::vector<OptimizerTarget> targets = Targets();
  optimizer_.BeginUpdate(b, targets, copies_);
  for (OptimizerTarget& target : targets) {
    if (spec_.offload != Offload::kOptimizer) break;
    const Slice gradient = target.gradient;
    target.gradient = b.Temporary(target.name + " shard.grad (host)", gradient.elements, Category::kGradients,
                                  DType::kFloat32, MemorySpace::kHost);
    b.WaitBeforeNextCompute(AddBeside(b, copies_,
                                      Copy{.elements = gradient.elements, .crosses = Copy::Crosses::kToHost},
                                      target.name, gradient, target.gradient, b.BeforeNextCompute()));
  }
  optimizer_.SetTargets(std::move(targets));
  optimizer_.PrepareGradients(b, first);
  const OpIndex update = optimizer_.AddUpdate(b, first, 0, optimizer_.targets());
  CopyFromMasters(b, update);
  FindMagnitudes(b);
}

// Of all weights that are gathered in fp8, in one pass over their shards and one all-reduce.
void Fsdp::FindMagnitudes(ProgramBuilder& b) {
  std::vector<Slice> shards;
  int64_t elements = 0;
  for (const UnitState& unit : units_) {
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      if (!IsGatheredAsFactor(unit, i)) continue;
      shards.push_back(Slice{unit.values.buffer, unit.layout.starts[i], unit.layout.shard_elements[i]});
      elements += unit.layout.shard_elements[i];
    }
  }
  if (shards.empty()) return;
  const auto tensors = static_cast<int64_t>(shards.size());
  const Slice magnitudes = b.Temporary("weights.amax", tensors, Category::kWorkspace);
  Fp8Amax amax{elements, 1, Fp8Amax::Of::kAll, updated_};
  amax.groups = tensors;
  b.Add(amax, "weights", std::move(shards), {magnitudes});
  b.WaitBeforeNextCompute(
      data_.AllReduce(b, magnitudes, "weights.amax", b.BeforeNextCompute(), Reduction::kMax));
}

// Copies masters to the shards that are gathered, with offload: optimizer.
void Fsdp::CopyFromMasters(ProgramBuilder& b, OpIndex after) {
  for (const UnitState& unit : units_) {
    if (unit.master.buffer < 0) continue;
    AddBeside(b, copies_, Copy{.elements = unit.trained_shard, .crosses = Copy::Crosses::kToDevice},
              unit.name, unit.master, Slice{unit.values.buffer, 0, unit.trained_shard}, {after});
  }
}

namespace {

bool HoldsTied(const FsdpUnit& unit, const std::vector<Parameter>& parameters) {
  return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                     [&](int index) { return IsTied(parameters[index]); });
}

// The scenario keys because of which the embedding's weight is used in two places.
std::string WhySharesEmbedding(const ModelSpec& model) {
  std::vector<std::string> keys;
  if (model.tie_embeddings) keys.emplace_back("model.tie_embeddings");
  if (model.mtp) keys.emplace_back("model.mtp");
  if (model.encoder) keys.emplace_back("model.encoder");
  return fmt::to_string(fmt::join(keys, ", "));
}

}  // namespace

Result<std::unique_ptr<DataParallel>> MakeFsdp(const StrategyContext& context) {
  const DataParallelSpec& spec = context.scenario.parallel.data;
  const bool is_whole = context.scenario.parallel.pipeline.size == 1;
  const ModelSpec& model = context.scenario.model;
  const bool is_tied = model.SharesEmbedding();
  WT_ASSIGN_OR_RETURN(std::vector<FsdpUnit> units,
                      MakeUnits(context.modules, context.role.parameters, spec.wrap, is_whole, is_tied));
  for (const FsdpUnit& unit : units) {
    if (is_tied && !context.modules[unit.module].is_root() && HoldsTied(unit, context.role.parameters)) {
      return InvalidInput(
          "parallel.data.wrap: '{}' holds the embedding, whose weight is used elsewhere, too ({}), so it "
          "must "
          "stay in the root unit",
          unit.name, WhySharesEmbedding(model));
    }
  }
  for (const Parameter& parameter : context.role.parameters) {
    if (parameter.is_shared && spec.version == 1 && context.dense.shard.ranks() > 1) {
      return InvalidInput(
          "parallel.data.version: 1 cannot sum the gradients of {} between two pipeline stages, whose flat "
          "shards do not line up; expected 2, or none of {}",
          parameter.name, WhySharesEmbedding(model));
    }
  }
  return std::unique_ptr<DataParallel>(std::make_unique<Fsdp>(context, units));
}

}  // namespace windtunnel
